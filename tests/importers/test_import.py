"""Other trainers' files as jobs: every setting has its line, the job validates, and holds what the file says."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.importers.examples import RUNS
from trainer.importers import Imported, Line, import_config, table
from trainer.job import CaptionEdit, TrainingJob
from trainer.models import FAMILIES
from trainer.source_settings import CaptionJson, HubDataset, MetadataTable, ParquetFolder, VideoFolder, VideoList

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Import = Callable[[str], Imported]


def line(imported: Imported, source: str) -> Line:
    """The one line on a setting, by the end of its name."""
    found = [line for line in imported.lines if line.source.rpartition(": ")[2].removeprefix("--") == source]
    assert len(found) == 1, f"{source}: {len(found)} lines"
    return found[0]


def kinds(imported: Imported, *sources: str) -> set[str]:
    return {line(imported, source).kind for source in sources}


def keys(data: Any, place: str = "") -> Iterator[str]:
    """Names of all settings, written apart from the importer's own walk."""
    for name, value in data.items():
        if isinstance(value, dict) and value:
            yield from keys(value, f"{place}{name}.")
        elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
            for n, part in enumerate(value):
                yield from keys(part, f"{place}{name}.{n}.")
        else:
            yield place + name


def settings_in(path: Path, text: str) -> list[str]:
    """Names of all settings of a file, found by plain means."""
    if path.suffix == ".toml":
        return list(keys(tomllib.loads(text)))
    if path.suffix == ".json":
        return list(keys(json.loads(text)))
    if path.suffix == ".csv":
        return list(keys({"data": list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))}))
    text = "\n".join(row for row in text.split("\n") if not row.lstrip().startswith("#"))
    launcher = {"config_file", "gpu_ids", "nproc_per_node"}
    names = set(re.findall(r"(?<![\w-])--([A-Za-z][\w.-]*)", text))
    names -= {"nproc_per_node"} if "\nelif " in text else set()  # one command in two branches: the launcher of the first stands
    exported = {f"environment.{name}" for name in re.findall(r"(?m)^export (\w+)=", text)}
    return [f"launcher.{n}" if n in launcher else n.replace("-", "_") for n in names] + sorted(exported)


@pytest.mark.parametrize("run", RUNS)
def test_the_job_validates_and_every_setting_has_one_line(run: str, written: Callable[[str], list[Path]]) -> None:
    files = written(run)
    imported = import_config(files[:1])
    TrainingJob.parse(imported.job)
    told = Counter(line.source for line in imported.lines)
    several = len(files) > 1
    expected = Counter(
        f"{file.name}: {name}" if several else name for file in files for name in settings_in(file, file.read_text(encoding="utf-8"))
    )
    assert Counter({source.replace("--", ""): n for source, n in told.items()}) == expected
    assert all(line.why for line in imported.lines if line.kind != "mapped")
    assert all(line.target for line in imported.lines if line.kind in ("mapped", "rounded"))
    json.dumps([line.value for line in imported.lines])
    printed = table(imported)
    for line in imported.lines:
        assert line.source in printed or re.sub(r"(?<=\.)\d+(?=\.|$)", "#", line.source) in printed


@pytest.mark.parametrize("run", RUNS)
def test_the_job_holds_only_what_differs(run: str, imported: Import) -> None:
    def check(part: dict[str, Any], defaults: dict[str, Any]) -> None:
        for name, value in part.items():
            assert value != defaults[name], name
            if isinstance(defaults[name], dict):
                check(value, defaults[name])

    job = imported(run).job
    assert "version" not in job
    check(job, TrainingJob().model_dump(mode="json"))


def test_diffusion_pipe_with_framepack_windows(imported: Import, tmp_path: Path) -> None:
    result = imported("diffusion-pipe")
    job = TrainingJob.parse(result.job)
    assert [str(bucket) for bucket in job.dataset.buckets] == ["120x720x572", "120x640x640"]
    assert job.dataset.windows and job.dataset.windows.size == 33
    assert job.dataset.sources == [VideoFolder(folder=(tmp_path / "videos").as_posix(), subfolders=False, images=True)]
    assert (job.adapter.rank, job.schedule.accumulation, job.compute.dtype, job.output.name) == (32, 2, "bf16", "dance")
    resolutions = line(result, "resolutions")
    assert resolutions.kind == "rounded" and "720x572 -> 720x576" in resolutions.why and resolutions.value == "720x576, 640x640"
    frames = line(result, "frame_buckets")
    assert frames.kind == "mapped" and "120 stays" in frames.why and "117" in frames.why
    assert kinds(result, "epochs", "model.llm_path") == {"unsupported"}
    assert job.memory.weights == "fp8" and kinds(result, "model.transformer_dtype") == {"mapped"}
    files = {name: (tmp_path / f"{name}.safetensors").as_posix() for name in ("transformer", "vae")}
    assert result.job["model"] == {"family": "hunyuan_video", **files}
    assert line(result, "dataset").why.startswith("read from")


def test_without_windows_frames_are_rounded_too(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text("[model]\ntype = 'wan'\nframepack = false\nframepack_window_size = 33\n", encoding="utf-8")
    (tmp_path / "other.toml").write_text(
        "frame_buckets = [1, 120]\nresolutions = [512]\nenable_ar_bucket = true\nar_buckets = [1.0, [640, 360]]\n"
    )
    result = import_config([tmp_path / "other.toml", tmp_path / "train.toml"])
    frames = line(result, "frame_buckets")
    assert (frames.kind, frames.value) == ("rounded", "1 frame, 117 frames") and "1 is for still images" in frames.why
    assert [(b["frames"], b["height"], b["width"]) for b in result.job["dataset"]["buckets"]] == [
        (frames, height, width) for frames in (1, 120) for height, width in ((512, 512), (384, 688))
    ]
    assert result.job["model"] == {"family": "wan"} and "windows" not in result.job["dataset"]


def test_diffusion_pipes_noise_levels_choose_an_expert(tmp_path: Path) -> None:
    """It trains Wan 2.2's experts one at a time, by the noise levels of each."""
    for number, (levels, model, kind) in enumerate((
        ("min_t = 0\nmax_t = 0.875", {"family": "wan", "expert": "low"}, "mapped"),
        ("min_t = 0.9\nmax_t = 1", {"family": "wan", "expert": "high"}, "mapped"),
        ("min_t = 0.3\nmax_t = 1", {"family": "wan"}, "unsupported"),
    )):  # fmt: skip
        file = tmp_path / f"{number}.toml"
        file.write_text(f"[model]\ntype = 'wan'\nfirst_frame_conditioning_p = 0.25\n{levels}\n", encoding="utf-8")
        result = import_config([file])
        assert result.job["model"] == model and TrainingJob.parse(result.job).objective.first_frame_probability == 0.25
        assert kinds(result, "model.max_t" if number == 0 else "model.min_t") == {kind}


def test_musubi_datasets_share_the_buckets(imported: Import, tmp_path: Path) -> None:
    result = imported("musubi")
    job = TrainingJob.parse(result.job)
    assert [str(bucket) for bucket in job.dataset.buckets] == ["1x544x960", "25x544x960", "45x544x960", "33x640x640"]
    data = tmp_path.as_posix()
    assert job.schedule.batch_size == 2 and job.dataset.sources == [
        VideoFolder(folder=f"{data}/videos", subfolders=False, repeats=3),
        VideoFolder(folder=f"{data}/more", subfolders=False),
        MetadataTable(file=f"{data}/metadata.jsonl", video_column="video_path"),
    ]
    assert line(result, "datasets.2.video_jsonl_file").target == "dataset.sources.2.file"
    assert kinds(result, "datasets.1.frame_extraction") == {"unsupported"}
    assert kinds(result, "datasets.0.source_fps", "datasets.0.cache_directory", "general.enable_bucket") == {"ignored"}


def test_finetrainers_script(imported: Import, tmp_path: Path) -> None:
    result = imported("finetrainers script")
    job = TrainingJob.parse(result.job)
    assert [str(bucket) for bucket in job.dataset.buckets] == ["17x512x768", "49x512x768"]
    assert [(p.prompt[:20], str(p.size)) for p in job.samples.prompts] == [
        ("BW_STYLE The panda's", "49x512x768"), ("BW_STYLE A goat", "129x512x768"), ("A cake with no size", "None")
    ]  # fmt: skip
    assert line(result, "validation_prompts").kind == "rounded"  # 130 frames are not 8n+1
    assert job.samples.prompts[0].prompt.endswith("guitar, its face shows joy")
    assert (job.adapter.rank, job.adapter.alpha, job.adapter.targets) == (128, 128, "attention")
    assert (job.optimizer.learning_rate, job.optimizer.beta2, job.optimizer.warmup) == (1e-5, 0.95, 100)
    assert (job.schedule.steps, job.schedule.seed, job.output.keep, job.output.name) == (1200, 42, 2, "ltxv_cakify")
    assert (job.captions.prefix, job.captions.dropout, job.model.source) == ("BW_STYLE", 0.1, "Lightricks/LTX-Video")
    root = f"{tmp_path.as_posix()}/cakify"
    assert job.dataset.sources == [VideoList(folder=root, videos="videos.txt", captions="prompts.txt")]
    assert [line(result, name).target for name in ("data_root", "video_column", "caption_column")] == [
        f"dataset.sources.0.{name}" for name in ("folder", "videos", "captions")
    ]
    assert job.model.family == "ltx_video" and line(result, "revision").kind == "unsupported"
    assert "grows with the size here too" in line(result, "flow_resolution_shifting").why
    assert kinds(result, "launcher.gpu_ids", "environment.WANDB_MODE", "epsilon") == {"ignored"}
    assert kinds(result, "enable_tiling", "enable_slicing") == {"mapped"} and job.memory.vae_tiling and job.memory.vae_slicing


def test_finetrainers_command_line(imported: Import, tmp_path: Path) -> None:
    result = imported("finetrainers command")
    job = TrainingJob.parse(result.job)
    assert job.model.family in FAMILIES and job.dataset.sources == [VideoFolder(folder=f"{tmp_path.as_posix()}/videos")]
    buckets = line(result, "video_resolution_buckets")
    assert (buckets.kind, buckets.value, str(job.dataset.buckets[0])) == ("rounded", "61x496x768", "61x500x768")
    assert job.adapter.targets == "attention" and job.objective.shift == 3 and job.schedule.batch_size == 2
    assert "does not warm up" in line(result, "lr_warmup_steps").why and job.optimizer.warmup == 100
    assert kinds(result, "optimizer", "use_8bit_bnb") == {"mapped"} and job.optimizer.name == "AdamW 8-bit"


def test_finetrainers_second_generation_counts_micro_batches(imported: Import, tmp_path: Path) -> None:
    result = imported("finetrainers arrays")
    job = TrainingJob.parse(result.job)
    assert (job.schedule.steps, job.schedule.accumulation) == (750, 4) and line(result, "train_steps").kind == "rounded"
    assert [str(bucket) for bucket in job.dataset.buckets] == ["49x480x832", "48x480x840"]
    assert line(result, "datasets.0.video_resolution_buckets").value == "49x480x832, 45x480x848"
    assert job.dataset.sources == [
        VideoFolder(folder=f"{tmp_path.as_posix()}/videos", caption_edits=[CaptionEdit(prefix="PIKA_CRUSH", remove_openings=True)]),
        HubDataset(source="finetrainers/crush-smol", caption_edits=[CaptionEdit(prefix="OTHER")], caption_column="text"),
    ]
    assert line(result, "datasets.1.id_token").target == "dataset.sources.1.caption_edits.0.prefix"
    assert len(job.samples.prompts) == 2 and line(result, "validation_dataset_file").kind == "ignored"


def test_fastvideo(written: Callable[[str], list[Path]], tmp_path: Path) -> None:
    preprocessing, training = written("FastVideo preprocessing"), written("FastVideo training")
    result = import_config([*preprocessing, *training])  # the validation file is named and given
    job = TrainingJob.parse(result.job)
    assert (str(job.dataset.buckets[0]), job.dataset.fps) == ("78x480x832", 16) and len(job.dataset.buckets) == 1
    assert (job.schedule.steps, job.adapter.rank, job.optimizer.beta2, job.captions.dropout) == (5000, 32, 0.999, 0.1)
    assert line(result, "preprocess.num_frames").value == "77 frames" and line(result, "lora_training").kind == "ignored"
    assert job.dataset.sources == [CaptionJson(file=f"{tmp_path.as_posix()}/your_dataset/")]
    assert kinds(result, "preprocess.dataset_path", "preprocess.dataset_type") == {"mapped"}
    assert line(result, "data_path").why.startswith("the clips themselves are given")
    assert kinds(result, "VSA_sparsity", "sp_size") == {"unsupported"}
    encoded = TrainingJob.parse(import_config(training).job)
    assert encoded.dataset.sources == [ParquetFolder(folder="data/a", repeats=2), ParquetFolder(folder="data/b")]
    assert len(job.samples.prompts) == 2 and line(result, "validation_dataset_file").why == "validation.json is read for it"
    assert line(result, "hub_token").value == "(hidden)" and "hf_abc" not in table(result)


@pytest.mark.parametrize("run", ["OneTrainer LoRA", "OneTrainer fine-tuning", "OneTrainer embedding"])
def test_onetrainer_video_config(run: str, imported: Import) -> None:
    result = imported(run)
    job = TrainingJob.parse(result.job)
    assert job.dataset.fps == 24 and {(b.frames, b.height * b.width // 10000) for b in job.dataset.buckets} <= {(16, 26), (16, 25)}
    assert (job.dataset.buckets[0].height, job.dataset.buckets[0].width) == (512, 512) and len(job.dataset.buckets) == 9
    sampling, names = job.dataset, ("max_frames", "frame_sample_strategy", "max_duration", "temporal_augmentation")
    assert kinds(result, "video_config.video_batch_size_multiplier", *(f"video_config.{name}" for name in names)) == {"mapped"}
    assert [getattr(sampling, name) for name in names] == [16, "uniform", 10, "crop and reverse"]
    assert not sampling.frame_shuffling and job.schedule.video_batch_size_multiplier == 0.5
    assert line(result, "video_config.use_temporal_attention").why.startswith("cannot be off in 3-D attention models")
    assert kinds(result, "video_config.frame_dropout_probability", "dataloader_threads") == {"mapped"}
    assert (sampling.frame_dropout_probability, sampling.dataloader_threads) == (0, 4)
    assert job.memory.gradient_checkpointing == "offloaded"
    assert line(result, "training_method").kind == ("ignored" if run == "OneTrainer LoRA" else "unsupported")
    assert line(result, "frames").kind == ("mapped" if run == "OneTrainer embedding" else "rounded")  # that one names no model


def test_onetrainer_lora(imported: Import, tmp_path: Path) -> None:
    result = imported("OneTrainer LoRA")
    job = TrainingJob.parse(result.job)
    assert line(result, "video_config.spatial_compression_ratio").why == "the VAE's own ratio is 8; checked, not set"
    assert line(result, "video_config.temporal_compression_ratio").kind == "unsupported"  # the VAE's is 4
    assert (job.adapter.alpha, job.objective.logit_std, job.optimizer.beta2, job.schedule.batch_size) == (1, 1.5, 0.999, 2)
    assert job.dataset.sources == [
        VideoFolder(folder=f"{tmp_path.as_posix()}/videos", repeats=2, weight=0.5, images=True, captions_from="sidecar lines")
    ]
    assert line(result, "concepts.1.path").why == "this concept is disabled"
    assert (job.samples.prompts[0].prompt, str(job.samples.prompts[0].size), job.samples.guidance) == ("A dancer", "25x512x512", 6)
    assert line(result, "optimizer.optimizer").target == "optimizer.name" and job.optimizer.name == "AdamW 8-bit"
    assert line(result, "concepts.0.image.enable_random_flip").kind == "unsupported"
    assert line(result, "secrets.huggingface_token").value == "(hidden)"


def test_onetrainer_exact_sizes_are_width_and_height(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{"training_method": "LORA", "resolution": "768x512", "concept_file_name": "c.json"}', encoding="utf-8"
    )
    (tmp_path / "c.json").write_text(
        '[{"path": "clips", "enabled": true, "image": {}, "text": {"prompt_source": "sample"}}]', encoding="utf-8"
    )
    result = import_config([tmp_path / "a.json"])
    assert result.job["dataset"]["buckets"] == [{"frames": 25, "height": 512, "width": 768}]
    assert "25 frames, OneTrainer's default" in line(result, "resolution").why
    assert TrainingJob.parse(result.job).dataset.sources == [
        VideoFolder(folder="clips", subfolders=False, images=True, captions_from="sidecar lines")
    ]


def test_diffusion_pipe_directories_have_captions_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "dataset.toml").write_text(
        "frame_buckets = [33]\nresolutions = [512]\nnum_repeats = 2\ncaption_prefix = 'all'\nskip_empty_caption = true\n"
        "[[directory]]\npath = 'a'\ncaption_prefix = 'own'\ncache_shuffle_num = 4\n[[directory]]\npath = 'b'\nnum_repeats = 5\n",
        encoding="utf-8",
    )
    result = import_config([tmp_path / "dataset.toml"])
    assert TrainingJob.parse(result.job).dataset.sources == [
        VideoFolder(
            folder="a", subfolders=False, repeats=2, images=True,
            caption_edits=[CaptionEdit(prefix="own", shuffle_tags=True, variants=4, uncaptioned="skip")],
        ),
        VideoFolder(folder="b", subfolders=False, repeats=5, images=True, caption_edits=[CaptionEdit(prefix="all", uncaptioned="skip")]),
    ]  # fmt: skip
    assert line(result, "caption_prefix").target == "dataset.sources.1.caption_edits.0.prefix"
    assert {line.kind for line in result.lines} == {"mapped"}


def test_finetrainers_tables_and_hub_datasets(tmp_path: Path) -> None:
    def sources(command: str) -> tuple[list[Any], Imported]:
        (tmp_path / "a.sh").write_text(f"python train.py --model_name wan --training_type lora {command}", encoding="utf-8")
        result = import_config([tmp_path / "a.sh"])
        return TrainingJob.parse(result.job).dataset.sources, result

    columns = "--video_column clip --caption_column says"
    found, _ = sources(f"--data_root owner/name {columns}")
    assert found == [HubDataset(source="owner/name", video_column="clip", caption_column="says")]
    found, result = sources(f"--data_root data --dataset_file data/x.csv {columns}")
    assert found == [MetadataTable(file="data/x.csv", video_column="clip", caption_column="says")]
    assert line(result, "data_root").kind == "ignored"
    assert line(sources("--data_root clips --dataset_file data/x.csv")[1], "data_root").kind == "unsupported"
    found, result = sources(f"--data_root clips {columns}")
    assert found == [VideoFolder(folder="clips")] and line(result, "video_column").kind == "ignored"


def test_images_of_musubi_are_clips_of_one_frame(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        "[general]\nresolution = [640, 480]\n[[datasets]]\nimage_directory = 'a'\n[[datasets]]\nimage_jsonl_file = 'b.jsonl'\n",
        encoding="utf-8",
    )
    job = TrainingJob.parse(import_config([tmp_path / "a.toml"]).job)
    assert job.dataset.sources == [
        VideoFolder(folder="a", images=True, subfolders=False),
        MetadataTable(file="b.jsonl", video_column="image_path"),
    ]
    assert list(map(str, job.dataset.buckets)) == ["1x480x640"]


def test_fastvideos_merge_file_names_caption_files(tmp_path: Path) -> None:
    (tmp_path / "merge.txt").write_text("a/videos,a/videos2caption.json\nb/videos,b/videos2caption.json\n", encoding="utf-8")
    command = "python -m fastvideo.pipelines.preprocess.v1_preprocess --data_merge_path {} --preprocess_video_batch_size 2"
    (tmp_path / "a.sh").write_text(command.format(tmp_path / "merge.txt"), encoding="utf-8")
    result = import_config([tmp_path / "a.sh"])
    assert TrainingJob.parse(result.job).dataset.sources == [CaptionJson(file=f"{name}/videos2caption.json") for name in "ab"]
    (tmp_path / "a.sh").write_text(command.format("gone.txt"), encoding="utf-8")
    assert line(import_config([tmp_path / "a.sh"]), "data_merge_path").kind == "unsupported"


def test_validation_files(imported: Import) -> None:
    prompts = TrainingJob.parse(imported("validation JSON").job).samples
    assert [(p.prompt, p.image, str(p.size)) for p in prompts.prompts] == [
        ("A fox in the snow", "", "48x480x832"), ("A dog", "dog.png", "49x480x832")
    ]  # fmt: skip
    assert (prompts.steps, prompts.guidance) == (50, 5)
    result = imported("validation JSON")
    assert kinds(result, "data.1.num_inference_steps", "data.1.max_sequence_length") == {"unsupported"}
    prompts = TrainingJob.parse(imported("validation CSV").job).samples
    assert [(p.prompt, str(p.size)) for p in prompts.prompts] == [
        ('A goat, and "musical" notes', "49x480x768"),
        ("Line one\nline two", "None"),
    ]
    assert kinds(imported("validation CSV"), "data.0.video_path", "data.1.height") == {"unsupported"}


def test_what_is_not_known_is_never_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        "micro_batch_size_per_gpu = 1\nbrand_new = 3\n[model]\ntype = 'cosmos'\nquux = {a = 1, b = []}\n", encoding="utf-8"
    )
    result = import_config([tmp_path / "a.toml"])
    assert kinds(result, "brand_new", "model.quux.a", "model.type") == {"unsupported"} and line(result, "model.quux.b").kind == "ignored"


def test_values_out_of_range_are_left_to_the_jobs_check(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        "micro_batch_size_per_gpu = 1\n[model]\ntype = 'wan'\n[adapter]\ntype = 'lora'\nrank = 4096\n", encoding="utf-8"
    )
    with pytest.raises(ValueError, match=r"adapter\.rank: 4096"):
        TrainingJob.parse(import_config([tmp_path / "a.toml"]).job)


def test_musubi_frame_extraction_and_no_upscale(tmp_path: Path) -> None:
    text = "[general]\nbucket_no_upscale = true\n[[datasets]]\nvideo_directory = 'clips'\nframe_extraction = \"{}\"\nframe_stride = 4\n"
    for extraction, kind in (
        ("slide", "mapped"),
        ("chunk", "mapped"),
        ("head", "mapped"),
        ("uniform", "unsupported"),
        ("full", "unsupported"),
    ):
        (tmp_path / "a.toml").write_text(text.format(extraction), encoding="utf-8")
        result = import_config([tmp_path / "a.toml"])
        dataset = TrainingJob.parse(result.job).dataset
        assert line(result, "datasets.0.frame_extraction").kind == kind
        assert dataset.frame_sample_strategy == (extraction if kind == "mapped" else "head")
        assert dataset.no_upscale and dataset.frame_stride == 4


@pytest.mark.parametrize(("given", "expected"), [("True", "random"), ("False", "head")])
def test_fastvideo_temporal_sample_is_a_random_start(tmp_path: Path, given: str, expected: str) -> None:
    command = f"python -m fastvideo.pipelines.preprocess.v1_preprocess --data_merge_path m.txt --do_temporal_sample {given}"
    (tmp_path / "a.sh").write_text(command, encoding="utf-8")
    result = import_config([tmp_path / "a.sh"])
    assert line(result, "do_temporal_sample").value == expected
    assert result.job.get("dataset", {}).get("frame_sample_strategy", "head") == expected


@pytest.mark.parametrize(
    ("given", "expected"), [(True, "crop and reverse"), (False, "off"), ("crop", "crop"), ("crop and reverse", "crop and reverse")]
)
def test_onetrainer_temporal_augmentation(tmp_path: Path, given: object, expected: str) -> None:
    (tmp_path / "a.json").write_text(
        json.dumps({"model_type": "WAN_2_1", "video_config": {"temporal_augmentation": given}}), encoding="utf-8"
    )
    result = import_config([tmp_path / "a.json"])
    assert line(result, "video_config.temporal_augmentation").value == expected
    assert result.job.get("dataset", {}).get("temporal_augmentation", "off") == expected


@pytest.mark.parametrize(
    ("name", "text", "setting"),
    [
        ("a.sh", "python train.py --model_name wan --training_type lora --dataloader_num_workers 6", "dataloader_num_workers"),
        (
            "a.sh",
            "python -m fastvideo.training.pipeline --num_latent_t 20 --dataloader_num_workers 6",
            "dataloader_num_workers",
        ),
        ("a.toml", "micro_batch_size_per_gpu = 1\nmap_num_proc = 6\n[model]\ntype = 'wan'\n", "map_num_proc"),
        ("a.json", '{"model_type": "WAN_2_1", "dataloader_threads": 6}', "dataloader_threads"),
    ],
)
def test_other_trainers_loaders_are_decoding_threads(tmp_path: Path, name: str, text: str, setting: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    result = import_config([tmp_path / name])
    assert line(result, setting).target == "dataset.dataloader_threads"
    assert TrainingJob.parse(result.job).dataset.dataloader_threads == 6


@pytest.mark.parametrize(("mode", "position"), [("random", "random"), ("random_crop", "random"), ("center", "centre"), ("bicubic", "")])
def test_finetrainers_reshape_mode_is_where_frames_are_cropped(tmp_path: Path, mode: str, position: str) -> None:
    (tmp_path / "a.sh").write_text(f"python train.py --model_name wan --training_type lora --video_reshape_mode {mode}", encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps({"datasets": [{"data_root": "clips", "reshape_mode": mode}]}), encoding="utf-8")
    for file, setting in (("a.sh", "video_reshape_mode"), ("a.json", "datasets.0.reshape_mode")):
        result = import_config([tmp_path / file])
        assert line(result, setting).kind == ("mapped" if position else "ignored")
        assert TrainingJob.parse(result.job).dataset.crop_position == (position or "centre")
