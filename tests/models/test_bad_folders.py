"""Diffusers folders that are damaged or put together wrongly: refused on opening, by their headers and configurations alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tiny.wan import write_tiny_wan
from trainer.errors import UserError
from trainer.models import open_model
from trainer.models.files import DiffusersFolder

TRANSFORMER, TEXT = "transformer/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"
VAE, SCHEDULER = "vae/diffusion_pytorch_model.safetensors", "scheduler/scheduler_config.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_wan(tmp_path_factory.mktemp("tiny") / "folder")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


def told(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def altered(file: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as refused:
        open_model(folder)
    return str(refused.value)


@pytest.mark.parametrize(
    ("file", "tensor"),
    [
        (TEXT, "encoder.block.0.layer.0.SelfAttention.q.weight"),
        (TRANSFORMER, "blocks.0.attn1.to_q.weight"),
        (VAE, "decoder.conv_in.bias"),
    ],
)
def test_a_part_that_lacks_a_tensor(folder: Path, file: str, tensor: str) -> None:
    altered(folder / file, lambda tensors: tensors.pop(tensor))
    part = file.partition("/")[0]
    assert refusal(folder) == (
        f"{folder}, {part}: lacks 1 of this model's tensors (such as '{tensor}'). Download this part of the model again."
    )


def test_the_loader_itself_refuses_what_it_would_fill_with_random_numbers(folder: Path) -> None:
    from transformers import UMT5EncoderModel

    altered(folder / TEXT, lambda tensors: tensors.pop("encoder.block.0.layer.0.SelfAttention.q.weight"))
    with pytest.raises(UserError, match="text_encoder: lacks 1 of this model's tensors"):
        DiffusersFolder(folder).load("text_encoder", UMT5EncoderModel, torch.float32)


@pytest.mark.parametrize(
    ("layers", "found"),
    [(4, "transformer: lacks 54 of this model's tensors"), (1, "transformer: has 27 tensors of layers that its configuration does not")],
)
def test_a_configuration_of_another_number_of_layers(folder: Path, layers: int, found: str) -> None:
    told(folder / "transformer/config.json", num_layers=layers)
    assert found in refusal(folder)


def test_a_text_encoder_with_more_layers_than_its_configuration(folder: Path) -> None:
    altered(
        folder / TEXT,
        lambda tensors: tensors.update({n.replace("block.0", "block.9"): t.clone() for n, t in tensors.items() if "block.0" in n}),
    )
    assert "text_encoder: has 10 tensors of layers that its configuration does not have (such as 'encoder.block.9." in refusal(folder)


def test_tensors_of_another_shape_than_the_configuration(folder: Path) -> None:
    told(folder / "transformer/config.json", ffn_dim=128)
    assert "transformer: has 'blocks.0.ffn.net.0.proj.bias' of 64, and by its configuration it is 128" in refusal(folder)


def test_another_parts_file(folder: Path) -> None:
    shutil.copy(folder / TEXT, folder / VAE)
    assert "vae: lacks" in refusal(folder)


def test_what_other_parts_of_a_release_hold_is_left_out(folder: Path) -> None:
    altered(
        folder / TEXT, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(2, 2), "decoder.block.0.x.weight": torch.zeros(2)})
    )
    altered(folder / TRANSFORMER, lambda tensors: tensors.update({"blocks.0.attn2.norm_added_q.weight": torch.zeros(2)}))
    open_model(folder)


def test_a_loader_that_leaves_tied_embeddings_random_does_no_harm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As UMT5's of transformers 5.0 to 5.2 does for a configuration such as that of Wan's release."""
    from transformers import UMT5EncoderModel

    config = json.loads((folder / "text_encoder/config.json").read_text(encoding="utf-8"))
    (folder / "text_encoder/config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}), encoding="utf-8")
    load = UMT5EncoderModel.from_pretrained.__func__

    def untied(cls: Any, *arguments: Any, **options: Any) -> Any:
        model, info = load(cls, *arguments, **options)
        embeddings = model.encoder.embed_tokens
        embeddings.weight = torch.nn.Parameter(torch.randn_like(model.shared.weight))
        return model, {**info, "missing_keys": {"encoder.embed_tokens.weight"}}

    monkeypatch.setattr(UMT5EncoderModel, "from_pretrained", classmethod(untied))
    encoder: Any = open_model(folder).load_text_encoder(torch.float32).module
    assert torch.equal(encoder.encoder.embed_tokens.weight, load_file(folder / "text_encoder/model.safetensors")["shared.weight"])


def test_an_index_that_omits_a_shards_tensors(folder: Path) -> None:
    from diffusers import WanTransformer3DModel

    model = WanTransformer3DModel.from_pretrained(folder / "transformer")
    (folder / TRANSFORMER).unlink()
    model.save_pretrained(folder / "transformer", max_shard_size="60KB")
    index = folder / "transformer/diffusion_pytorch_model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    open_model(folder)
    told(index, weight_map={name: file for name, file in places.items() if file != max(places.values())})
    assert "transformer: lacks" in refusal(folder)
    for names in (5, None):
        told(index, weight_map=dict.fromkeys(places, names))
        assert f"{index}: is not an index of files." in refusal(folder)
    index.unlink()
    assert "has neither diffusion_pytorch_model.safetensors nor" in refusal(folder)


@pytest.mark.parametrize("file", ["model_index.json", "transformer/config.json", "text_encoder/config.json", SCHEDULER])
@pytest.mark.parametrize("data", [b'{"a": ', b"[1]", b'{"a": "\xff\xfe"}', b"[" * 200_000], ids=["cut off", "list", "not UTF-8", "nested"])
def test_json_that_cannot_be_read(folder: Path, file: str, data: bytes) -> None:
    (folder / file).write_bytes(data)
    assert f"{folder / file}: is not a readable JSON file: " in refusal(folder)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("model_index.json", {"boundary_ratio": "x"}),
        (SCHEDULER, {"flow_shift": "x"}),
        ("transformer/config.json", {"patch_size": None}),
        ("transformer/config.json", {"num_layers": "x"}),
        ("vae/config.json", {"z_dim": [1]}),
        ("vae/config.json", {"latents_mean": 3}),
    ],
)
def test_values_of_another_kind(folder: Path, file: str, changes: dict[str, object]) -> None:
    told(folder / file, **changes)
    assert str(folder) in refusal(folder)


def test_a_shift_below_zero(folder: Path) -> None:
    told(folder / SCHEDULER, flow_shift=-3)
    assert f"{folder}, scheduler: gives a shift of -3, and it must be above zero." in refusal(folder)


def test_a_text_encoder_of_another_width(folder: Path) -> None:
    told(folder / "text_encoder/config.json", d_model=24)
    assert f"{folder}, text_encoder: has d_model 24, and transformer needs 16 (text_dim). Use the one of the same" in refusal(folder)
