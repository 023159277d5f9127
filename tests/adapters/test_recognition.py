"""A LoRA is told from its layers; what belongs elsewhere, or is no LoRA, is refused with what was found, expected and to do."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.adapters.loras import fused_family, random_lora
from trainer.adapters.converting import convert
from trainer.adapters.file import load_lora, save_lora
from trainer.adapters.names import LABELS
from trainer.adapters.reading import open_lora
from trainer.adapters.recognition import candidates, family_of, require_fit
from trainer.adapters.weights import LoraPair, LoraWeights
from trainer.errors import UserError
from trainer.models import FAMILIES, known_family

NAME = "diffusion_model.blocks.0.self_attn.q"
LIKE_NAMED = (  # a LoRA's family, and one that has layers of all its names, in other sizes
    ("hunyuan_video", "hunyuan_video_15"), ("framepack", "hunyuan_video_15"), ("hunyuan_video_15", "hunyuan_video"),
)  # fmt: skip


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    return {name: known_family(name) for name in FAMILIES}


def small_lora(family: Any) -> LoraWeights:
    """Of one rank on the layers of the first block and a few more, in the sizes of the family's main release."""
    modules = [module for module in family.layer_shapes if family.spec.adapter_targets and ".0." in f".{module}."][:40]
    return random_lora(family, [m for m in modules if _placed(family, m)], ranks=((1, 1.0),))


def _placed(family: Any, module: str) -> bool:
    try:
        family.keys.place(module)
    except KeyError:
        return False
    return True


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("convention", LABELS)
def test_each_family_is_told_from_names_and_sizes(known: dict[str, Any], tmp_path: Path, name: str, convention: Any) -> None:
    save_lora(small_lora(known[name]), known[name], tmp_path / "lora.safetensors", {}, convention)
    raw = open_lora(tmp_path / "lora.safetensors")
    found = [candidate.family.spec.family for candidate in candidates(raw.sizes) if candidate.fits]
    assert name in found
    if len(found) == 1:
        assert family_of(raw).spec.family == name


def test_a_lora_of_another_family_is_refused_by_both_names(known: dict[str, Any], tmp_path: Path) -> None:
    for name, family in known.items():
        save_lora(small_lora(family), family, tmp_path / f"{name}.safetensors", {}, "comfyui")
        for other, target in known.items():
            theirs = [found.family.spec.family for found in candidates(open_lora(tmp_path / f"{name}.safetensors").sizes)]
            if other in theirs:
                continue
            with pytest.raises(UserError) as caught:
                load_lora(tmp_path / f"{name}.safetensors", target)
            text = str(caught.value)
            if (name, other) in LIKE_NAMED:
                found, _, fits = text.partition("It fits ")
                assert f"{name}.safetensors: has a layer of another size than {other}'s" in found and name in fits
                continue
            assert f"{name}.safetensors: is not a {other} LoRA" in text and name in text.split("It is one of")[1]
            assert target.keys.prefix in text and f"Choose a LoRA trained for {other}" in text


def test_layers_of_like_names_are_told_by_their_sizes(known: dict[str, Any], tmp_path: Path) -> None:
    theirs, ours = known["cogvideox"], known["ltx_video"]
    weights = random_lora(theirs, [f"transformer_blocks.0.attn1.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0")])
    save_lora(weights, theirs, tmp_path / "lora.safetensors", {}, "diffusers")
    assert family_of(open_lora(tmp_path / "lora.safetensors")).spec.family == "cogvideox"
    found = load_lora(tmp_path / "lora.safetensors", ours)
    with pytest.raises(UserError, match=r"lora.safetensors: .* is for a layer of .* this model's is .* It fits cogvideox 2b-t2v\."):
        require_fit(found, ours, str(tmp_path / "lora.safetensors"))
    with pytest.raises(UserError, match="has 4 layers this model lacks") as caught:
        require_fit(found, known["wan"], "lora")
    assert "cogvideox" in str(caught.value)
    other = {name: LoraPair(torch.ones(1, 7), torch.ones(7, 1), 1.0) for name in weights.pairs}
    save_lora(LoraWeights(other), theirs, tmp_path / "other.safetensors", {}, "diffusers")
    with pytest.raises(UserError, match="ltx_video and cogvideox and mochi have alike"):
        family_of(open_lora(tmp_path / "other.safetensors"))


def test_another_size_is_no_other_family(known: dict[str, Any], tmp_path: Path) -> None:
    wan = known["wan"]
    pairs = {"blocks.0.attn1.to_q": LoraPair(torch.randn(2, 1536), torch.randn(1536, 2), 2.0)}
    save_lora(LoraWeights(pairs), wan, tmp_path / "lora.safetensors", {}, "musubi")
    assert family_of(open_lora(tmp_path / "lora.safetensors")).spec.family == "wan"
    assert convert(tmp_path / "lora.safetensors", "comfyui", tmp_path / "made.safetensors").family == "wan"


def test_no_known_family(tmp_path: Path) -> None:
    save_lora(random_lora(fused_family()), fused_family(), tmp_path / "lora.safetensors", {})
    with pytest.raises(UserError, match=r"lora.safetensors: is a LoRA of no known family .*stack.*Families: "):
        convert(tmp_path / "lora.safetensors", "musubi", tmp_path / "made.safetensors")
    with pytest.raises(UserError, match="Its family is not known here"):
        load_lora(tmp_path / "lora.safetensors", known_family("wan"))


def test_parts_of_another_size_need_the_models_folder(tmp_path: Path) -> None:
    family = fused_family()
    pair = LoraPair(torch.randn(2, 8), torch.randn(9, 2), 2.0)
    with pytest.raises(UserError, match=r"another size.*folder"):
        save_lora(LoraWeights({"blocks.0.attn.to_k": pair}), family, tmp_path / "lora.safetensors", {})
    save_file({"stack.0.first.lora_A": torch.ones(2, 8), "stack.0.first.lora_B": torch.ones(44, 2)}, tmp_path / "fused.safetensors")
    with pytest.raises(UserError, match=r"layer of another size.*stack.0.first of 44x8"):
        load_lora(tmp_path / "fused.safetensors", family)
    save_file({"stack.7.first.lora_A": torch.ones(2, 8), "stack.7.first.lora_B": torch.ones(42, 2)}, tmp_path / "block.safetensors")
    with pytest.raises(UserError, match="layer of another size"):
        load_lora(tmp_path / "block.safetensors", family)


def test_a_fused_layer_of_another_family_is_told_by_its_size(known: dict[str, Any], tmp_path: Path) -> None:
    """Of two that have it in one size both are told; of zeros alone nothing is made."""
    theirs = known["hunyuan_video"]
    save_lora(random_lora(theirs, ["transformer_blocks.0.attn.to_q"]), theirs, tmp_path / "lora.safetensors", {})
    ours = SimpleNamespace(
        spec=SimpleNamespace(family="other"), keys=theirs.keys, layer_shapes=dict.fromkeys(theirs.layer_shapes, (2048, 2048))
    )
    with pytest.raises(UserError, match=r"another size than other's: .* of 9216x3072. It fits hunyuan_video"):
        load_lora(tmp_path / "lora.safetensors", ours)  # type: ignore[arg-type]
    zero = {key: tensor * 0 if ".lora_B." in key else tensor for key, tensor in load_file(tmp_path / "lora.safetensors").items()}
    save_file(zero, tmp_path / "zero.safetensors")
    with pytest.raises(UserError, match="all zero"):
        convert(tmp_path / "zero.safetensors", "musubi", tmp_path / "made.safetensors", theirs)


def whole(rank: int = 2) -> dict[str, torch.Tensor]:
    return {f"{NAME}.lora_A.weight": torch.ones(rank, 8), f"{NAME}.lora_B.weight": torch.ones(8, rank), f"{NAME}.alpha": torch.tensor(1.0)}


BAD = {
    "no LoRA": ({"blocks.0.weight": torch.ones(2)}, "is no LoRA: 1 of its 4 tensors"),
    "nothing": ({}, "is no LoRA"),
    "LoHa": ({f"{NAME}.hada_w1_a": torch.ones(2)}, "holds LoHa"),
    "LoKr": ({f"{NAME}.lokr_w1": torch.ones(2)}, "holds LoKr"),
    "DoRA": ({f"{NAME}.dora_scale": torch.ones(2)}, "holds DoRA"),
    "PEFT's DoRA": ({"transformer.blocks.0.attn1.to_q.lora_magnitude_vector": torch.ones(2)}, "holds DoRA"),
    "whole weights": ({f"{NAME}.diff_b": torch.ones(2)}, "weights stored whole"),
    "biases": ({f"{NAME}.lora_B.bias": torch.ones(2)}, "LoRA with biases"),
    "convolution": ({f"{NAME}.lora_mid.weight": torch.ones(2, 2, 1, 1)}, "LoRA of convolutions"),
    "text encoder": ({"lora_te_encoder.weight": torch.ones(2)}, "text encoder"),
    "another layer": ({"diffusion_model.blocks.0.self_attn.z.lora_A.weight": torch.ones(2, 8)}, "incomplete"),
    "two of one": ({f"{NAME}.lora_down.weight": torch.ones(2, 8)}, "holds layers twice"),
    "two names of one": (
        {f"transformer.blocks.0.attn1.to_q.lora_{half}.weight": torch.ones(2, 2) for half in "AB"},
        r"holds the layer blocks.0.attn1.to_q twice",
    ),
    "two experts": (
        {f"transformer{n}.blocks.1.attn1.to_q.lora_{half}.weight": torch.ones(2, 2) for n in ("", "_2") for half in "AB"}, "twice"
    ),
    "no ranks": ({f"{NAME}.lora_A.weight": torch.ones(0, 8), f"{NAME}.lora_B.weight": torch.ones(8, 0)}, "incomplete"),
    "whole numbers": ({f"{NAME}.lora_A.weight": torch.ones(2, 8, dtype=torch.int32)}, "incomplete"),
    "convolution's shape": ({f"{NAME}.lora_A.weight": torch.ones(2, 8, 1, 1)}, "incomplete"),
    "unlike ranks": ({f"{NAME}.lora_A.weight": torch.ones(3, 8)}, "unlike ranks"),
    "not finite": ({f"{NAME}.lora_A.weight": torch.full((2, 8), float("nan"))}, "not finite"),
    "alpha not a number": ({f"{NAME}.alpha": torch.tensor(float("nan"))}, "alpha nan"),
    "infinite alpha": ({f"{NAME}.alpha": torch.tensor(float("inf"))}, "alpha inf"),
    "a name of dots": ({"....lora_A.weight": torch.ones(2, 8), "....lora_B.weight": torch.ones(8, 2)}, "unknown"),
    "an empty name": ({"diffusion_model..lora_A.weight": torch.ones(2, 8), "diffusion_model..lora_B.weight": torch.ones(8, 2)}, "unknown"),
    "a huge number": (
        {f"diffusion_model.blocks.{'9' * 5000}.self_attn.z.lora_{half}.weight": torch.ones(2, 2) for half in "AB"}, "unknown"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_plain_lora_is_refused_by_name(known: dict[str, Any], tmp_path: Path, kind: str) -> None:
    tensors, found = BAD[kind]
    save_file({**(whole() if tensors else {}), **tensors}, tmp_path / "lora.safetensors")
    with pytest.raises(UserError, match=found) as caught:
        load_lora(tmp_path / "lora.safetensors", known["wan"])
    problem = caught.value.problems[0]
    assert str(tmp_path / "lora.safetensors") in problem.where and problem.cure


def test_damaged_files_are_refused_by_name(known: dict[str, Any], tmp_path: Path) -> None:
    save_file(whole(), tmp_path / "whole.safetensors")
    data = (tmp_path / "whole.safetensors").read_bytes()
    assert load_file(tmp_path / "whole.safetensors")
    for number, broken in enumerate(
        (b"", b"\0" * 8, data[:-1], data[:40], struct.pack("<Q", 2**63) + data[8:], b"\x80\x04K\x01.", data[8:])
    ):
        file = tmp_path / f"{number}.safetensors"
        file.write_bytes(broken)
        with pytest.raises(UserError, match=f"{number}.safetensors: is not a readable"):
            load_lora(file, known["wan"])
    for name in (tmp_path, Path("a\0b")):
        with pytest.raises(UserError, match="is not a readable"):
            load_lora(name, known["wan"])


def huge(header: dict[str, Any]) -> bytes:
    """The header of a file of a GiB, of which a test writes no more."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


UNREAD = {  # a file of a GiB -> what is said of it by its beginning
    "base model": (huge({"blocks.0.x.weight": {"dtype": "F32", "shape": [1 << 18, 1 << 10], "data_offsets": [0, 1 << 30]}}), "is no LoRA"),
    "half a LoRA": (
        huge({f"{NAME}.lora_A.weight": {"dtype": "F32", "shape": [1 << 18, 1 << 10], "data_offsets": [0, 1 << 30]}}), "incomplete"
    ),
    "LoHa": (huge({f"{NAME}.hada_w1_a": {"dtype": "F32", "shape": [1 << 28], "data_offsets": [0, 1 << 30]}}), "holds LoHa"),
    "pickle": (b"PK\3\4" + b"\xff" * 30, "begins otherwise"),
    "GGUF": (b"GGUF" + b"\xff" * 30, "begins otherwise"),
    "damaged header": (struct.pack("<Q", 1 << 20) + b"[" * (1 << 20), "is not a readable"),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNREAD)
def test_a_large_file_that_is_no_lora_is_not_read(
    known: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    start, found = UNREAD[kind]
    file = tmp_path / "big.safetensors"
    with file.open("wb") as out:
        out.write(start)
        out.truncate((len(start) if start[:2] not in (b"PK", b"GG") else 0) + (1 << 30))

    def read(*_: object) -> bytes:
        raise AssertionError("the whole file was read")

    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(UserError, match=found) as caught:
        load_lora(file, known["wan"])
    problem = caught.value.problems[0]
    assert problem.where == str(file) and "LoRA" in problem.cure + problem.found and "gguf" not in problem.cure
