"""Every official file is known by its header, made from ComfyUI's own full-size classes; other files are named and refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.models.headers import Shape, with_old_scales, write_header
from trainer.errors import UserError
from trainer.job import ModelSettings
from trainer.models import layouts, variant_names
from trainer.models.assembly import open_single_files
from trainer.models.loading import planned
from trainer.models.single_files import SingleFiles

WIDE = {"dim": 5120, "ffn_dim": 13824, "num_heads": 40, "num_layers": 40, "text_dim": 4096, "freq_dim": 256}
SMALL = {**WIDE, "dim": 1536, "ffn_dim": 8960, "num_heads": 12, "num_layers": 30}
SEES = {"model_type": "i2v", "in_dim": 36}
LTX = {"ltx-video-2b-v0.9": 0, "ltx-video-2b-v0.9.1": 1, "ltx-video-2b-v0.9.5": 2}  # checkpoint -> core's number of its VAE
OFFICIAL: dict[str, dict[str, Any]] = {  # file -> arguments of core's WanModel, as its detection gives them
    "wan2.1_t2v_1.3B_fp16": {**SMALL, "model_type": "t2v"},
    "wan2.1_t2v_14B_fp8_scaled": {**WIDE, "model_type": "t2v"},
    "wan2.1_i2v_480p_14B_fp16": {**WIDE, **SEES},
    "wan2.1_flf2v_720p_14B_fp16": {**WIDE, **SEES, "flf_pos_embed_token_number": 514},
    "wan2.2_ti2v_5B_fp16": {**WIDE, "dim": 3072, "ffn_dim": 14336, "num_heads": 24, "num_layers": 30, "in_dim": 48, "out_dim": 48},
    "wan2.2_t2v_high_noise_14B_fp8_scaled": {**WIDE, "model_type": "t2v"},
    "wan2.2_t2v_low_noise_14B_fp8_scaled": {**WIDE, "model_type": "t2v"},
    "wan2.2_i2v_high_noise_14B_fp8_scaled": {**WIDE, "model_type": "t2v", "in_dim": 36},
    "wan2.2_i2v_low_noise_14B_fp8_scaled": {**WIDE, "model_type": "t2v", "in_dim": 36},
}  # fmt: skip
MODELS = {  # single files -> variant
    ("wan2.1_t2v_1.3B_fp16", ""): "t2v-1.3b",
    ("wan2.1_t2v_14B_fp8_scaled", ""): "t2v-14b",
    ("wan2.1_i2v_480p_14B_fp16", ""): "i2v-14b-480p",
    ("wan2.1_flf2v_720p_14B_fp16", ""): "flf2v-14b",
    ("wan2.2_ti2v_5B_fp16", ""): "ti2v-5b",
    ("wan2.2_t2v_high_noise_14B_fp8_scaled", "wan2.2_t2v_low_noise_14B_fp8_scaled"): "t2v-a14b",
    ("wan2.2_i2v_high_noise_14B_fp8_scaled", "wan2.2_i2v_low_noise_14B_fp8_scaled"): "i2v-a14b",
}
LAYOUTS = layouts()


def shapes_of(module: torch.nn.Module) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def wan_shapes(**arguments: Any) -> dict[str, Shape]:
    operations = import_module("comfy.ops").disable_weight_init
    return shapes_of(import_module("comfy.ldm.wan.model").WanModel(device="meta", operations=operations, **arguments))


@pytest.fixture(scope="module")
def official(core: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each official name: full-size headers over no bytes."""
    folder, root = tmp_path_factory.mktemp("official"), Path(str(core.__path__[0]))
    for name, arguments in OFFICIAL.items():
        shapes = wan_shapes(**arguments)
        shapes, own = with_old_scales(shapes) if "scaled" in name else (shapes, {})
        write_header(folder / f"{name}.safetensors", shapes, own=own)
    operations = import_module("comfy.ops").disable_weight_init
    coder = import_module("comfy.ldm.lightricks.vae.causal_video_autoencoder").VideoVAE
    text_encoder = import_module("comfy.text_encoders.t5").T5
    with torch.device("meta"):
        vae = {"z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2, "attn_scales": [], "temperal_downsample": [False, True, True]}
        first = import_module("comfy.ldm.wan.vae").WanVAE(dim=96, dropout=0.0, **vae)
        second = import_module("comfy.ldm.wan.vae2_2").WanVAE(**{**vae, "dim": 160, "z_dim": 48, "dropout": 0.0})
        vision = import_module("comfy.clip_vision").ClipVisionModel(str(root / "clip_vision_config_h.json")).model
        ltx = import_module("comfy.ldm.lightricks.model").LTXVModel(device="meta", operations=operations)
        checkpoints = {name: {"model.diffusion_model.": ltx, "vae.": coder(version=version)} for name, version in LTX.items()}
        configs = (json.loads((root / f"text_encoders/{name}_config_xxl.json").read_text()) for name in ("t5", "umt5"))
        t5, umt5 = (shapes_of(text_encoder(config, torch.float16, "meta", operations)) for config in configs)
    for name, parts in checkpoints.items():
        shapes = {prefix + own: shape for prefix, part in parts.items() for own, shape in shapes_of(part).items()}
        write_header(folder / f"{name}.safetensors", shapes, "BF16")
    write_header(folder / "wan_2.1_vae.safetensors", shapes_of(first), "BF16")
    write_header(folder / "wan2.2_vae.safetensors", shapes_of(second), "F32")
    write_header(folder / "clip_vision_h.safetensors", shapes_of(vision))
    write_header(folder / "t5xxl_fp16.safetensors", t5)
    tokenizer = {"spiece_model": (4_548_313,)}
    write_header(folder / "umt5_xxl_fp16.safetensors", {**umt5, **tokenizer}, own={"spiece_model": "U8"})
    shapes, own = with_old_scales(umt5)
    write_header(folder / "umt5_xxl_fp8_e4m3fn_scaled.safetensors", {**shapes, **tokenizer}, own={**own, "spiece_model": "U8"})
    return folder


def opened(folder: Path, **names: str | list[str]) -> SingleFiles:
    def path(name: str) -> str:
        return str(folder / f"{name}.safetensors") if name else ""

    settings = {slot: [path(n) for n in name] if isinstance(name, list) else path(name) for slot, name in names.items()}
    return open_single_files(ModelSettings(**settings), LAYOUTS)[1]  # type: ignore[arg-type]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model[0])
def test_official_files_are_known_and_fit(official: Path, model: tuple[str, str]) -> None:
    from diffusers import AutoencoderKLWan, WanTransformer3DModel
    from transformers import CLIPVisionModel, UMT5EncoderModel

    first, second = model
    scaled = "scaled" in first
    image = {"image_encoder": "clip_vision_h"} if "i2v_480p" in first or "flf2v" in first else {}
    files = opened(
        official, transformer=first, transformer_low=second, vae="wan2.2_vae" if "5B" in first else "wan_2.1_vae",
        text_encoders=["umt5_xxl_fp8_e4m3fn_scaled" if scaled else "umt5_xxl_fp16"], **image,
    )  # fmt: skip
    assert files.variant == MODELS[model]
    layout, kinds = LAYOUTS["wan"], {
        "transformer": WanTransformer3DModel, "transformer_2": WanTransformer3DModel, "vae": AutoencoderKLWan,
        "text_encoder": UMT5EncoderModel, "image_encoder": CLIPVisionModel,
    }  # fmt: skip
    parts = [part for part in kinds if files.has(part)]
    assert len(parts) == 3 + bool(second) + bool(image)
    for part in parts:
        assert files.config(part) == layout.config(files.variant, part), part
        planned(kinds[part], files.config(part), files._parts[part], strict=part.startswith("transformer"))


@pytest.mark.parametrize("name", LTX)
def test_official_checkpoints_are_known_and_fit(official: Path, name: str) -> None:
    from diffusers import AutoencoderKLLTXVideo, LTXVideoTransformer3DModel
    from transformers import T5EncoderModel

    files = opened(official, transformer=name, text_encoders=["t5xxl_fp16"])
    assert files.variant == name.replace("ltx-video-", "").replace("-v", "-")
    kinds = {"transformer": LTXVideoTransformer3DModel, "vae": AutoencoderKLLTXVideo, "text_encoder": T5EncoderModel}
    for part, kind in kinds.items():
        assert files.config(part) == LAYOUTS["ltx_video"].config(files.variant, part), part
        planned(kind, files.config(part), files._parts[part], strict=part == "transformer")


def test_the_variants_offered_are_those_of_all_layouts() -> None:
    assert variant_names() == sorted({variant for layout in layouts().values() for variant in layout.variants})


def test_of_variants_that_look_alike_one_can_be_chosen(official: Path) -> None:
    file = str(official / "wan2.1_i2v_480p_14B_fp16.safetensors")
    for variant in ("i2v-14b-720p", "i2v-14b-480p"):
        assert open_single_files(ModelSettings(transformer=file, variant=variant), LAYOUTS)[1].variant == variant
    with pytest.raises(UserError, match=r"model\.variant: 't2v-14b' does not fit .* It can be i2v-14b-480p, i2v-14b-720p"):
        open_single_files(ModelSettings(transformer=file, variant="t2v-14b"), LAYOUTS)


def test_variants_that_cannot_be_trained_are_named(core: ModuleType, tmp_path: Path) -> None:
    shapes = wan_shapes(**{**SMALL, "model_type": "t2v"})
    file = write_header(tmp_path / "x.safetensors", {**shapes, "vace_patch_embedding.weight": (1536, 96, 1, 2, 2)})
    with pytest.raises(UserError, match=r"model\.transformer: '.*x\.safetensors' is a Wan diffusion model, VACE, which cannot be trained"):
        open_single_files(ModelSettings(transformer=str(file)), LAYOUTS)
    shapes["patch_embedding.weight"] = (1536, 20, 1, 2, 2)
    file = write_header(tmp_path / "y.safetensors", shapes)
    with pytest.raises(UserError, match=r"of a variant that is not known here \(.*in_channels 20.*Known are .*t2v-1\.3b"):
        open_single_files(ModelSettings(transformer=str(file)), LAYOUTS)
