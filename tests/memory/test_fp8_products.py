"""fp8 products of frozen layers: the sums of the numbers that they are made of, and how near a LoRA's gradients stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.memory.test_quantize import error, layer, random
from trainer.memory import fp8_products
from trainer.memory.choices import Quantized
from trainer.memory.frozen import FrozenLinear, FrozenWeight, set_fp8_products
from trainer.memory.quantize import quantized

CPU = torch.device("cpu")
E4M3 = torch.float8_e4m3fn


def rounded(x: Tensor) -> Tensor:
    """X as the nearest e4m3 numbers with a scale for each row."""
    scale = x.float().abs().amax(1, keepdim=True) / 448
    return (x.float() / scale).to(E4M3).float() * scale


def switched(held: FrozenLinear) -> FrozenLinear:
    assert set_fp8_products(held, CPU) == 1 and held.fp8_products
    return held


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_they_are_products_of_the_rounded_numbers(bias: bool, dtype: torch.dtype) -> None:
    held = switched(layer("fp8", bias=bias))
    x, dy = random(2, 8, 96, seed=4).to(dtype).requires_grad_(), random(2, 8, 48, seed=5).to(dtype)
    y = held(x)
    y.backward(dy)
    scale = held.scale_bits.view(torch.float32)
    stored = held.weight_data.view(E4M3).float()
    wanted = rounded(x.detach().view(16, 96)) @ (stored * scale).T + (held.bias if bias else 0)
    assert y.dtype == dtype and x.grad is not None and x.grad.dtype == dtype
    assert error(y.detach().view(16, 48), wanted) < 4e-3  # bf16's rounding
    assert error(x.grad.view(16, 96), rounded(dy.view(16, 48).float() * scale.T) @ stored) < 4e-3
    plain = layer("fp8", bias=bias)(x)
    assert 5e-3 < error(y, plain) < 0.04


def test_rows_and_gradients_of_any_size_are_as_exact() -> None:
    held = switched(layer("fp8", bias=False))
    sizes = torch.logspace(-6, 6, 16)[:, None]
    x = (random(16, 96, seed=4) * sizes).requires_grad_()
    y = held(x)
    y.backward(random(16, 48, seed=5) * sizes)
    plain = layer("fp8", bias=False)
    other = x.detach().clone().requires_grad_()
    plain(other).backward(random(16, 48, seed=5) * sizes)
    assert x.grad is not None and other.grad is not None
    for found, wanted in ((y, plain(other)), (x.grad, other.grad)):
        assert ((found - wanted).norm(dim=1) / wanted.norm(dim=1)).max() < 0.06


def test_a_scale_of_the_whole_weight() -> None:
    stored = random(48, 96).to(E4M3)
    held = switched(FrozenLinear(FrozenWeight(stored.view(torch.uint8), torch.tensor(0.02), "float8_e4m3fn"), 96, None, torch.float32))
    x = random(20, 96, seed=4).requires_grad_()
    y = held(x)
    y.sum().backward()
    assert error(y, rounded(x) @ (stored.float() * 0.02).T) < 4e-3
    assert x.grad is not None and error(x.grad, (stored.float() * 0.02).sum(0).expand(20, 96)) < 0.03


def test_pieces_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x, factors = random(50, 96), random(1, 96)
    whole = fp8_products.quantized_rows(x, factors)
    monkeypatch.setattr("trainer.memory.pieces.PIECE", 700)
    pieces = fp8_products.quantized_rows(x, factors)
    assert torch.equal(whole[0].view(torch.uint8), pieces[0].view(torch.uint8)) and torch.equal(whole[1], pieces[1])


def test_zeros_and_what_is_not_finite() -> None:
    """A half-precision run's overflow must be seen in the gradients."""
    held = switched(layer("fp8", bias=False))
    x = torch.zeros(16, 96)
    x[1, 0], x[2, 0] = torch.inf, torch.nan
    y = held(x)
    assert not y[0].any() and not y[1].isfinite().any() and not y[2].isfinite().any()


def test_no_more_than_the_stored_bytes_is_kept() -> None:
    held, kept = switched(layer("fp8", bias=False)), list[Tensor]()
    x = random(16, 96).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (kept.append(tensor), tensor)[1], lambda tensor: tensor):
        held(x).sum()
    assert sorted(tensor.nbytes for tensor in kept) == [48 * 4, 48 * 96]


@pytest.mark.parametrize(("out", "columns", "form"), [(40, 96, "fp8"), (48, 100, "fp8"), (48, 96, "int8"), (48, 96, "nf4")])
def test_what_the_kernels_cannot_take_is_dequantised(out: int, columns: int, form: Quantized) -> None:
    held = layer(form, out, columns)
    assert set_fp8_products(held, CPU) == 0 and not held.fp8_products


def test_few_rows_are_multiplied_by_the_dequantised_weight() -> None:
    held, plain = switched(layer("fp8")), layer("fp8")
    x = random(16, 96, seed=4)
    assert torch.equal(held(x[:15]), plain(x[:15])) and not torch.equal(held(x), plain(x))


def test_e5m2_and_cards_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = FrozenWeight(random(48, 96).to(torch.float8_e5m2).view(torch.uint8), torch.ones(()), "float8_e5m2")
    assert set_fp8_products(FrozenLinear(stored, 96, None, torch.float32), CPU) == 0
    held, cuda = layer("fp8"), torch.device("cuda")
    for capability, count in (((8, 6), 0), ((8, 9), 1), ((9, 0), 1), ((12, 0), 1)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None, found=capability: found)
        assert set_fp8_products(held, cuda) == count and held.fp8_products == bool(count)
    assert set_fp8_products(held, torch.device("mps")) == 0
    assert set_fp8_products(held, CPU) == 1 and set_fp8_products(held, CPU, on=False) == 0 and not held.fp8_products


def gradients(form: Quantized | None, products: bool = False) -> Tensor:
    """All of a LoRA's gradients in a random transformer of 4 blocks, in bf16, as one vector."""
    from diffusers import WanTransformer3DModel
    from peft import LoraConfig, inject_adapter_in_model

    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"num_attention_heads": 4, "attention_head_dim": 32, "freq_dim": 32, "ffn_dim": 256, "num_layers": 4}
        made: Any = WanTransformer3DModel(in_channels=4, out_channels=4, text_dim=32, **sizes)
        model = made.requires_grad_(False)
        for name, part in list(model.named_modules()):
            if form and name.startswith("blocks.") and type(part) is nn.Linear:
                parent, _, own = name.rpartition(".")
                held = FrozenLinear(quantized(part.weight.data.bfloat16(), form), part.in_features, part.bias, torch.bfloat16)
                setattr(model.get_submodule(parent), own, held)
        model.to(torch.bfloat16)
        assert set_fp8_products(model, CPU, products) == (40 if products else 0)  # 8 of attention and 2 of the feed-forward a block
        torch.manual_seed(1)
        targets = r"blocks\.\d+\.(attn\d\.(to_[qkv]|to_out\.0)|ffn\.net\.(0\.proj|2))"
        inject_adapter_in_model(LoraConfig(r=8, target_modules=targets, init_lora_weights=False), model)
    lora = [parameter for parameter in model.parameters() if parameter.requires_grad]
    x, text = random(1, 4, 3, 16, 16, seed=6).bfloat16(), random(1, 24, 32, seed=7).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x, torch.tensor([500]), text, return_dict=False)[0]
    (out.float() - random(*out.shape, seed=8)).square().mean().backward()
    assert len(lora) == 80
    return torch.cat([parameter.grad.float().flatten() for parameter in lora if parameter.grad is not None])


def test_a_loras_gradients_point_the_same_way() -> None:
    plain = gradients(None)
    kinds: list[tuple[Quantized, bool]] = [("fp8", False), ("fp8", True), ("int8", False), ("nf4", False)]
    found = {
        f"{form} products" if products else form: float(torch.cosine_similarity(gradients(form, products), plain, dim=0))
        for form, products in kinds
    }
    least = {"fp8": 0.999, "fp8 products": 0.9985, "int8": 0.9998, "nf4": 0.99}  # found: 0.99944, 0.99937, 0.99997, 0.99434
    assert all(found[name] > value for name, value in least.items()), found
    assert max(found.values()) < 1
