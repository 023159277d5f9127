"""Frozen linear layers: the same numbers as unpacked ones, under a LoRA, autocast, checkpointing and in gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainer.memory.frozen import FrozenLinear, FrozenWeight, weight_dtype

FORMS = [torch.float8_e4m3fn, torch.float8_e5m2]


def frozen_and_plain(form: torch.dtype, rows: bool = False, bias: bool = True) -> tuple[FrozenLinear, nn.Linear]:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(24, 16, generator=generator)
    scale = values.abs().amax(1, keepdim=True) / 200 if rows else values.abs().max() / 200
    stored = (values / scale).to(form)
    plain = nn.Linear(16, 24, bias)
    plain.weight.data = stored.float() * scale
    plain.requires_grad_(False)
    weight = FrozenWeight(stored.view(torch.uint8), scale, str(form).removeprefix("torch."))
    return FrozenLinear(weight, 16, plain.bias if bias else None, torch.float32), plain


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_outputs_and_gradients_equal_a_plain_layers(form: torch.dtype, bias: bool, rows: bool) -> None:
    frozen, plain = frozen_and_plain(form, rows, bias)
    assert torch.equal(frozen.weight, plain.weight) and frozen.in_features == 16 and frozen.out_features == 24
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float32).to(dtype)
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        a, b = frozen(one), plain.to(dtype)(other)
        assert torch.equal(a, b) and a.dtype == dtype
        a.square().sum().backward()
        b.square().sum().backward()
        assert one.grad is not None and other.grad is not None and torch.equal(one.grad, other.grad)
        plain.to(torch.float32)
        plain.weight.data = frozen.weight


def test_casts_and_moves_leave_the_stored_weight_as_it_is() -> None:
    frozen, _ = frozen_and_plain(torch.float8_e4m3fn, rows=True)
    before = frozen.weight
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert torch.equal(frozen.to(dtype).weight, before) and weight_dtype(frozen) == torch.float32
    assert sum(tensor.nbytes for tensor in frozen.buffers()) == 24 * 16 + 24 * 4
    assert [name for name, _ in frozen.named_parameters()] == ["bias"]


def test_autocast_computes_in_its_precision() -> None:
    frozen, plain = frozen_and_plain(torch.float8_e4m3fn)
    x, other = (torch.randn(4, 16, generator=torch.Generator().manual_seed(2)).requires_grad_() for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        a, b = frozen(x), plain(other)
    assert a.dtype == b.dtype == torch.bfloat16 and torch.equal(a, b)
    a.float().sum().backward()
    b.float().sum().backward()
    assert x.grad is not None and other.grad is not None and x.grad.dtype == torch.float32 and torch.equal(x.grad, other.grad)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_under_a_lora_its_gradients_equal_a_plain_layers(checkpointed: bool) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    grads = []
    for layer in frozen_and_plain(torch.float8_e4m3fn):
        model = nn.Sequential(layer, nn.GELU())
        inject_adapter_in_model(LoraConfig(r=4, target_modules=["0"]), model)
        parameters = [p for p in model.parameters() if p.requires_grad]
        assert [p.dtype for p in parameters] == [torch.float32] * 2
        for number, parameter in enumerate(parameters):
            parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
        x = torch.randn(7, 16, generator=torch.Generator().manual_seed(9))
        out = checkpoint(model, x, use_reentrant=False) if checkpointed else model(x)
        out.square().sum().backward()
        grads.append([p.grad for p in parameters])
    assert all(a is not None and torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_a_lora_is_attached_without_unpacking_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    from peft import LoraConfig

    from trainer.adapters.lora import Lora

    frozen, plain = frozen_and_plain(torch.float8_e4m3fn)
    other = Lora(nn.Sequential(plain), LoraConfig(r=4, target_modules=["0"]), seed=3).weights()
    monkeypatch.setattr(FrozenLinear, "dequantize", lambda *_: pytest.fail("a weight was unpacked"))
    model = nn.Sequential(frozen)
    own = Lora(model, LoraConfig(r=4, target_modules=["0"]), seed=3).weights()
    assert torch.equal(own.pairs["0"].down, other.pairs["0"].down) and torch.equal(own.pairs["0"].up, other.pairs["0"].up)


def test_a_frozen_layer_keeps_no_unpacked_weight_for_the_backward_pass() -> None:
    frozen, _ = frozen_and_plain(torch.float8_e4m3fn)
    kept: list[torch.Tensor] = []

    def seen(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        frozen(torch.randn(4, 16).requires_grad_()).sum()
    assert sorted(tensor.nbytes for tensor in kept) == [4, 24 * 16]
