"""GGUF files as the frozen base: unpacked to what the package gguf itself makes of them, kept as they are, or their reader asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tiny.single_files import read, write_single_files
from tests.tiny.wan import write_tiny_wan
from trainer.errors import UserError
from trainer.job import ModelSettings
from trainer.memory.frozen import FrozenLinear
from trainer.models import open_model
from trainer.models.tensor_file import open_tensors


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelSettings:
    folder = write_tiny_wan(tmp_path_factory.mktemp("tiny") / "folder")
    return write_single_files(folder, folder.parent / "files")


def write_gguf(file: Path, tensors: dict[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    """Matrices of 32 columns and more in `kind`, the others in F16, those of five sides flattened as converters do; what they stand for."""
    gguf = pytest.importorskip("gguf")
    writer, meant = gguf.GGUFWriter(str(file), "wan"), dict[str, torch.Tensor]()
    for name, tensor in tensors.items():
        values = tensor.float().numpy()
        if values.ndim > 4:
            writer.add_array(f"comfy.gguf.orig_shape.{name}", list(values.shape))
            values = values.reshape(values.shape[0], -1)
        chosen = kind if values.ndim == 2 and values.shape[1] % 32 == 0 and name.startswith("blocks.") else "F16"
        form = gguf.GGMLQuantizationType[chosen]
        data = values.astype(np.float16) if chosen == "F16" else gguf.quants.quantize(values, form)
        writer.add_tensor(name, data, raw_dtype=form)
        back = data.astype(np.float32) if chosen == "F16" else gguf.quants.dequantize(data, form)
        meant[name] = torch.from_numpy(back.copy()).reshape(tensor.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return meant


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1"])
def test_unpacked_and_kept_equal_what_gguf_makes_of_it(files: ModelSettings, tmp_path: Path, kind: str) -> None:
    from safetensors.torch import save_file

    tensors, _ = read(files.transformer)
    meant = write_gguf(tmp_path / "x.gguf", tensors, kind)
    save_file({name: tensor.contiguous() for name, tensor in meant.items()}, tmp_path / "meant.safetensors")
    wanted = open_model(files.model_copy(update={"transformer": str(tmp_path / "meant.safetensors")})).load_transformer(torch.float32)
    given = files.model_copy(update={"transformer": str(tmp_path / "x.gguf")})
    kept, unpacked = (
        open_model(given).load_transformer(torch.float32, weights="as stored" if keep else "unquantized") for keep in (True, False)
    )
    for name, tensor in wanted.state_dict().items():
        torch.testing.assert_close(unpacked.state_dict()[name], tensor, rtol=1e-6, atol=1e-7)
    layers = {name: layer for name, layer in kept.named_modules() if isinstance(layer, FrozenLinear)}
    assert len(layers) == 20
    for name, layer in layers.items():
        torch.testing.assert_close(layer.weight, wanted.get_submodule(name).weight, rtol=1e-6, atol=1e-7)
        assert layer.weight_data.nbytes < layer.weight.numel() * 1.1


def test_a_file_that_is_cut_off(files: ModelSettings, tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", read(files.transformer)[0], "Q8_0")
    whole = (tmp_path / "x.gguf").read_bytes()
    for part in (whole[:-2000], whole[:300]):
        (tmp_path / "x.gguf").write_bytes(part)
        with pytest.raises(UserError, match=r"x\.gguf: is not a readable GGUF file: .*Download it again"):
            open_tensors(tmp_path / "x.gguf")


@pytest.mark.parametrize(("shape", "sizes"), [((3, 64), (4, 32)), (None, (0, 32)), ((0, 64), (4, 32))])
def test_shapes_that_do_not_hold_the_numbers(tmp_path: Path, shape: tuple[int, ...] | None, sizes: tuple[int, int]) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(tmp_path / "x.gguf"), "wan")
    writer.add_tensor("a.weight", np.ones(sizes, np.float32))
    if shape:
        writer.add_array("comfy.gguf.orig_shape.a.weight", list(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UserError, match=r"x\.gguf: is not a readable GGUF file: 'a\.weight' of .* numbers cannot be"):
        open_tensors(tmp_path / "x.gguf")


def test_its_reader_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(60))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match=r'Python package gguf: is .*Run: ".*" -m pip install "gguf'):
        open_tensors(tmp_path / "x.gguf")
