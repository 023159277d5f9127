"""The LoRA commands write what they say, and refuse before they work."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.loras import added, assert_near, assert_same, random_lora
from tests.tiny.wan import write_tiny_wan
from trainer.__main__ import main
from trainer.adapters.combining import merged
from trainer.adapters.file import load_lora, save_lora
from trainer.adapters.weights import LoraWeights
from trainer.errors import UserError, fail
from trainer.job import ComputeSettings
from trainer.models import open_model
from trainer.sampling import VideoSampler


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return open_model(write_tiny_wan(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture
def lora(family: Any, tmp_path: Path) -> Path:
    save_lora(random_lora(family), family, tmp_path / "zorp.safetensors", {}, "musubi")
    return tmp_path / "zorp.safetensors"


@pytest.mark.parametrize("model", [(), ("--model", "wan"), ("--model", "folder")])
def test_convert(family: Any, lora: Path, capsys: pytest.CaptureFixture[str], model: tuple[str, ...]) -> None:
    named = [family.files.name if word == "folder" else word for word in model]
    assert main(["convert-lora", str(lora), "--to", "diffusers", *named]) == 0
    made = lora.with_name("zorp-diffusers.safetensors")
    assert_same(load_lora(made, family), random_lora(family))
    said = capsys.readouterr().out
    assert str(made) in said and "wan" in said and "diffusers" in said
    assert main(["convert-lora", str(lora), "--to", "diffusers", *named]) == 0  # the same again is no loss
    assert main(["convert-lora", str(lora), "--to", "kohya", "--output", str(made), *named]) == 1
    assert "exists already" in capsys.readouterr().err
    assert_same(load_lora(made, family), random_lora(family))


def test_merge_and_resize(family: Any, lora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "frob.safetensors"
    save_lora(random_lora(family, seed=1), family, other, {})
    assert main(["merge-lora", str(lora), str(other), "--weights", "1", "-0.5", "--output", str(tmp_path / "sum.safetensors")]) == 0
    whole = merged([(random_lora(family), 1.0), (random_lora(family, seed=1), -0.5)])
    assert_same(load_lora(tmp_path / "sum.safetensors", family), whole)
    assert main(["merge-lora", str(lora), str(other)]) == 0
    assert tmp_path.joinpath("zorp-merged.safetensors").is_file()
    assert main(["merge-lora", str(lora), str(other), "--weights", "1"]) == 1
    assert main(["resize-lora", str(tmp_path / "sum.safetensors"), "--rank", "2", "--to", "musubi"]) == 0
    small = load_lora(tmp_path / "sum-resized.safetensors", family)
    assert {pair.rank for pair in small.pairs.values()} == {2}
    lost = [float((tensor - added(small)[name]).norm()) for name, tensor in added(whole).items()]
    norm = sum(float(tensor.norm()) ** 2 for tensor in added(whole).values()) ** 0.5
    assert f"relative error {sum(error**2 for error in lost) ** 0.5 / norm:.2e}" in capsys.readouterr().out
    assert main(["resize-lora", str(lora)]) == 1


def test_extract(family: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    weights = random_lora(family, ranks=((2, 2.0),))
    tuned = write_tiny_wan(tmp_path / "tuned")
    transformer: Any = open_model(tuned).load_transformer(torch.float32)
    modules = dict(transformer.named_modules())
    for name, tensor in added(weights).items():
        modules[name].weight.data += tensor.float()
    transformer.save_pretrained(tuned / "transformer")
    output = tmp_path / "lora.safetensors"
    assert main(["extract-lora", family.files.name, str(tuned), "--rank", "2", "--device", "cpu", "--output", str(output)]) == 0
    assert_near(added(load_lora(output, family)), added(weights), 1e-4)
    assert "relative error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["convert-lora", "absent.safetensors", "--to", "comfyui"], "absent.safetensors"),
        (["convert-lora", "{lora}", "--to", "comfyui", "--model", "ltx_video"], "is not a ltx_video LoRA"),
        (["convert-lora", "{lora}", "--to", "comfyui", "--model", "no_such_model"], "no_such_model"),
        (["convert-lora", "{lora}", "--to", "comfyui", "--output", "{folder}"], "--output"),
        (["merge-lora", "{lora}", "absent.safetensors"], "absent.safetensors"),
        (["extract-lora", "{lora}", "{lora}", "--device", "cpu"], "Name their family"),
        (["extract-lora", "{lora}", "{lora}", "--device", "cpu", "--model", "wan"], "is no wan model"),
    ],
)
def test_what_cannot_be_done_is_said(lora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], found: str) -> None:
    assert main([word.format(lora=lora, folder=tmp_path) for word in words]) == 1
    assert found in capsys.readouterr().err


@pytest.mark.parametrize(
    ("experts", "given", "expected"),
    [
        (1, ["a"], {"": "a"}),
        (1, ["a-low"], {"": "a-low"}),
        (1, ["a", "b"], "are 2, and this model takes 1"),
        (2, [], {}),
        (2, ["a", "b"], {"high": "a", "low": "b"}),
        (2, ["a"], {"high": "a"}),
        (2, ["a-low-step-000004"], {"low": "a-low-step-000004"}),
        (2, ["a-LowNoise", "b"], {"low": "a-LowNoise", "high": "b"}),
        (2, ["a_low_noise", "a_high_noise"], {"low": "a_low_noise", "high": "a_high_noise"}),
        (2, ["yellow", "flow"], {"high": "yellow", "low": "flow"}),
        (2, ["a-low", "b-low"], "'b-low.safetensors' are both of the expert for low noise"),
        (2, ["a", "b", "a"], "are 3, and this model takes 2"),
    ],
)
def test_the_samplers_lora_go_to_the_experts_that_they_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], experts: int, given: list[str], expected: Any
) -> None:
    model = write_tiny_wan(tmp_path / "model", experts=experts, index={"boundary_ratio": 0.875} if experts == 2 else None)
    taken: list[Any] = []

    def sampler(*words: Any) -> Any:
        taken.append({name: file.stem for name, file in words[2].items()})
        raise fail("drawing", "is not needed here.")

    monkeypatch.setattr("trainer.sampling.VideoSampler", sampler)
    files = [word for name in given for word in ("--lora", f"{name}.safetensors")]
    assert main(["sample", "a clip", "--model", str(model), "--size", "5x32x32", "--to", str(tmp_path / "a.mp4"), *files]) == 1
    said = capsys.readouterr().err
    if isinstance(expected, str):
        assert "error: --lora" in said and expected in said and not taken
    else:
        assert taken == [expected]
        assert all(f"LoRA for {name} noise: {file}.safetensors" in said for name, file in expected.items() if name)


def test_a_lora_of_an_expert_that_the_model_lacks_is_refused(family: Any, lora: Path, tmp_path: Path) -> None:
    pair = write_tiny_wan(tmp_path / "pair", experts=2, index={"boundary_ratio": 0.875})
    for model, name, found in ((Path(family.files.name), "low", "expert for low noise"), (pair, "", "of which expert")):
        with pytest.raises(UserError, match=rf"zorp.safetensors: .*{found}"):
            VideoSampler(model, ComputeSettings(device="cpu"), {name: lora})


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return open_model(write_tiny_wan(tmp_path_factory.mktemp("larger") / "model", num_attention_heads=4))


@pytest.mark.parametrize("model", [(), ("--model", "wan")])
def test_lora_of_two_sizes_are_not_merged(
    family: Any, larger: Any, lora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: tuple[str, ...]
) -> None:
    other, small, output = (tmp_path / f"{name}.safetensors" for name in ("frob", "small", "sum"))
    save_lora(random_lora(larger, seed=1), larger, other, {})
    save_lora(random_lora(family, ["blocks.0.attn1.to_q"]), family, small, {})
    for files in ((lora, small, other), (other, lora)):
        assert main(["merge-lora", *map(str, files), "--output", str(output), *model]) == 1
        said = capsys.readouterr().err
        assert f"{files[0]} and {files[-1]}: are of models of different sizes" in said and "32x32" in said and "64x64" in said
    assert not output.exists()


@pytest.mark.parametrize("command", [["convert-lora", "--to", "kohya"], ["resize-lora", "--rank", "2"], ["merge-lora"]])
def test_a_lora_of_another_size_than_the_given_model_is_refused(
    family: Any, larger: Any, lora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    words = [command[0], str(lora), *command[1:], "--output", str(tmp_path / "made.safetensors")]
    assert main([*words, "--model", larger.files.name]) == 1
    said = capsys.readouterr().err
    assert f"error: {lora}: " in said and " is for a layer of " in said and "this model's is " in said and "Choose a LoRA" in said
    assert not (tmp_path / "made.safetensors").exists()
    assert main([*words, "--model", family.files.name]) == 0


def test_models_of_one_and_two_experts_are_no_pair_to_extract_from(family: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, output = Path(family.files.name), tmp_path / "made" / "lora.safetensors"
    pair = write_tiny_wan(tmp_path / "pair", seed=1, experts=2, index={"boundary_ratio": 0.875})
    half = shutil.copytree(pair, tmp_path / "half")
    shutil.copytree(one / "transformer", half / "transformer", dirs_exist_ok=True)
    for base, tuned, found in (
        (pair, one, f"error: {pair} and {one}: have 2 and 1 transformers"),
        (one, pair, f"error: {one} and {pair}: have 1 and 2 transformers"),
        (pair, half, "differ in no layer"),  # the second of its experts, after the first was found to differ
    ):
        words = ["extract-lora", str(base), str(tuned), "--rank", "1", "--device", "cpu", "--output", str(output)]
        assert main(words) == 1
        said = capsys.readouterr().err
        assert found in said and "Choose a model" in said
        assert not list(output.parent.glob("*.safetensors"))


@pytest.mark.parametrize("name", ["blocks.0.attn1.to_q.weight", "proj_out.bias"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_models_that_are_not_finite_are_refused_by_name(
    family: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: float
) -> None:
    from safetensors.torch import load_file, save_file

    base, output = Path(family.files.name), tmp_path / "lora.safetensors"
    broken = shutil.copytree(base, tmp_path / "broken")
    file = broken / "transformer" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(file)
    tensors[name].view(-1)[1] = value
    save_file(tensors, file, {"format": "pt"})
    for first, second, which in ((base, broken, "second"), (broken, base, "first"), (broken, broken, "first")):
        words = ["extract-lora", str(first), str(second), "--rank", "1", "--device", "cpu", "--output", str(output)]
        assert main(words) == 1
        said = capsys.readouterr().err
        assert f"error: {first} and {second}: cannot be compared: {name} of the {which} holds NaN or infinity" in said
        assert not output.exists()


@pytest.mark.parametrize("smaller", [(), ("--rank", "2")])
@pytest.mark.parametrize("weights", [("1", "-1", "0"), ("0", "0", "0"), ("0.3", "0.7", "-1"), ("100", "-33.3", "-66.7")])
def test_a_merge_that_does_nothing_is_refused(
    lora: Path, capsys: pytest.CaptureFixture[str], weights: tuple[str, ...], smaller: tuple[str, ...]
) -> None:
    output = lora.with_name("sum.safetensors")
    assert main(["merge-lora", *[str(lora)] * 3, "--weights", *weights, "--output", str(output), *smaller]) == 1
    said = capsys.readouterr().err
    assert str(lora) in said and f"add up to nothing by the weights {', '.join(weights)}" in said and "Give other weights" in said
    assert not output.exists()


def test_layers_that_cancel_each_other_out_are_left_out_of_a_merge(family: Any, lora: Path, tmp_path: Path, capsys: Any) -> None:
    """And what resizing tells of is of the others; small differences are no rounding."""
    other, output = tmp_path / "frob.safetensors", tmp_path / "sum.safetensors"
    changed = dict(random_lora(family).pairs)
    changed["blocks.0.attn1.to_q"] = changed["blocks.0.attn1.to_q"].plus(changed["blocks.0.attn1.to_q"], 1e-3)
    save_lora(LoraWeights(changed), family, other, {})
    assert main(["merge-lora", str(lora), str(other), "--weights", "1", "-1", "--rank", "2", "--output", str(output)]) == 0
    assert load_lora(output, family).pairs.keys() == {"blocks.0.attn1.to_q"}
    assert "(blocks.0.attn1.to_q)" in capsys.readouterr().out


def test_a_merge_beyond_float32_is_refused_before_it_is_resized(family: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_lora(random_lora(family, ranks=((4, 3e38),)), family, tmp_path / "huge.safetensors", {})
    assert main(["merge-lora", str(tmp_path / "huge.safetensors"), "--weights", "100", "--rank", "2"]) == 1
    said = capsys.readouterr().err
    assert "huge.safetensors: the LoRA is not finite" in said
