"""Merging is exact, resizing is the best of its rank and says what it lost, and what was merged into a model is found again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.adapters.loras import SHAPES, added, assert_near, assert_same, fused_family, random_lora
from tests.tiny.wan import write_tiny_wan
from trainer.adapters.checkpoints import FileWeights, FolderWeights
from trainer.adapters.combining import Size, merged, resized
from trainer.adapters.extraction import decomposed, extract
from trainer.adapters.file import load_lora, save_lora
from trainer.adapters.making import extract_files, merge_files
from trainer.adapters.reading import open_lora
from trainer.adapters.weights import LoraWeights
from trainer.errors import UserError
from trainer.events import EventLog, Silent
from trainer.models import known_family, open_model
from trainer.models.key_tensors import to_comfy

CPU, LOG = torch.device("cpu"), EventLog(Silent())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_wan(tmp_path_factory.mktemp("tiny"))


def test_a_merge_is_the_weighted_sum() -> None:
    family = fused_family()
    one = random_lora(family)
    other = random_lora(family, ["blocks.0.attn.to_q", "blocks.1.ff.proj"], seed=1)
    third = random_lora(family, ["blocks.0.attn.to_q"], seed=2)
    expected = added(one)
    for weights, factor in ((other, -0.5), (third, 2.0)):
        for name, tensor in added(weights).items():
            expected[name] = expected[name] + factor * tensor
    assert_near(added(merged([(one, 1.0), (other, -0.5), (third, 2.0)])), expected)


def test_merged_files_carry_what_is_true_of_all(model: Path, tmp_path: Path) -> None:
    family = open_model(model)
    told = [{"modelspec.trigger_phrase": "zorp, blue", "modelspec.title": "Zorp", "ss_base_model_version": "tiny", "ss_seed": "1"},
            {"modelspec.trigger_phrase": "blue, frob", "ss_base_model_version": "tiny", "ss_seed": "2"}]  # fmt: skip
    files, loras = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"], [random_lora(family), random_lora(family, seed=1)]
    for file, lora, metadata, convention in zip(files, loras, told, ("musubi", "diffusers"), strict=True):
        save_lora(lora, family, file, metadata, convention)  # type: ignore[arg-type]
    written, loss = merge_files(files, [1.0, 0.5], tmp_path / "both.safetensors")
    assert loss is None and written.family == "wan"
    assert_same(load_lora(written.file, family), merged([(loras[0], 1.0), (loras[1], 0.5)]))
    made = open_lora(written.file).metadata
    assert made["modelspec.trigger_phrase"] == "zorp, blue, frob" and made["modelspec.merged_from"] == "Zorp, b"
    assert made["modelspec.title"] == "both" and made["ss_base_model_version"] == "tiny" and "ss_seed" not in made
    _, loss = merge_files(files, [1.0, 0.5], tmp_path / "small.safetensors", size=Size(rank=2))
    assert loss is not None and max(rank for rank, _ in load_lora(tmp_path / "small.safetensors", family).strengths) == 2
    with pytest.raises(UserError, match="exists already"):
        merge_files(files, [1.0, 0.5], tmp_path / "both.safetensors")


@pytest.mark.parametrize("size", [Size(rank=2), Size(energy=0.9), Size(rank=3, energy=0.9), Size(rank=100), Size()])
def test_resizing_is_the_best_of_its_rank_and_says_what_it_lost(size: Size) -> None:
    weights = random_lora(fused_family(), ranks=((6, 3.0), (5, 10.0)))
    smaller, loss = resized(weights, size)
    before, after = added(weights), added(smaller)
    lost = whole = worst = 0.0
    for name, tensor in before.items():
        values = torch.linalg.svdvals(tensor)
        rank = smaller.pairs[name].rank
        error = float((tensor - after[name]).norm())
        assert error == pytest.approx(float(values[rank:].norm()), abs=1e-6 * float(values.norm()))
        shares = values.square().cumsum(0) / values.square().sum()
        needed = int((shares < size.energy * (1 - 1e-9)).sum()) + 1
        assert rank == min(needed, size.rank or needed, weights.pairs[name].rank)
        lost, whole, worst = lost + error**2, whole + float(values.square().sum()), max(worst, error / float(values.norm()))
    assert loss.lost**0.5 == pytest.approx(lost**0.5, abs=1e-6 * whole**0.5) and loss.whole == pytest.approx(whole)
    assert loss.worst == pytest.approx(worst, abs=1e-6)
    if size in (Size(), Size(rank=100)):
        assert_same(smaller, weights)


def test_what_was_merged_again_can_be_made_as_small_as_it_was() -> None:
    weights = random_lora(fused_family(), ranks=((3, 3.0),))
    twice = merged([(weights, 0.5), (weights, 0.5)])
    assert {pair.rank for pair in twice.pairs.values()} == {6}
    smaller, _ = resized(twice, Size())
    assert {pair.rank for pair in smaller.pairs.values()} == {3}
    assert_same(smaller, weights)


def tuned_folder(model: Path, folder: Path, weights: LoraWeights, bias: bool = False) -> Path:
    """A copy of the model with the LoRA inside its weights, and if wanted one bias changed."""
    import shutil

    shutil.copytree(model, folder)
    family = open_model(folder)
    transformer = family.load_transformer(torch.float32)
    modules = dict(transformer.named_modules())
    for name, tensor in added(weights).items():
        modules[name].weight.data += tensor.float()
    if bias:
        modules["proj_out"].bias.data += 1
    transformer.save_pretrained(folder / "transformer")
    return folder


def test_a_lora_is_extracted_from_two_folders(model: Path, tmp_path: Path) -> None:
    family = open_model(model)
    weights = random_lora(family, ranks=((3, 3.0),))
    tuned = tuned_folder(model, tmp_path / "tuned", weights, bias=True)
    ((written, found),) = extract_files(model, tuned, tmp_path / "lora.safetensors", Size(rank=3), CPU, LOG)
    assert_near(added(load_lora(written.file, family)), added(weights), 1e-4)
    assert found.left_out == ["proj_out.bias"] and found.loss.worst < 1e-4
    _, found = extract_files(model, tuned, tmp_path / "small.safetensors", Size(rank=1), CPU, LOG)[0]
    _, loss = resized(weights, Size(rank=1))
    assert found.loss.lost == pytest.approx(loss.lost, rel=1e-3) and found.loss.layer == loss.layer
    with pytest.raises(UserError, match="differ in no layer"):
        extract_files(model, model, tmp_path / "none.safetensors", Size(rank=1), CPU, LOG)
    with pytest.raises(UserError, match="exists already"):
        extract_files(model, tuned, tmp_path / "lora.safetensors", Size(rank=1), CPU, LOG)


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model.", "diffusion_model."])
def test_a_lora_is_extracted_from_single_files(model: Path, tmp_path: Path, prefix: str) -> None:
    family = open_model(model)
    weights = random_lora(family, ranks=((2, 2.0),))
    tuned = tuned_folder(model, tmp_path / "tuned", weights)
    for name, folder in (("base", model), ("tuned", tuned)):
        state = open_model(folder).load_transformer(torch.float32).state_dict()
        save_file({prefix + key: tensor for key, tensor in to_comfy(family.keys, state).items()}, tmp_path / f"{name}.safetensors")
    base, other = tmp_path / "base.safetensors", tmp_path / "tuned.safetensors"
    ((_, found),) = extract_files(base, other, tmp_path / "1.safetensors", Size(rank=2), CPU, LOG, known_family("wan"))
    assert_near(added(found.weights), added(weights), 1e-4)
    assert found.left_out == []
    ((_, found),) = extract_files(model, other, tmp_path / "2.safetensors", Size(rank=2), CPU, LOG)
    assert_near(added(found.weights), added(weights), 1e-4)
    with pytest.raises(UserError, match="Name their family"):
        extract_files(base, other, tmp_path / "3.safetensors", Size(rank=2), CPU, LOG)


def test_fused_and_swapped_layers_of_a_single_file(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    names = [f"blocks.{n}.{name}" for n in range(2) for name in SHAPES]
    state = {f"{name}.weight": torch.randn(SHAPES[name.split(".", 2)[2]], generator=generator) for name in names}
    weights = random_lora(fused_family(), ranks=((2, 2.0),))
    changed = {name: tensor + added(weights)[name.removesuffix(".weight")].float() for name, tensor in state.items()}
    family = fused_family(state)
    save_file(to_comfy(family.keys, changed), tmp_path / "tuned.safetensors")
    save_file(changed, tmp_path / "diffusers.safetensors")
    for file in ("tuned", "diffusers"):
        sides = FolderWeights(family, "transformer"), FileWeights(tmp_path / f"{file}.safetensors", family)
        found = extract(*sides, family.keys, Size(rank=2), CPU, "x", LOG)
        assert_near(added(found.weights), added(weights), 1e-4)


def test_scaled_fp8_files_are_worth_weight_times_scale(tmp_path: Path) -> None:
    family = fused_family()
    fused, plain = torch.randn(42, 8), torch.randn(8, 8)
    scale = fused.abs().max() / 448
    stored = (fused / scale).to(torch.float8_e4m3fn)
    tensors = {"stack.0.first.weight": stored, "stack.0.first.scale_weight": scale, "stack.0.attn.proj.weight": plain.bfloat16()}
    save_file({**tensors, "scaled_fp8": torch.zeros(0, dtype=torch.float8_e4m3fn)}, tmp_path / "scaled.safetensors")
    found = FileWeights(tmp_path / "scaled.safetensors", family)
    assert found.names == {f"blocks.0.{name}.weight" for name in ("attn.to_q", "attn.to_k", "attn.to_v", "mlp_in", "attn.to_out.0")}
    assert torch.equal(found.tensor("blocks.0.attn.to_k.weight"), (stored.float() * scale)[8:14])
    assert torch.equal(found.tensor("blocks.0.attn.to_out.0.weight"), plain.bfloat16().float())


def test_models_that_are_no_pair_are_refused(model: Path, tmp_path: Path) -> None:
    family = open_model(model)
    save_file({"blocks.0.self_attn.q.weight": torch.ones(2, 2)}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match="not of one size"):
        extract_files(model, tmp_path / "other.safetensors", tmp_path / "lora.safetensors", Size(rank=2), CPU, LOG)
    save_file({"img_in.weight": torch.ones(2, 2)}, tmp_path / "stranger.safetensors")
    with pytest.raises(UserError, match=r"stranger.safetensors: is no wan model.*img_in.weight"):
        FileWeights(tmp_path / "stranger.safetensors", family)
    save_file({"blocks.0.self_attn.q.weight": torch.ones(2, 2, dtype=torch.int8)}, tmp_path / "scaled.safetensors")
    with pytest.raises(UserError, match="is quantised in a way"):
        FileWeights(tmp_path / "scaled.safetensors", family)
    (tmp_path / "broken.safetensors").write_bytes(b"{")
    for name, found in {"absent": "does not exist", "broken": "cut off"}.items():
        with pytest.raises(UserError, match=found):
            FileWeights(tmp_path / f"{name}.safetensors", family)


def test_large_layers_are_decomposed_nearly_as_well() -> None:
    """By random projection, against the whole decomposition; and twice the same."""
    generator = torch.Generator().manual_seed(0)
    decay = torch.exp(-torch.arange(600) / 20.0)
    left, right = (torch.linalg.qr(torch.randn(size, 600, generator=generator))[0] for size in (900, 600))
    matrix = (left * decay) @ right.T
    pair, lost, whole = decomposed(matrix, Size(rank=16), "layer")
    best = float(decay[16:].square().sum())
    assert pair.rank == 16 and best <= lost * (1 + 1e-4) and lost <= best * 1.01
    assert whole == pytest.approx(float(decay.square().sum()), rel=1e-4)
    assert decomposed(matrix, Size(rank=16), "layer")[0].equals(pair)
