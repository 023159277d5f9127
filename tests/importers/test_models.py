"""Models in other trainers' files: each family that can be trained is set, with its files where they are single ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.importers.test_import import kinds, line
from trainer.importers import Imported, import_config
from trainer.importers.families import FAMILIES as FOREIGN
from trainer.importers.families import Family, find_family
from trainer.job import TrainingJob
from trainer.models import FAMILIES, known_models

TRAINED = {  # model types, names and hub ids of other trainers -> our family, empty for those that cannot be trained
    # diffusion-pipe
    "hunyuan-video": "hunyuan_video", "wan": "wan", "ltx-video": "ltx_video", "hidream": "hidream", "hunyuan_video_15": "hunyuan_video_15",
    "ltx2": "", "hunyuan_image": "",
    # OneTrainer
    "HUNYUAN_VIDEO": "hunyuan_video", "HI_DREAM_FULL": "hidream", "WAN_2_1": "wan", "WAN_2_2": "wan",
    # finetrainers
    "hunyuan_video": "hunyuan_video", "ltx_video": "ltx_video", "cogvideox": "cogvideox", "wan-i2v": "wan", "wan_control": "",
    # FastVideo, of both its generations
    "mochi": "mochi", "hunyuan_hf": "hunyuan_video", "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v": "hunyuan_video_15",
    "Wan-AI/Wan2.2-TI2V-5B-Diffusers": "wan", "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers": "wan",
    "FastVideo/FastHunyuan-diffusers": "hunyuan_video",
    "FastVideo/LTX2-Distilled-Diffusers": "", "weizhou03/Wan2.1-Fun-1.3B-InP-Diffusers": "", "Wan2.1-VACE-14B": "",
    # as files and hub ids are called
    "lllyasviel/FramePack_F1_I2V_HY_20250503": "framepack", "ltx-video-2b-v0.9.5": "ltx_video", "ltxv-2b-0.9.8": "ltx_video",
    "ltx-2.3-22b-dev": "", "ltx-2-19b-dev": "", "genmo/mochi-1-preview": "mochi", "zai-org/CogVideoX1.5-5B-I2V": "cogvideox",
    "HiDream-ai/HiDream-E1-Full": "", "Skywork/SkyReels-V1-Hunyuan-I2V": "",
}  # fmt: skip


def imported(folder: Path, name: str, text: str) -> Imported:
    (folder / name).write_text(text, encoding="utf-8")
    result = import_config([folder / name])
    TrainingJob.parse(result.job)
    return result


@pytest.mark.parametrize("name", TRAINED)
def test_models_by_other_trainers_names(name: str) -> None:
    family = find_family(name)
    assert family is not None and family.trained == TRAINED[name]


@pytest.mark.parametrize("family", [family for _, family in FOREIGN if family.trained], ids=lambda family: family.title)
def test_the_facts_of_a_family_are_those_of_its_models(family: Family) -> None:
    """For sizes that come up, and of some model of the family: its variants differ."""
    sizes = [(frames, *sides) for frames in (1, 2, 16, 25, 49, 120, 151) for sides in ((480, 832), (500, 700), (1000, 1024))]
    ours = [family.rounded(*size) for size in sizes]
    specs = [model.spec for model in known_models(family.trained) if "small" not in model.spec.variant]
    same = [spec for spec in specs if ours == [(spec.frame_rule.floor(f), *spec.size_near(h, w)) for f, h, w in sizes]]
    same = [spec for spec in same if spec.latent_stride == (family.temporal, family.spatial, family.spatial)]
    assert any(spec.first_frame_optional == family.first_frame_optional for spec in same)
    assert any(spec.guidance_input is not None for spec in specs) == family.guided
    if family.boundaries:
        assert {expert.low for spec in specs for expert in spec.experts if expert.low} == set(family.boundaries)


def test_all_families_are_known() -> None:
    assert {family.trained for _, family in FOREIGN if family.trained} == set(FAMILIES)


def test_diffusion_pipes_comfyui_files_are_the_models(tmp_path: Path) -> None:
    text = (
        "[model]\ntype = 'hunyuan_video_15'\ndiffusion_model = 'hunyuanvideo1.5_480p_t2v_fp16.safetensors'\n"
        "vae = 'hunyuanvideo15_vae_fp16.safetensors'\ndiffusion_model_dtype = 'float8'\n"
        "text_encoders = [{paths = ['qwen_2.5_vl_7b.safetensors', 'byt5_small_glyphxl_fp16.safetensors'], type = 'hunyuan_video_15'}]\n"
    )
    result = imported(tmp_path, "a.toml", text)
    assert result.job["model"] == {
        "family": "hunyuan_video_15", "transformer": "hunyuanvideo1.5_480p_t2v_fp16.safetensors",
        "vae": "hunyuanvideo15_vae_fp16.safetensors",
        "text_encoders": ["qwen_2.5_vl_7b.safetensors", "byt5_small_glyphxl_fp16.safetensors"],
    }  # fmt: skip
    assert line(result, "model.text_encoders.0.type").kind == "ignored"
    assert result.job["memory"]["weights"] == line(result, "model.diffusion_model_dtype").value == "fp8"
    notes = " ".join(result.notes)
    assert "model.tokenizers takes" in notes and "objective.shift 1 does the same" in notes and "The model is not set" not in notes


def test_diffusion_pipes_ltx_checkpoint_goes_before_the_folder_of_its_text_encoder(tmp_path: Path) -> None:
    text = "[model]\ntype = 'ltx-video'\ndiffusers_path = '/m/LTX-Video'\nsingle_file_path = '/m/ltx-video-2b-v0.9.1.safetensors'\n"
    result = imported(tmp_path, "a.toml", text)
    assert result.job["model"] == {"family": "ltx_video", "transformer": "/m/ltx-video-2b-v0.9.1.safetensors"}
    assert "set model.text_encoders" in line(result, "model.diffusers_path").why
    assert any("first_frame_probability 0 trains text to video alone" in note for note in result.notes)
    given = imported(tmp_path, "b.toml", f"{text}first_frame_conditioning_p = 1.0\n")
    assert given.job["objective"] == {"first_frame_probability": 1.0} and not any("first_frame_p" in note for note in given.notes)


@pytest.mark.parametrize(("levels", "slot"), [("min_t = 0\nmax_t = 0.875", "transformer_low"), ("min_t = 0.875\nmax_t = 1", "transformer")])
def test_diffusion_pipes_expert_is_the_file_of_its_noise_levels(tmp_path: Path, levels: str, slot: str) -> None:
    files = "ckpt_path = '/m/Wan2.2'\ntransformer_path = '/m/x.safetensors'\nllm_path = '/m/umt5.safetensors'\n"
    result = imported(tmp_path, "a.toml", f"[model]\ntype = 'wan'\n{files}{levels}\n")
    assert result.job["model"][slot] == "/m/x.safetensors" and result.job["model"]["text_encoders"] == ["/m/umt5.safetensors"]
    assert "model.vae" in line(result, "model.ckpt_path").why and any("loaded whole" in note for note in result.notes)


@pytest.mark.parametrize("type_", ["ltx2", "cosmos"])
def test_files_of_a_model_that_cannot_be_trained_are_not_taken(tmp_path: Path, type_: str) -> None:
    result = imported(tmp_path, "a.toml", f"[model]\ntype = '{type_}'\ndiffusion_model = 'x.safetensors'\ndiffusers_path = '/m'\n")
    assert "model" not in result.job and kinds(result, "model.type", "model.diffusion_model", "model.diffusers_path") == {"unsupported"}
    assert any("The model is not set" in note for note in result.notes)


def test_places_that_are_no_single_files_say_what_to_choose(tmp_path: Path) -> None:
    text = "[model]\ntype = 'hunyuan-video'\ntransformer_path = '/m/t.pt'\nclip_path = '/m/clip'\nguidance = 3.5\n"
    result = imported(tmp_path, "a.toml", text)
    assert result.job["model"] == {"family": "hunyuan_video"} and result.job["objective"] == {"guidance": 3.5}
    assert line(result, "model.transformer_path").why.endswith("the diffusion model's file, of ComfyUI's models/diffusion_models")
    assert line(result, "model.clip_path").why.endswith("each text encoder's file, of ComfyUI's models/text_encoders")


@pytest.mark.parametrize(("type_", "kind"), [("HUNYUAN_VIDEO", "mapped"), ("HI_DREAM_FULL", "ignored")])
def test_onetrainers_guidance_is_that_of_distilled_models(tmp_path: Path, type_: str, kind: str) -> None:
    config = {"model_type": type_, "transformer": {"guidance_scale": 6.0, "model_name": "x.gguf"}, "frames": "25", "resolution": "512"}
    result = imported(tmp_path, "a.json", json.dumps(config))
    assert line(result, "transformer.guidance_scale").kind == kind
    assert result.job.get("objective", {}) == ({"guidance": 6} if kind == "mapped" else {})
    assert result.job["model"]["transformer"] == "x.gguf"
    assert line(result, "frames").value == ("25 frames" if kind == "mapped" else "1 frame")


def test_onetrainers_parts_beside_a_whole_model_are_told(tmp_path: Path) -> None:
    config = {"model_type": "HI_DREAM_FULL", "base_model_name": "HiDream-ai/HiDream-I1-Full", "text_encoder_4": {"model_name": "llama"}}
    result = imported(tmp_path, "a.json", json.dumps(config))
    assert result.job["model"] == {"family": "hidream", "source": "HiDream-ai/HiDream-I1-Full"}
    assert line(result, "text_encoder_4.model_name").why.endswith("the first is taken")
    single = imported(tmp_path, "b.json", json.dumps({"model_type": "HUNYUAN_VIDEO", "base_model_name": "hunyuan.safetensors"}))
    assert single.job["model"] == {"family": "hunyuan_video", "transformer": "hunyuan.safetensors"}


def test_fastvideo_from_pictures_and_models_that_cannot_be_trained(tmp_path: Path) -> None:
    command = "python -m fastvideo.training.x --model_path {} --workload_type i2v"
    result = imported(tmp_path, "a.sh", command.format("Wan-AI/Wan2.1-I2V-14B-480P-Diffusers"))
    assert line(result, "workload_type").kind == "ignored" and not any("cannot train" in note for note in result.notes)
    other = imported(tmp_path, "b.sh", command.format("FastVideo/LTX2-Distilled-Diffusers"))
    assert "model" not in other.job and line(other, "model_path").why == "LTX-2 cannot be trained by this version"
    assert any("LTX-2, which this version cannot train, since its transformer needs sound" in note for note in other.notes)


def test_finetrainers_first_frame_and_files(tmp_path: Path) -> None:
    command = "python train.py --model_name {} --training_type lora --data_root clips --flow_resolution_shifting --transformer_id a/b"
    ltx, cog = (imported(tmp_path, f"{name}.sh", command.format(name)) for name in ("ltx_video", "cogvideox"))
    assert kinds(ltx, "flow_resolution_shifting") == {"ignored"} and kinds(cog, "flow_resolution_shifting") == {"unsupported"}
    assert [any("first_frame_probability" in note for note in result.notes) for result in (ltx, cog)] == [True, False]
    assert "model.transformer" in line(ltx, "transformer_id").why and cog.job["model"] == {"family": "cogvideox"}


def test_musubis_framepack_settings(tmp_path: Path) -> None:
    text = "[[datasets]]\nvideo_directory = 'clips'\nfp_latent_window_size = {}\nfp_1f_clean_indices = {}\nfp_1f_target_index = 9\n"
    result, other = (imported(tmp_path, f"{window}.toml", text.format(window, f"[{clean}]")) for window, clean in ((9, "0"), (5, "0, 1")))
    names = ("datasets.0.fp_latent_window_size", "datasets.0.fp_1f_clean_indices")
    assert kinds(result, *names, "datasets.0.fp_1f_target_index") == {"ignored"} and kinds(other, *names) == {"unsupported"}


@pytest.mark.parametrize(
    ("value", "weights", "kind"),
    [("float8", "fp8", "mapped"), ("float8_e5m2", "fp8", "mapped"), ("bfloat16", None, "ignored"), ("float4", None, "unsupported")],
)
def test_diffusion_pipes_transformer_dtype_is_how_the_frozen_weights_are_held(
    tmp_path: Path, value: str, weights: str | None, kind: str
) -> None:
    result = imported(tmp_path, "a.toml", f"[model]\ntype = 'wan'\ndtype = 'bfloat16'\ntransformer_dtype = '{value}'\n")
    assert result.job.get("memory", {}).get("weights") == weights and line(result, "model.transformer_dtype").kind == kind


@pytest.mark.parametrize(
    ("parts", "weights", "kind"),
    [
        ('"transformer": {"weight_dtype": "FLOAT_8"}', "fp8", "mapped"),
        ('"transformer": {"weight_dtype": "NFLOAT_4"}', "nf4", "mapped"),
        ('"transformer": {"weight_dtype": "INT_8"}', "int8", "mapped"),
        ('"transformer": {"weight_dtype": "GGUF"}', "as stored", "mapped"),
        ('"transformer": {"weight_dtype": "FLOAT_W8A8"}', "fp8", "mapped"),
        ('"transformer": {"weight_dtype": "BFLOAT_16"}', None, "ignored"),
        ('"weight_dtype": "FLOAT_8", "transformer": {"weight_dtype": "NONE"}', "fp8", "ignored"),
        ('"weight_dtype": "FLOAT_8", "transformer": {"weight_dtype": "BFLOAT_16"}', None, "ignored"),
        ('"transformer": {"weight_dtype": "BFLOAT_16"}, "weight_dtype": "FLOAT_8"', None, "ignored"),
        ('"transformer": {"weight_dtype": "NFLOAT_4"}, "weight_dtype": "FLOAT_8"', "nf4", "mapped"),
    ],
)
def test_onetrainers_weight_dtypes(tmp_path: Path, parts: str, weights: str | None, kind: str) -> None:
    text = f'{{"training_method": "LORA", "model_type": "HUNYUAN_VIDEO", "text_encoder": {{"weight_dtype": "FLOAT_8"}}, {parts}}}'
    result = imported(tmp_path, "a.json", text)
    assert result.job.get("memory", {}).get("weights") == weights and line(result, "transformer.weight_dtype").kind == kind
    assert line(result, "text_encoder.weight_dtype").kind == "unsupported"
    assert (result.job.get("compute", {}).get("fp8_products") == "on") == ("W8A8" in parts)


@pytest.mark.parametrize(("modules", "weights"), [("transformer", "fp8"), ("none", None), ("transformer text_encoder", None)])
def test_finetrainers_layerwise_upcasting(tmp_path: Path, modules: str, weights: str | None) -> None:
    text = f"python train.py --model_name wan --training_type lora --layerwise_upcasting_modules {modules} --dataset_config a.json\n"
    result = imported(tmp_path, "a.sh", text)
    assert result.job.get("memory", {}).get("weights") == weights


@pytest.mark.parametrize(
    ("levels", "expert"),
    [({"max_noising_strength": 0.875}, "low"), ({"min_noising_strength": 0.9}, "high"), ({"max_noising_strength": 0.5}, "")],
)
def test_onetrainers_noise_levels_choose_an_expert(tmp_path: Path, levels: dict[str, float], expert: str) -> None:
    result = imported(tmp_path, "a.json", json.dumps({"model_type": "WAN_2_2", "training_method": "LORA", **levels}))
    assert result.job["model"].get("expert", "") == expert and kinds(result, *levels) == {"mapped" if expert else "unsupported"}
