"""What a plan counts of weights is what loading leaves of a file's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.memory.measured import family_of
from tests.models.test_gguf import write_gguf
from tests.tiny.single_files import quantised, read, write_single_files
from tests.tiny.wan import write_tiny_wan
from trainer.job import AdapterSettings
from trainer.memory.card import CARDS
from trainer.memory.choices import Choices
from trainer.memory.examples import shapes_at
from trainer.memory.forms import row_bytes
from trainer.memory.frozen import FrozenLinear
from trainer.memory.prediction import Micro, Predictor
from trainer.memory.quantize import quantized
from trainer.memory.rehearsal import prepared
from trainer.memory.stored_weights import StoredWeights, stored_weights
from trainer.memory.twin import twin_of
from trainer.models import open_model
from trainer.models.base import ModelFamily


def predictor(family: ModelFamily, dtype: torch.dtype) -> Predictor:
    micros = [Micro(shapes_at(family, (5, 32, 32)))]
    return Predictor(family, AdapterSettings(rank=4), micros, CARDS["H200"], dtype, stored=stored_weights(family, dtype))


def test_a_file_of_bf16_is_loaded_and_counted_in_fp32(tmp_path: Path) -> None:
    """It was taken for fp8, as its weights take half of what the run's do."""
    folder = write_tiny_wan(tmp_path / "folder")
    for path in (folder / "transformer").glob("*.safetensors"):
        save_file({name: tensor.bfloat16() for name, tensor in load_file(path).items()}, path, {"format": "pt"})
    family = open_model(folder)
    assert {parameter.dtype for parameter in family.load_transformer(torch.float32).parameters()} == {torch.float32}
    assert stored_weights(family, torch.float32) is None
    held = sum(4 * tensor.numel() for tensor in (*family.skeleton.parameters(), *family.skeleton.buffers()))
    assert predictor(family, torch.float32).predict(Choices()).weights == held


@pytest.mark.parametrize("layout", ["old", "plain", "gguf.Q8_0"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_quantised_weights_are_counted_as_they_stay(layout: str, dtype: torch.dtype, tmp_path: Path) -> None:
    files = write_single_files(write_tiny_wan(tmp_path / "folder"), tmp_path / "files")
    made = tmp_path / f"x.{'gguf' if layout.startswith('gguf') else 'safetensors'}"
    if layout.startswith("gguf"):
        write_gguf(made, read(files.transformer)[0], layout.removeprefix("gguf."))
    else:
        quantised(files.transformer, made, layout)
    family = open_model(files.model_copy(update={"transformer": str(made)}))
    known = predictor(family, dtype)
    assert known.form(Choices()) == (layout if layout.startswith("gguf") else "float8_e4m3fn")
    stored, unpacked = (known.predict(Choices(weights=weights)) for weights in ("as stored", "unquantized"))
    layers = [layer for layer in family.load_transformer(dtype).modules() if isinstance(layer, FrozenLinear)]
    saved = sum(layer.in_features * layer.out_features * dtype.itemsize - layer.weight_data.nbytes for layer in layers)
    assert layers and unpacked.weights - stored.weights == pytest.approx(saved, abs=2)
    assert stored.seconds > 0 and known.predict(Choices(compile=True)).seconds > 0


def test_a_folders_fp8_weights_are_loaded_in_the_runs_precision(tmp_path: Path) -> None:
    folder = write_tiny_wan(tmp_path / "folder")
    for path in (folder / "transformer").glob("*.safetensors"):
        tensors = {n: t.to(torch.float8_e4m3fn) if n.endswith("to_q.weight") else t for n, t in load_file(path).items()}
        save_file(tensors, path, {"format": "pt"})
    family = open_model(folder)
    assert {p.dtype for n, p in family.load_transformer(torch.bfloat16).named_parameters() if n.endswith("to_q.weight")} == {torch.bfloat16}
    assert stored_weights(family, torch.bfloat16) is None


def test_layers_outside_of_the_blocks_alone_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = open_model(write_tiny_wan(tmp_path))
    layer, (rows, columns) = next(pair for pair in family.layer_shapes.items() if not pair[0].startswith("blocks."))
    plain = predictor(family, torch.bfloat16)
    monkeypatch.setattr(type(family.files), "kept_quantised", lambda *_: {f"{layer}.weight": ("float8_e4m3fn", rows * columns)})
    assert stored_weights(family, torch.bfloat16) == StoredWeights("", 2, rows * columns)
    held = predictor(family, torch.bfloat16)
    assert held.form(Choices()) == "" and held.weights_on_card(Choices()) == plain.weights_on_card(Choices()) - rows * columns


def test_what_a_library_quantised_is_counted_by_its_header(tmp_path: Path) -> None:
    from trainer.models.folder_fit import quantised_weights

    tensors = {"a.weight": torch.zeros(64, 1, dtype=torch.uint8), "a.weight.absmax": torch.zeros(2), "b.weight": torch.zeros(4, 4)}
    save_file(tensors, tmp_path / "diffusion_pytorch_model.safetensors")
    assert quantised_weights(tmp_path) == {"a.weight": ("nf4", 64 + 8)}


def test_a_rehearsed_layer_is_a_runs_own() -> None:
    """With what lies in a form's rows: what stood for them in rehearsals was written a second time."""
    model = family_of("Wan 2.1 1.3B")
    transformer, _, blocks = prepared(twin_of(model), AdapterSettings(rank=4), torch.bfloat16, "nf4")
    layers = [layer for layer in blocks[0].modules() if isinstance(layer, FrozenLinear)]
    real = quantized(torch.randn(16, 1536), "nf4")
    assert len(layers) == 10 and layers[0].weight_data.shape[1] == real.data.shape[1] == row_bytes("nf4", 1536)
    assert not any(isinstance(layer, FrozenLinear) for layer in transformer.condition_embedder.modules())
