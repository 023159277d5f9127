"""The LoRA changes nothing at step 0, and its file means to others what it means to us."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tiny.wan import write_tiny_wan
from trainer.adapters.file import load_lora, save_lora
from trainer.adapters.lora import Lora
from trainer.adapters.weights import check_changed, require_modules
from trainer.errors import UserError
from trainer.job import AdapterSettings
from trainer.models import open_model

RANKS = [(16, 4.0), (16, 64.0), (4, 0.0)]


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return open_model(write_tiny_wan(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
    return {"hidden_states": draw(2, 16, 3, 4, 4), "timestep": torch.tensor([200.0, 700.0]), "encoder_hidden_states": draw(2, 48, 16)}


def randomise(lora: Lora) -> None:
    generator = torch.Generator().manual_seed(2)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1, generator=generator)


def test_step_zero_is_the_base_bit_for_bit(family, inputs):
    transformer = family.load_transformer(torch.float32)
    with torch.no_grad():
        base = transformer(**inputs, return_dict=False)[0]
        Lora.attach(transformer, family.spec, AdapterSettings(rank=8), seed=0)
        assert torch.equal(transformer(**inputs, return_dict=False)[0], base)


def test_same_seed_same_start(family):
    a, b, c = (Lora.attach(family.load_transformer(torch.float32), family.spec, AdapterSettings(), seed).parameters() for seed in (1, 1, 2))
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not torch.equal(a[0], c[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_weights_are_float32_on_any_base(family, dtype):
    lora = Lora.attach(family.load_transformer(dtype), family.spec, AdapterSettings(), seed=0)
    assert {p.dtype for p in lora.parameters()} == {torch.float32}
    assert all(p.requires_grad for p in lora.parameters())


@pytest.mark.parametrize(("rank", "alpha"), RANKS)
def test_file_round_trip_and_diffusers_agree(family, inputs, tmp_path, rank, alpha):
    from diffusers import WanPipeline

    transformer = family.load_transformer(torch.float32)
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=rank, alpha=alpha), seed=0)
    randomise(lora)
    file = tmp_path / "lora.safetensors"
    save_lora(lora.weights(), family, file, {})
    keys = load_file(file).keys()
    assert all(key.startswith("diffusion_model.blocks.") and key.endswith((".lora_A.weight", ".lora_B.weight", ".alpha")) for key in keys)
    with torch.no_grad():
        ours = transformer(**inputs, return_dict=False)[0]
        again = family.load_transformer(torch.float32)
        Lora.from_weights(again, load_lora(file, family), str(file))
        assert torch.equal(again(**inputs, return_dict=False)[0], ours)
        theirs = family.load_transformer(torch.float32)
        base = theirs(**inputs, return_dict=False)[0]
        WanPipeline.load_lora_into_transformer(WanPipeline.lora_state_dict(str(file)), theirs)
        difference = theirs(**inputs, return_dict=False)[0] - ours
    assert (ours - base).norm() / base.norm() > 0.01
    assert difference.norm() / ours.norm() < 1e-4


def test_strength_scales_and_zero_is_the_base(family, inputs):
    transformer = family.load_transformer(torch.float32)
    with torch.no_grad():
        base = transformer(**inputs, return_dict=False)[0]
        lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=4), seed=0)
        randomise(lora)
        with lora.at_strength(0.0):
            assert torch.equal(transformer(**inputs, return_dict=False)[0], base)
        assert not torch.equal(transformer(**inputs, return_dict=False)[0], base)


def test_bad_files_are_refused_by_name(family, tmp_path):
    stranger, broken, zero = tmp_path / "stranger.safetensors", tmp_path / "broken.safetensors", tmp_path / "zero.safetensors"
    save_file({"transformer.blocks.0.attn1.to_q.lora_A.weight": torch.zeros(4, 4)}, stranger)
    broken.write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(UserError, match="stranger"):
        load_lora(stranger, family)
    with pytest.raises(UserError, match="broken"):
        load_lora(broken, family)
    with pytest.raises(UserError, match="does not exist"):
        load_lora(tmp_path / "absent.safetensors", family)
    lora = Lora.attach(family.load_transformer(torch.float32), family.spec, AdapterSettings(), seed=0)
    with pytest.raises(UserError, match="all zero"):
        check_changed(lora.weights(), "x")
    lora.parameters()[0].data[0, 0] = float("nan")
    with pytest.raises(UserError, match="not finite"):
        save_lora(lora.weights(), family, zero, {})
    assert not zero.exists()
    with pytest.raises(UserError, match="lacks"):
        require_modules(lora.weights(), {"blocks.0.attn1.to_q": (32, 32)}, "x")


@pytest.mark.parametrize(
    ("suffix", "change", "found"),
    [
        (".alpha", lambda t: t * -1, "alpha -4.0"),
        (".alpha", lambda t: t * 0, "alpha 0.0"),
        (".alpha", lambda t: t.repeat(2), "incomplete"),
        (".lora_B.weight", lambda t: t[:, :3].contiguous(), "incomplete"),
        (".lora_B.weight", lambda t: t[None], "incomplete"),
    ],
)
def test_a_file_that_is_no_lora_is_refused_by_name(family, tmp_path, suffix, change, found):
    lora = Lora.attach(family.load_transformer(torch.float32), family.spec, AdapterSettings(rank=4), seed=0)
    file = tmp_path / "lora.safetensors"
    save_lora(lora.weights(), family, file, {})
    save_file({key: change(tensor) if key.endswith(suffix) else tensor for key, tensor in load_file(file).items()}, file)
    with pytest.raises(UserError, match=found) as caught:
        load_lora(file, family)
    assert str(file) in str(caught.value)


def test_rank_and_alpha_beyond_our_ranges_are_used_as_they_are(family, tmp_path):
    settings = AdapterSettings.model_construct(rank=600, alpha=2000.0)
    file = tmp_path / "lora.safetensors"
    save_lora(Lora.attach(family.load_transformer(torch.float32), family.spec, settings, seed=0).weights(), family, file, {})
    lora = Lora.from_weights(family.load_transformer(torch.float32), load_lora(file, family), str(file))
    assert lora.weights().strengths == [(600, 2000.0)]
