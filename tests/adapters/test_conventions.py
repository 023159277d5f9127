"""LoRA files of every convention mean the same here, and what was written means the same to others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.adapters.loras import RANKS, added, assert_near, assert_same, fused_family, random_lora
from tests.tiny import ALL, Tiny
from tests.tiny.wan import write_tiny_wan
from trainer.adapters.conventions import to_tensors
from trainer.adapters.converting import convert
from trainer.adapters.file import load_lora, save_lora
from trainer.adapters.names import LABELS, find_layer, split_key
from trainer.adapters.reading import open_lora, read_lora
from trainer.adapters.weights import LoraPair, LoraWeights
from trainer.errors import UserError
from trainer.models import FAMILIES, known_family, open_model


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return open_model(write_tiny_wan(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module", params=[*ALL, "fused", "fused, alpha folded"], ids=str)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    tiny = request.param
    if isinstance(tiny, Tiny):
        return open_model(tiny.write(tmp_path_factory.mktemp("family")))
    return fused_family(folds_alpha="folded" in tiny)


@pytest.mark.parametrize("first", LABELS)
def test_every_pair_of_conventions_keeps_the_merged_weights(family: Any, tmp_path: Path, first: Any) -> None:
    weights = random_lora(family)
    assert len({(pair.rank, pair.alpha) for pair in weights.pairs.values()}) == len(RANKS)
    save_lora(weights, family, tmp_path / "first.safetensors", {}, first)
    assert_same(load_lora(tmp_path / "first.safetensors", family), weights)
    for second in LABELS:
        made = convert(tmp_path / "first.safetensors", second, tmp_path / f"{second}.safetensors", family)
        assert_same(load_lora(made.file, family), weights)
        direct = tmp_path / f"direct-{second}.safetensors"
        save_lora(weights, family, direct, {}, second)
        assert load_file(made.file).keys() == load_file(direct).keys()


def test_names_are_those_of_each_convention(tmp_path: Path) -> None:
    family = fused_family()
    modules = ["blocks.1.attn.to_q", "blocks.1.attn.to_out.0", "blocks.1.attn.add_k"]
    expected = {
        "comfyui": ["diffusion_model.stack.1.first", "diffusion_model.stack.1.attn.proj", "diffusion_model.stack.1.text.qk"],
        "diffusers": [f"transformer.{module}" for module in modules],
        "musubi": ["lora_unet_stack_1_first", "lora_unet_stack_1_attn_proj", "lora_unet_stack_1_text_k"],
        "kohya": ["lora_unet_stack_1_first", "lora_unet_stack_1_attn_proj", "lora_unet_stack_1_text_qk"],
    }
    for convention, names in expected.items():
        file = tmp_path / f"{convention}.safetensors"
        save_lora(random_lora(family, modules), family, file, {}, convention)  # type: ignore[arg-type]
        keys = load_file(file).keys()
        assert {split_key(key)[0] for key in keys} == set(names)
        assert any(key.endswith(".alpha") for key in keys) == (convention != "diffusers")
        assert any(".lora_up." in key for key in keys) == (convention in ("musubi", "kohya"))


WRITTEN = {  # a layer -> what other programs call it: ComfyUI's name, diffusion-pipe's where that differs, musubi-tuner's
    "wan": {
        "blocks.0.attn1.to_q": ("blocks.0.self_attn.q", "", "blocks_0_self_attn_q"),
        "blocks.7.attn2.add_k_proj": ("blocks.7.cross_attn.k_img", "", "blocks_7_cross_attn_k_img"),
        "blocks.7.ffn.net.0.proj": ("blocks.7.ffn.0", "", "blocks_7_ffn_0"),
    },
    "hunyuan_video": {
        "transformer_blocks.0.attn.to_q": ("double_blocks.0.img_attn.qkv", "double_blocks.0.img_attn_qkv", "double_blocks_0_img_attn_qkv"),
        "transformer_blocks.1.attn.to_add_out": (
            "double_blocks.1.txt_attn.proj", "double_blocks.1.txt_attn_proj", "double_blocks_1_txt_attn_proj"
        ),
        "transformer_blocks.1.ff.net.0.proj": ("double_blocks.1.img_mlp.0", "double_blocks.1.img_mlp.fc1", "double_blocks_1_img_mlp_fc1"),
        "transformer_blocks.1.norm1_context.linear": (
            "double_blocks.1.txt_mod.lin", "double_blocks.1.txt_mod.linear", "double_blocks_1_txt_mod_linear"
        ),
        "single_transformer_blocks.3.norm.linear": (
            "single_blocks.3.modulation.lin", "single_blocks.3.modulation.linear", "single_blocks_3_modulation_linear"
        ),
        "single_transformer_blocks.3.proj_mlp": ("single_blocks.3.linear1", "", "single_blocks_3_linear1"),
        "context_embedder.token_refiner.refiner_blocks.0.ff.net.2": (
            "txt_in.individual_token_refiner.blocks.0.mlp.2", "txt_in.individual_token_refiner.blocks.0.mlp.fc2",
            "txt_in_individual_token_refiner_blocks_0_mlp_fc2",
        ),
    },
    "hidream": {
        "double_stream_blocks.0.block.attn1.to_q_t": (
            "double_stream_blocks.0.block.attn1.to_q_t", "", "double_stream_blocks_0_block_attn1_to_q_t"
        ),
        "single_stream_blocks.31.block.ff_i.experts.3.w2": (
            "single_stream_blocks.31.block.ff_i.experts.3.w2", "", "single_stream_blocks_31_block_ff_i_experts_3_w2"
        ),
    },
    "hunyuan_video_15": {
        "transformer_blocks.0.attn.to_q": ("double_blocks.0.img_attn.qkv", "double_blocks.0.img_attn_qkv", "double_blocks_0_img_attn_q"),
        "transformer_blocks.1.attn.add_k_proj": (
            "double_blocks.1.txt_attn.qkv", "double_blocks.1.txt_attn_k", "double_blocks_1_txt_attn_k"
        ),
        "transformer_blocks.1.attn.to_out.0": (
            "double_blocks.1.img_attn.proj", "double_blocks.1.img_attn_proj", "double_blocks_1_img_attn_proj"
        ),
        "transformer_blocks.1.ff_context.net.2": (
            "double_blocks.1.txt_mlp.2", "double_blocks.1.txt_mlp.fc2", "double_blocks_1_txt_mlp_fc2"
        ),
        "transformer_blocks.1.norm1.linear": (
            "double_blocks.1.img_mod.lin", "double_blocks.1.img_mod.linear", "double_blocks_1_img_mod_linear"
        ),
        "context_embedder.token_refiner.refiner_blocks.0.attn.to_v": (
            "txt_in.individual_token_refiner.blocks.0.self_attn.qkv", "txt_in.individual_token_refiner.blocks.0.self_attn_qkv",
            "txt_in_individual_token_refiner_blocks_0_self_attn_qkv",
        ),
        "time_embed.timestep_embedder.linear_1": ("time_in.in_layer", "time_in.mlp.0", "time_in_mlp_0"),
    },
    "mochi": {
        "transformer_blocks.0.attn1.to_k": ("blocks.0.attn.qkv_x", "", "blocks_0_attn_qkv_x"),
        "transformer_blocks.47.attn1.add_k_proj": ("blocks.47.attn.qkv_y", "", "blocks_47_attn_qkv_y"),
        "transformer_blocks.7.attn1.to_add_out": ("blocks.7.attn.proj_y", "", "blocks_7_attn_proj_y"),
        "transformer_blocks.7.ff.net.0.proj": ("blocks.7.mlp_x.w1", "", "blocks_7_mlp_x_w1"),
    },
    "cogvideox": {
        "transformer_blocks.0.attn1.to_q": ("blocks.0.q", "", "blocks_0_q"),
        "transformer_blocks.7.attn1.to_out.0": ("blocks.7.attn_out", "", "blocks_7_attn_out"),
        "transformer_blocks.29.ff.net.0.proj": ("blocks.29.ff_proj", "", "blocks_29_ff_proj"),
    },
    "framepack": {
        "transformer_blocks.0.attn.to_q": ("double_blocks.0.img_attn_qkv", "", "transformer_blocks_0_attn_to_q"),
        "single_transformer_blocks.3.proj_mlp": ("single_blocks.3.linear1", "", "single_transformer_blocks_3_proj_mlp"),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_released_families_have_the_names_that_others_read(name: str) -> None:
    family = known_family(name)
    for module, (comfy, pipe, musubi) in WRITTEN[name].items():
        pair = LoraPair(
            torch.randn(1, family.layer_shapes.get(module, (4, 4))[1]), torch.randn(family.layer_shapes.get(module, (4, 4))[0], 1), 1.0
        )
        weights = LoraWeights({module: pair})
        for convention, expected in (
            ("comfyui", f"diffusion_model.{comfy}"),
            ("musubi", f"lora_unet_{musubi}"),
            ("diffusers", f"transformer.{module}"),
        ):
            assert {split_key(key)[0] for key in to_tensors(weights, family, convention)} == {expected}  # type: ignore[arg-type]
        for prefix in ("transformer.", "diffusion_model.", ""):
            assert module in find_layer(f"{prefix}{pipe or comfy}", family.keys)[0].modules


@pytest.mark.parametrize("modules", [["attn.to_k"], ["attn.to_q", "mlp_in"], ["attn.add_k"], ["attn.to_q", "attn.to_k", "attn.to_v"]])
def test_some_parts_of_a_fused_layer(tmp_path: Path, modules: list[str]) -> None:
    family = fused_family()
    weights = random_lora(family, [f"blocks.0.{module}" for module in modules], seed=1)
    for convention in LABELS:
        save_lora(weights, family, tmp_path / f"{convention}.safetensors", {}, convention)
        assert_same(load_lora(tmp_path / f"{convention}.safetensors", family), weights)
    rows = [tensor.shape[0] for key, tensor in load_file(tmp_path / "comfyui.safetensors").items() if ".lora_B." in key]
    assert rows == [20 if modules == ["attn.add_k"] else 42]  # the layer is whole, whatever was trained of it


def test_a_layer_trained_as_fused_is_parted_and_swapped(tmp_path: Path) -> None:
    """By hand, against the rows of its product: one rank may reach several parts."""
    family = fused_family()
    down, up = torch.randn(3, 8), torch.randn(42, 3)
    up[8:14, 1] = 0  # the second part has two ranks only
    swapped_down, swapped_up = torch.randn(2, 12), torch.randn(20, 2)
    tensors = {"stack.0.first.lora_A.weight": down, "stack.0.first.lora_B.weight": up, "stack.0.first.alpha": torch.tensor(6.0)}
    tensors |= {"stack.1.text.qk.lora_A.weight": swapped_down, "stack.1.text.qk.lora_B.weight": swapped_up}
    save_file({f"diffusion_model.{name}": tensor for name, tensor in tensors.items()}, tmp_path / "fused.safetensors")
    found = load_lora(tmp_path / "fused.safetensors", family)
    whole, text = (up.double() @ down.double()) * 2, swapped_up.double() @ swapped_down.double()
    expected = {
        f"blocks.0.{name}": rows
        for name, rows in zip(("attn.to_q", "attn.to_k", "attn.to_v", "mlp_in"), whole.split((8, 6, 8, 20)), strict=True)
    }
    expected |= {"blocks.1.attn.add_q": text[10:], "blocks.1.attn.add_k": text[:10]}
    assert_near(added(found), expected)
    assert found.pairs["blocks.0.attn.to_k"].rank == 2 and found.pairs["blocks.0.attn.to_q"].rank == 3


SPELLINGS = {  # of the halves of a layer
    "peft": ("base_model.model.{}.lora_A.weight", "base_model.model.{}.lora_B.weight"),
    "adapter's name": ("base_model.model.{}.lora_A.default.weight", "base_model.model.{}.lora_B.default.weight"),
    "transformer": ("transformer.{}.lora.down.weight", "transformer.{}.lora.up.weight"),
    "underscore": ("transformer.{}_lora.down.weight", "transformer.{}_lora.up.weight"),
    "linear layer": ("{}.lora_linear_layer.down.weight", "{}.lora_linear_layer.up.weight"),
    "no ending": ("{}.lora_A", "{}.lora_B"),
    "peft of a pipeline": ("base_model.model.transformer.{}.lora_down.weight", "base_model.model.transformer.{}.lora_up.weight"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_other_spellings(wan: Any, tmp_path: Path, spelling: str) -> None:
    weights = LoraWeights({name: LoraPair(pair.down, pair.up, pair.rank) for name, pair in random_lora(wan).pairs.items()})
    down, up = SPELLINGS[spelling]
    tensors = {form.format(name): half for name, pair in weights.pairs.items() for form, half in ((down, pair.down), (up, pair.up))}
    save_file(tensors, tmp_path / "lora.safetensors")
    assert_same(load_lora(tmp_path / "lora.safetensors", wan), weights)


@pytest.mark.parametrize("prefix", ["lora_unet__", "lora_transformer_", "lycoris_"])
def test_flat_names_after_other_beginnings(wan: Any, tmp_path: Path, prefix: str) -> None:
    weights = random_lora(wan)
    save_lora(weights, wan, tmp_path / "kohya.safetensors", {}, "kohya")
    tensors = {key.replace("lora_unet_", prefix): tensor for key, tensor in load_file(tmp_path / "kohya.safetensors").items()}
    save_file(tensors, tmp_path / "other.safetensors")
    assert_same(load_lora(tmp_path / "other.safetensors", wan), weights)


def test_flat_names_of_diffusers_layers(wan: Any, tmp_path: Path) -> None:
    weights = random_lora(wan)
    tensors = {}
    for name, pair in weights.pairs.items():
        flat = f"lora_unet_{name.replace('.', '_')}"
        tensors |= {f"{flat}.lora_down.weight": pair.down, f"{flat}.lora_up.weight": pair.up, f"{flat}.alpha": torch.tensor(pair.alpha)}
    save_file(tensors, tmp_path / "flat.safetensors")
    assert_same(load_lora(tmp_path / "flat.safetensors", wan), weights)


def test_a_flat_name_that_several_layers_have_is_not_guessed() -> None:
    from trainer.models.key_map import KeyMap, Rule

    keys = KeyMap([Rule("a.b_c", "x"), Rule("a_b.c", "y"), Rule("d.e", "z.w")])
    for name in ("lora_unet_a_b_c", "lora_unet_blocks_0", "lora_unet_"):
        with pytest.raises(KeyError):
            find_layer(name, keys)
    assert find_layer("lora_unet_d_e", keys)[0].modules == find_layer("lora_unet_z_w", keys)[0].modules == ("d.e",)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_two_layers_of_a_family_share_a_name(name: str) -> None:
    """In any spelling, flat ones too; and a family is known without any file of a model."""
    family = known_family(name)
    placed = []
    for module in family.layer_shapes:
        try:
            place = family.keys.place(module)
        except KeyError:
            continue  # a layer that its LoRA files have no name for
        placed.append(module)
        for spelled in (f"transformer.{module}", f"lora_unet_{module.replace('.', '_')}"):
            assert find_layer(spelled, family.keys)[0].modules == (module,)
        for spelled in (f"diffusion_model.{place.comfy}", f"lora_unet_{place.comfy.replace('.', '_')}"):
            assert module in find_layer(spelled, family.keys)[0].modules
        original = family.keys.original.place(module).comfy
        assert module in find_layer(f"lora_unet_{original.replace('.', '_')}", family.keys)[0].modules
    assert len(placed) > 50


def test_metadata_is_carried_over_and_the_hash_is_that_of_the_tensors(wan: Any, tmp_path: Path) -> None:
    told = {
        "modelspec.trigger_phrase": "zorp", "modelspec.title": "My LoRA", "modelspec.hash_sha256": "0xold", "sshs_legacy_hash": "old",
        "ss_sd_model_name": "base", "video_trainer.base_model_hash": "abc", "anything": "else", "ss_network_dim": "99",
    }  # fmt: skip
    save_lora(random_lora(wan), wan, tmp_path / "a.safetensors", told, "musubi")
    convert(tmp_path / "a.safetensors", "diffusers", tmp_path / "b.safetensors", wan)
    with safe_open(tmp_path / "b.safetensors", "pt") as file:
        made = file.metadata()
    for name in ("modelspec.trigger_phrase", "modelspec.title", "ss_sd_model_name", "video_trainer.base_model_hash", "anything"):
        assert made[name] == told[name]
    assert made["ss_network_dim"] == "6" and "diffusers" in made["modelspec.implementation"]
    assert made["modelspec.architecture"] == wan.architecture and "sshs_legacy_hash" not in made
    data = (tmp_path / "b.safetensors").read_bytes()
    digest = hashlib.sha256(data[8 + int.from_bytes(data[:8], "little") :]).hexdigest()
    assert made["modelspec.hash_sha256"] == f"0x{digest}" and made["sshs_model_hash"] == digest


def test_halves_stay_half_precision_where_that_loses_nothing(wan: Any, tmp_path: Path) -> None:
    weights = random_lora(wan)
    rounded = {name: LoraPair(pair.down.bfloat16().float(), pair.up.bfloat16().float(), pair.alpha) for name, pair in weights.pairs.items()}
    save_lora(LoraWeights(rounded), wan, tmp_path / "a.safetensors", {}, "comfyui", torch.bfloat16)
    made = convert(tmp_path / "a.safetensors", "kohya", tmp_path / "b.safetensors", wan)
    halves = [tensor for key, tensor in load_file(made.file).items() if not key.endswith(".alpha")]
    assert {tensor.dtype for tensor in halves} == {torch.bfloat16}
    folded = convert(tmp_path / "a.safetensors", "diffusers", tmp_path / "c.safetensors", wan)
    assert_same(load_lora(folded.file, wan), LoraWeights(rounded))


def peft_scales(transformer: Any) -> dict[str, torch.Tensor]:
    """What PEFT itself adds to each layer."""
    layers = {name: layer for name, layer in transformer.named_modules() if hasattr(layer, "lora_A") and hasattr(layer, "get_delta_weight")}
    return {name: layer.get_delta_weight(next(iter(layer.lora_A))).detach().double() for name, layer in layers.items()}


@pytest.mark.parametrize("by_root", [False, True])
def test_alpha_from_the_metadata_that_diffusers_writes(wan: Any, tmp_path: Path, by_root: bool) -> None:
    from peft import LoraConfig

    transformer = wan.load_transformer(torch.float32)
    config = LoraConfig(
        r=4, lora_alpha=6, target_modules=["to_q", "ffn.net.2"], init_lora_weights=False, use_rslora=by_root,
        rank_pattern={"blocks.0.attn1.to_q": 2}, alpha_pattern={"blocks.1.attn2.to_q": 1, "ffn.net.2": 8},
    )  # fmt: skip
    transformer.add_adapter(config)
    transformer.save_lora_adapter(tmp_path, safe_serialization=True, weight_name="lora.safetensors")
    assert "lora_adapter_metadata" in safe_open(tmp_path / "lora.safetensors", "pt").metadata()
    assert_near(added(load_lora(tmp_path / "lora.safetensors", wan)), peft_scales(transformer))


def test_alpha_from_the_configuration_that_peft_writes(wan: Any, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, lora_alpha=6, target_modules=["to_k", "to_out.0"], init_lora_weights=False, alpha_pattern={"to_k": 3})
    model = get_peft_model(wan.load_transformer(torch.float32), config)
    model.save_pretrained(str(tmp_path))
    assert_near(added(load_lora(tmp_path / "adapter_model.safetensors", wan)), peft_scales(model.base_model.model))


@pytest.mark.parametrize("beside", [False, True], ids=["metadata", "adapter_config.json"])
@pytest.mark.parametrize("told", ["self_attn.q", "attn1.to_q"])
@pytest.mark.parametrize("by_root", [False, True])
@pytest.mark.parametrize("layer", ["base_model.model.blocks.{}.self_attn.{}", "diffusion_model.blocks.{}.self_attn.{}"])
def test_peft_alpha_of_layers_in_the_original_names(wan: Any, tmp_path: Path, layer: str, by_root: bool, told: str, beside: bool) -> None:
    tensors = {}
    for block, name in ((0, "q"), (1, "q"), (0, "k")):
        for half, shape in {"A": (4, 32), "B": (32, 4)}.items():
            tensors[f"{layer.format(block, name)}.lora_{half}.weight"] = torch.randn(shape)
    config = json.dumps({"r": 4, "lora_alpha": 16, "use_rslora": by_root, "alpha_pattern": {f"blocks.1.{told}": 2}})
    file = tmp_path / "adapter_model.safetensors"
    save_file(tensors, file, {} if beside else {"lora_adapter_metadata": config})
    if beside:
        (tmp_path / "adapter_config.json").write_text(config, encoding="utf-8")
    scales = {name: pair.scale for name, pair in load_lora(file, wan).pairs.items()}
    assert scales == {
        name: alpha / (2 if by_root else 4)
        for name, alpha in {"blocks.0.attn1.to_q": 16, "blocks.1.attn1.to_q": 2, "blocks.0.attn1.to_k": 16}.items()
    }
    made = convert(file, "comfyui", tmp_path / "made.safetensors", wan).file
    assert {name: pair.scale for name, pair in load_lora(made, wan).pairs.items()} == scales


def test_diffusers_reads_what_we_write(wan: Any, tmp_path: Path) -> None:
    """Its own loader: from its own names layers of unlike ranks too, from musubi's only those of one."""
    from diffusers import WanPipeline

    for convention, ranks in {"diffusers": RANKS, "musubi": ((4, 4.0), (4, 1.5))}.items():
        weights = random_lora(wan, ranks=ranks)
        save_lora(weights, wan, tmp_path / f"{convention}.safetensors", {}, convention)  # type: ignore[arg-type]
        transformer = wan.load_transformer(torch.float32)
        WanPipeline.load_lora_into_transformer(WanPipeline.lora_state_dict(str(tmp_path / f"{convention}.safetensors")), transformer)
        assert_near(peft_scales(transformer), added(weights), 1e-5)


def test_the_convention_is_told(wan: Any, tmp_path: Path) -> None:
    for convention, told in {"comfyui": "comfyui", "diffusers": "diffusers", "musubi": "kohya", "kohya": "kohya"}.items():
        save_lora(random_lora(wan), wan, tmp_path / f"{convention}.safetensors", {}, convention)  # type: ignore[arg-type]
        assert read_lora(open_lora(tmp_path / f"{convention}.safetensors"), wan).convention == told


def test_layers_filled_up_with_zeros_have_their_ranks_again(wan: Any, tmp_path: Path) -> None:
    weights = random_lora(wan)
    save_lora(weights, wan, tmp_path / "lora.safetensors", {}, "diffusers")
    assert {len(tensor) for key, tensor in load_file(tmp_path / "lora.safetensors").items() if ".lora_A." in key} == {6}
    found = load_lora(tmp_path / "lora.safetensors", wan)
    assert {name: pair.rank for name, pair in found.pairs.items()} == {name: pair.rank for name, pair in weights.pairs.items()}


UNFOLLOWED = {  # lora_adapter_metadata -> what the error says
    "[1]": "is not a JSON object",
    "{": "is not a JSON object",
    "[" * 100000: "is not a JSON object",
    '{"lora_alpha": 0}': "above zero",
    '{"lora_alpha": NaN}': "above zero",
    '{"transformer.lora_alpha": "4"}': "above zero",
    '{"use_dora": true}': "DoRA",
    '{"alpha_pattern": {"blocks.*to_q": 2}}': "by their names",
    '{"alpha_pattern": [2]}': "by their names",
}


@pytest.mark.parametrize(("told", "found"), UNFOLLOWED.items(), ids=range(len(UNFOLLOWED)))
def test_a_configuration_that_cannot_be_followed_is_refused(wan: Any, tmp_path: Path, told: str, found: str) -> None:
    name = "transformer.blocks.0.attn1.to_q"
    tensors = {f"{name}.lora_A.weight": torch.ones(2, 32), f"{name}.lora_B.weight": torch.ones(32, 2)}
    save_file(tensors, tmp_path / "lora.safetensors", {"lora_adapter_metadata": told})
    with pytest.raises(UserError, match=found) as caught:
        load_lora(tmp_path / "lora.safetensors", wan)
    assert "lora.safetensors" in str(caught.value)
    save_file(tensors, tmp_path / "lora.safetensors", {"lora_adapter_metadata": '{"lora_alpha": null, "alpha_pattern": {}}'})
    assert load_lora(tmp_path / "lora.safetensors", wan).strengths == [(2, 2.0)]
