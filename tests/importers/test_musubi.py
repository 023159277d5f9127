"""musubi-tuner's commands and the TOML of their settings; its datasets are in test_import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.test_import import kinds, line
from trainer.errors import UserError
from trainer.importers import Imported, import_config
from trainer.job import TrainingJob

DATASET = "[general]\nresolution = [832, 480]\n[[datasets]]\nvideo_directory = 'clips'\ntarget_frames = [82]\n"
SCRIPT = """\
python src/musubi_tuner/wan_cache_latents.py --dataset_config data.toml --vae /m/wan_vae.safetensors --skip_existing
python src/musubi_tuner/wan_cache_text_encoder_outputs.py --dataset_config data.toml --t5 /m/umt5.safetensors --batch_size 16
accelerate launch --num_cpu_threads_per_process 1 --mixed_precision bf16 src/musubi_tuner/wan_train_network.py \\
    --task t2v-14B --dit /m/wan2.1_t2v.safetensors --vae /m/wan_vae.safetensors \\
    --dataset_config data.toml --sdpa --mixed_precision bf16 --fp8_base --fp8_scaled \\
    --optimizer_args weight_decay=0.1 betas=0.9,0.95 --optimizer_type adamw8bit --learning_rate 3e-4 \\
    --gradient_checkpointing --gradient_checkpointing_cpu_offload --blocks_to_swap 20 \\
    --max_data_loader_n_workers 2 --persistent_data_loader_workers --seed 42 \\
    --network_module networks.lora_wan --network_dim 32 --network_alpha 16 --network_args "loraplus_lr_ratio=4" \\
    --timestep_sampling shift --discrete_flow_shift 3.0 --max_train_steps 1600 --save_every_n_steps 200 \\
    --output_dir /out --output_name dance --wandb_api_key SECRET --huggingface_token SECRET
"""


def command(folder: Path, flags: str, program: str = "wan_train_network.py") -> tuple[Imported, TrainingJob]:
    (folder / "train.sh").write_text(f"accelerate launch {program} {flags}\n", encoding="utf-8")
    result = import_config([folder / "train.sh"])
    return result, TrainingJob.parse(result.job)


def test_a_script_that_encodes_and_trains(tmp_path: Path) -> None:
    (tmp_path / "data.toml").write_text(DATASET, encoding="utf-8")
    (tmp_path / "train.sh").write_text(SCRIPT, encoding="utf-8")
    result = import_config([tmp_path / "train.sh"])
    job = TrainingJob.parse(result.job)
    assert (job.model.family, job.model.transformer, job.model.vae) == ("wan", "/m/wan2.1_t2v.safetensors", "/m/wan_vae.safetensors")
    assert job.model.text_encoders == ["/m/umt5.safetensors"] and job.compute.dtype == "bf16"
    assert (job.memory.weights, job.memory.gradient_checkpointing, job.memory.layer_offload_fraction) == ("fp8", "offloaded", 0.5)
    assert (job.optimizer.name, job.optimizer.learning_rate, job.optimizer.weight_decay) == ("AdamW 8-bit", 3e-4, 0.1)
    assert (job.optimizer.beta1, job.optimizer.beta2, job.optimizer.lora_plus_ratio) == (0.9, 0.95, 4)
    assert (job.adapter.rank, job.adapter.alpha, job.schedule.steps, job.schedule.seed) == (32, 16, 1600, 42)
    assert (job.objective.timesteps, job.objective.shift) == ("logit-normal", 3)
    assert (job.output.name, job.output.save_every, job.dataset.dataloader_threads) == ("dance", 200, 2)
    assert result.job["dataset"]["buckets"] == [{"frames": 82, "height": 480, "width": 832}]
    assert job.dataset.sources[0].kind == "folder" and line(result, "datasets.0.target_frames").kind == "rounded"
    assert not [entry.source for entry in result.lines if entry.kind == "unsupported" and "huggingface" not in entry.source]
    assert "SECRET" not in str(result.lines)


def test_settings_in_a_toml_which_the_command_line_overrules(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "[model]\ndit = '/m/hunyuan.safetensors'\n[train]\nlearning_rate = 1e-4\ngradient_checkpointing = true\nsdpa = true\n"
        "max_train_steps = 500\n[lora]\nnetwork_module = 'networks.lora'\nnetwork_dim = 8\noptimizer_args = ['weight_decay=0.2']\n",
        encoding="utf-8",
    )
    result, job = command(tmp_path, "--config_file mine --learning_rate 5e-5 --guidance_scale 6", "hv_train_network.py")
    alone = TrainingJob.parse(import_config([tmp_path / "mine.toml"]).job)
    assert (job.optimizer.learning_rate, alone.optimizer.learning_rate, job.objective.guidance) == (5e-5, 1e-4, 6)
    for found in (job, alone):
        assert (found.model.family, found.model.transformer) == ("hunyuan_video", "/m/hunyuan.safetensors")
        assert (found.adapter.rank, found.schedule.steps, found.optimizer.weight_decay) == (8, 500, 0.2)
        assert found.memory.gradient_checkpointing == "full"
    rates = {entry.source: entry.kind for entry in result.lines if "learning_rate" in entry.source}
    assert rates == {"train.sh: --learning_rate": "mapped", "mine.toml: learning_rate": "ignored"}
    assert "alpha of 1" in " ".join(result.notes)


def test_a_toml_that_is_not_here_is_told(tmp_path: Path) -> None:
    result, _ = command(tmp_path, "--config_file gone.toml --dataset_config gone.toml")
    assert kinds(result, "config_file", "dataset_config") == {"unsupported"}


def test_two_experts_in_one_run_or_one(tmp_path: Path) -> None:
    both, job = command(tmp_path, "--task t2v-A14B --dit /m/low.safetensors --dit_high_noise /m/high.safetensors --timestep_boundary 875")
    assert (job.model.transformer, job.model.transformer_low, job.model.expert) == ("/m/high.safetensors", "/m/low.safetensors", "all")
    assert line(both, "timestep_boundary").kind == "ignored"
    _, low = command(tmp_path, "--task i2v-A14B --dit /m/low.safetensors --min_timestep 0 --max_timestep 900")
    assert (low.model.transformer, low.model.transformer_low, low.model.expert) == ("", "/m/low.safetensors", "low")
    other, _ = command(tmp_path, "--task t2v-A14B --dit /m/high.safetensors --min_timestep 500 --timestep_boundary 500")
    assert kinds(other, "min_timestep", "timestep_boundary") == {"unsupported"}


@pytest.mark.parametrize(
    ("flags", "timesteps", "shift"),
    [
        ("--timestep_sampling sigmoid --discrete_flow_shift 7", "logit-normal", 1),
        ("--timestep_sampling uniform", "uniform", 1),
        ("--timestep_sampling sigma --discrete_flow_shift 7", "uniform", 7),
        ("--weighting_scheme logit_normal --logit_mean 0.5 --discrete_flow_shift 7", "logit-normal", 7),
        ("--timestep_sampling shift --discrete_flow_shift 5 --weighting_scheme none", "logit-normal", 5),
    ],
)
def test_noise_levels(tmp_path: Path, flags: str, timesteps: str, shift: float) -> None:
    result, job = command(tmp_path, flags)
    assert (job.objective.timesteps, job.objective.shift) == (timesteps, shift)
    assert {entry.kind for entry in result.lines} <= {"mapped", "ignored"}
    assert job.objective.logit_mean == (0.5 if "logit_mean" in flags else 0)


def test_settings_of_noise_levels_count_where_they_do_there(tmp_path: Path) -> None:
    result, job = command(tmp_path, "--timestep_sampling shift --sigmoid_scale 2 --logit_std 3 --weighting_scheme cosmap")
    assert job.objective.logit_std == 2 and line(result, "logit_std").kind == "ignored"
    assert line(result, "weighting_scheme").kind == "unsupported"
    by_size, _ = command(tmp_path, "--timestep_sampling flux_shift --sigmoid_scale 2")
    assert kinds(by_size, "timestep_sampling") == {"unsupported"} and kinds(by_size, "sigmoid_scale") == {"ignored"}


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ("--gradient_checkpointing", "full"),
        ("--gradient_checkpointing --gradient_checkpointing_cpu_offload", "offloaded"),
        ("--gradient_checkpointing_cpu_offload", "auto"),
    ],
)
def test_checkpointing(tmp_path: Path, flags: str, value: str) -> None:
    assert command(tmp_path, flags)[1].memory.gradient_checkpointing == value


def test_memory_and_speed(tmp_path: Path) -> None:
    result, job = command(
        tmp_path, "--fp8_base --flash_attn --compile --compile_mode max-autotune --blocks_to_swap 10 --dit /m/any.safetensors --vae_tiling"
    )
    assert (job.memory.weights, job.memory.vae_tiling, job.memory.layer_offload_fraction) == ("fp8", True, -1)
    assert (job.compute.compile, job.compute.attention) == ("on", "flash") and line(result, "compile_mode").kind == "ignored"
    _, other = command(tmp_path, "--sage_attn --dynamo_backend INDUCTOR --vae_spatial_tile_sample_min_size 128", "hv_train_network.py")
    assert (other.compute.sampling_attention, other.compute.compile, other.memory.vae_tiling) == ("sage", "on", True)
    assert command(tmp_path, "--dynamo_backend NO")[1].compute.compile == "off"
    assert command(tmp_path, "--f1", "fpack_train_network.py")[1].model.sampling_order == "forward"
    _, sizes = command(tmp_path, "--dit /m/any.safetensors --blocks_to_swap 51", "hv_1_5_train_network.py")
    assert sizes.memory.layer_offload_fraction == pytest.approx(51 / 54, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "ours", "other"),
    [
        ("AdamW", "AdamW", ""), ("AdaFactor", "Adafactor", ""), ("bitsandbytes.optim.AdamW8bit", "AdamW 8-bit", ""),
        ("prodigyopt.Prodigy", "Prodigy", ""), ("torch.optim.RAdam", "other", "RAdam"),
    ],
)  # fmt: skip
def test_optimizers_by_the_class_that_they_are(tmp_path: Path, name: str, ours: str, other: str) -> None:
    job = command(tmp_path, f"--optimizer_type {name} --learning_rate 1")[1]
    assert (job.optimizer.name, job.optimizer.other) == (ours, other)


@pytest.mark.parametrize(("given", "warmup"), [("100", 100), ("0.1", 80), ("5%", 40)])
def test_a_warm_up_may_be_a_share_of_the_steps(tmp_path: Path, given: str, warmup: int) -> None:
    assert command(tmp_path, f"--lr_warmup_steps {given} --max_train_steps 800")[1].optimizer.warmup == warmup
    result, job = command(tmp_path, f"--lr_warmup_steps {given} --max_train_steps 800 --max_train_epochs 4")
    assert job.optimizer.warmup == (100 if given == "100" else 0) and job.schedule.steps == 1000
    assert kinds(result, "max_train_steps", "max_train_epochs") == {"unsupported"}


def test_nothing_is_lost_silently(tmp_path: Path) -> None:
    result, _ = command(tmp_path, "--new_flag 3 --network_args nothing --network_module networks.lokr --sample_prompts a.txt")
    assert kinds(result, "new_flag", "network_args", "network_module", "sample_prompts") == {"unsupported"}


@pytest.mark.parametrize(("program", "family"), [("qwen_image_train_network.py", "qwen_image"), ("hidream_o1_train_network.py", "HiDream")])
def test_a_model_that_cannot_be_trained_here(tmp_path: Path, program: str, family: str) -> None:
    result, job = command(tmp_path, "--dit /m/a.safetensors --network_dim 8", program)
    assert job.model.family == "" and line(result, "dit").kind == "unsupported" and any(family in note for note in result.notes)
    assert not any("whole model" in note for note in result.notes)
    assert any("whole model" in note for note in command(tmp_path, "--learning_rate 1e-5", "hv_train.py")[0].notes)
    control, _ = command(tmp_path, "--task t2v-14B-FC --dit /m/a.safetensors")
    assert kinds(control, "task", "dit") == {"unsupported"}


ENCODE_AND_TRAIN = """\
python wan_cache_latents.py --dataset_config data.toml --vae /m/old_vae.safetensors --clip /m/clip.safetensors
python wan_cache_text_encoder_outputs.py --dataset_config data.toml --t5 /m/old_t5.safetensors
accelerate launch wan_train_network.py --task t2v-14B --dit /m/a.safetensors --vae /m/vae.safetensors {t5} --clip /m/clip.safetensors
"""


def test_the_command_that_trains_says_which_files_are_taken(tmp_path: Path) -> None:
    """Those of the command that encodes were, and both were said to be."""
    (tmp_path / "run.sh").write_text(ENCODE_AND_TRAIN.format(t5="--t5 /m/t5.safetensors"), encoding="utf-8")
    result = import_config([tmp_path / "run.sh"])
    job = TrainingJob.parse(result.job)
    assert (job.model.vae, job.model.text_encoders, job.model.image_encoder) == (
        "/m/vae.safetensors", ["/m/t5.safetensors"], "/m/clip.safetensors",
    )  # fmt: skip
    told = {entry.source.rpartition(": ")[0] + entry.source.rpartition("--")[2]: entry for entry in result.lines}
    for name, program in (("vae", "wan_cache_latents.py"), ("t5", "wan_cache_text_encoder_outputs.py")):
        (lost,) = (entry for entry in result.lines if entry.source == f"run.sh {program}: --{name}")
        assert lost.kind == "unsupported" and f"--{name} of run.sh wan_train_network.py names another" in lost.why
        assert told[f"run.sh wan_train_network.py{name}"].kind == "mapped"
    assert told["run.sh wan_cache_latents.pyclip"].kind == "ignored"


def test_where_the_command_that_trains_names_none_that_can_be_read_the_other_is_taken(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(ENCODE_AND_TRAIN.format(t5="--t5 /m/t5.pth"), encoding="utf-8")
    assert TrainingJob.parse(import_config([tmp_path / "run.sh"]).job).model.text_encoders == ["/m/old_t5.safetensors"]


def test_noise_levels_that_end_at_boundaries_on_both_sides_choose_no_expert(tmp_path: Path) -> None:
    """Both were said to choose one, and the last did."""
    result, job = command(tmp_path, "--task t2v-A14B --dit /m/a.safetensors --min_timestep 875 --max_timestep 900")
    assert job.model.expert == "all" and kinds(result, "min_timestep", "max_timestep") == {"unsupported"}
    assert job.model.transformer == "/m/a.safetensors" and not any("two experts" in note for note in result.notes)


PLAIN = "learning_rate = 1e-4\nseed = 7\ngradient_checkpointing = true\n"


@pytest.mark.parametrize("given", [1, 2])
@pytest.mark.parametrize("more", ["", "brand_new = 3\n"])
def test_settings_without_a_model_are_read_with_the_command_that_names_them(tmp_path: Path, given: int, more: str) -> None:
    """Only files with dit or network_module were taken for them, and others said to be missing."""
    (tmp_path / "mine.toml").write_text(f"[train]\n{PLAIN}{more}", encoding="utf-8")
    flags = "--config_file conf/mine --dit /m/a.safetensors --network_dim 8 --seed 3"
    (tmp_path / "train.sh").write_text(f"python hv_train_network.py {flags}\n", encoding="utf-8")
    result = import_config([tmp_path / "train.sh", tmp_path / "mine.toml"][:given])
    job = TrainingJob.parse(result.job)
    assert (job.optimizer.learning_rate, job.schedule.seed, job.adapter.rank) == (1e-4, 3, 8)
    assert (job.model.family, job.memory.gradient_checkpointing) == ("hunyuan_video", "full")
    assert not more or line(result, "brand_new").kind == "unsupported"
    assert line(result, "config_file").kind == "ignored"


def test_settings_without_a_model_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(PLAIN, encoding="utf-8")
    result = import_config([tmp_path / "mine.toml"])
    assert result.format == "musubi-tuner" and result.job["optimizer"]["learning_rate"] == 1e-4
    (tmp_path / "other.toml").write_text(f"pretrained_model_name_or_path = 'a'\n{PLAIN}", encoding="utf-8")
    with pytest.raises(UserError, match="no configuration of a trainer"):
        import_config([tmp_path / "other.toml"])


BOTH = (
    "[general]\nresolution = [832, 480]\nnum_repeats = 2\nlearning_rate = 1e-4\n[[datasets]]\nvideo_directory = 'clips'\n"
    "target_frames = [81]\n[train]\nnetwork_dim = 8\ndit = '/m/a.safetensors'\n"
)


@pytest.mark.parametrize("files", [["both.toml"], ["train.sh"], ["train.sh", "both.toml"]])
@pytest.mark.parametrize("dataset_config", ["", " --dataset_config both.toml"])
def test_datasets_and_settings_in_one_file(tmp_path: Path, files: list[str], dataset_config: str) -> None:
    """Only the datasets were read."""
    (tmp_path / "both.toml").write_text(BOTH, encoding="utf-8")
    (tmp_path / "train.sh").write_text(f"python wan_train_network.py --config_file both.toml{dataset_config}\n", encoding="utf-8")
    result = import_config([tmp_path / name for name in files])
    job = TrainingJob.parse(result.job)
    assert (job.adapter.rank, job.optimizer.learning_rate, job.model.transformer) == (8, 1e-4, "/m/a.safetensors")
    (source,) = result.job["dataset"]["sources"]
    assert (source["folder"], source["repeats"]) == ("clips", 2)
    assert result.job["dataset"]["buckets"] == [{"frames": 81, "height": 480, "width": 832}]
    assert not [entry for entry in result.lines if entry.kind == "unsupported"]


@pytest.mark.parametrize("given", [["train.sh"], ["train.sh", "both.toml"], ["train.sh", "both.toml", "data.toml"]])
def test_datasets_beside_settings_give_way_to_the_file_that_is_named(tmp_path: Path, given: list[str]) -> None:
    (tmp_path / "both.toml").write_text(BOTH, encoding="utf-8")
    (tmp_path / "data.toml").write_text(DATASET.replace("clips", "others"), encoding="utf-8")
    (tmp_path / "train.sh").write_text("python wan_train_network.py --config_file both --dataset_config data.toml\n", encoding="utf-8")
    result = import_config([tmp_path / name for name in given])
    assert [source["folder"] for source in result.job["dataset"]["sources"]] == ["others"] and result.job["adapter"]["rank"] == 8
    (lost,) = (entry for entry in result.lines if entry.source == "both.toml: datasets.0.video_directory")
    assert lost.kind == "ignored" and "another file of datasets" in lost.why


def test_a_stray_setting_does_not_make_a_dataset_file_one_of_training(tmp_path: Path) -> None:
    (tmp_path / "data.toml").write_text(f"stray = 1\n{DATASET}", encoding="utf-8")
    result = import_config([tmp_path / "data.toml"])
    assert line(result, "stray").kind == "unsupported" and not any("alpha" in note for note in result.notes)


def test_a_setting_in_two_sections_is_told_with_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[a]\nnetwork_dim = 8\n[b]\nseed = 1\nnetwork_dim = 16\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        import_config([file])
    (problem,) = caught.value.problems
    assert (problem.where, problem.found) == (f"{file}, lines 2 and 5", "network_dim has several values.")
    file.write_text("[a]\nnetwork_dim = 8\n[b]\nseed = 1\nnetwork_dim = 8\n", encoding="utf-8")
    assert import_config([file]).job["adapter"]["rank"] == 8


@pytest.mark.parametrize(
    "start",
    [
        "python -m musubi_tuner.wan_train_network", "accelerate launch --num_processes 1 -m musubi_tuner.wan_train_network",
        "accelerate launch --module src.musubi_tuner.wan_train_network", "uv run python -m wan_train_network",
        "python -m accelerate.commands.launch --num_processes 1 src/musubi_tuner/wan_train_network.py",
        "python -m torch.distributed.run --nproc_per_node 1 -m musubi_tuner.wan_train_network",
    ],
)  # fmt: skip
def test_programs_that_are_run_as_modules(tmp_path: Path, start: str) -> None:
    (tmp_path / "train.sh").write_text(f"{start} --task t2v-14B --dit /m/a.safetensors --network_dim 8\n", encoding="utf-8")
    result = import_config([tmp_path / "train.sh"])
    assert result.format == "musubi-tuner" and result.job["model"] == {"family": "wan", "transformer": "/m/a.safetensors"}
    assert result.job["adapter"]["rank"] == 8
