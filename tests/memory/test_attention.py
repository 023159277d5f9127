"""The kernel of attention is pinned, packages that are missing are named, and a replaced attention is refused."""

from __future__ import annotations

import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers.models.attention_dispatch import _AttentionBackendRegistry, dispatch_attention_fn
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from trainer.compute import Compute
from trainer.errors import UserError
from trainer.job import ComputeSettings
from trainer.memory import attention
from trainer.memory.attention import Attention, kernels_of, order, require_original

HALF = torch.bfloat16


def compute(device: str = "cuda", dtype: torch.dtype = HALF, deterministic: bool = False, **settings: Any) -> Any:
    """A run on a card that is not there."""
    made = ComputeSettings.model_validate(settings)
    return SimpleNamespace(device=torch.device(device), dtype=dtype, deterministic=deterministic, settings=made)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(*capability: int) -> None:
        monkeypatch.setattr(attention, "_capability", lambda device: capability)

    put(8, 9)
    return put


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(name: str, **functions: Any) -> None:
        module = ModuleType(name)
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, name, module)

    attention._package_attention.cache_clear()
    yield put
    attention._package_attention.cache_clear()


def dispatching() -> nn.Module:
    module = nn.Linear(1, 1)
    module.processor = SimpleNamespace(_attention_backend=None)  # type: ignore[assignment]
    return nn.Sequential(module)


def test_the_order_of_kernels() -> None:
    assert order("auto", (9, 0)) == ["cudnn", "flash", "efficient", "math"]
    assert order("auto", (8, 9)) == ["flash", "cudnn", "efficient", "math"]
    assert order("efficient", (9, 0)) == ["efficient", "math"] and order("math", (9, 0)) == ["math"]
    assert order("flash", (9, 0)) == ["flash", "efficient", "math"]


def test_auto_takes_flash_attn_3_where_it_is_and_the_card_can(card: Any, package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_torch_knows_flash_3", lambda: True)
    card(9, 0)
    assert kernels_of(compute()) == ("auto", "auto")
    package("flash_attn_interface")
    assert kernels_of(compute()) == ("flash-attn 3", "flash-attn 3")
    assert kernels_of(compute(deterministic=True)) == ("auto", "auto")
    assert kernels_of(compute(dtype=torch.float32)) == ("auto", "auto")
    card(8, 9)
    assert kernels_of(compute()) == ("auto", "auto")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "flash-attn 2"}, r"flash_attn: is not installed.*Run: .* -m pip install --no-build-isolation \"flash-attn>="),
        ({"sampling_attention": "sage"}, r"sageattention: is not installed.*Run: .* -m pip install \"sageattention\""),
        ({"attention": "flash-attn 3"}, r"compute\.attention: flash-attn 3 runs on Hopper"),
        ({"attention": "cudnn", "device": "cpu"}, r"compute\.attention: cudnn runs on a GPU only"),
        ({"sampling_attention": "sage", "device": "cpu"}, r"compute\.sampling_attention: sage runs on a GPU only"),
        ({"attention": "cudnn", "deterministic": True}, r"compute\.attention: cudnn is not repeatable"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_cure(card: Any, settings: dict[str, Any], message: str, monkeypatch: Any) -> None:
    for name in ("flash_attn", "sageattention"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=message):
        kernels_of(compute(**settings))


def test_a_package_needs_half_precision_and_a_model_that_dispatches(card: Any, package: Any) -> None:
    package("flash_attn", flash_attn_func=None)
    with pytest.raises(UserError, match="bf16 and fp16 only"):
        kernels_of(compute(dtype=torch.float32, attention="flash-attn 2"))
    with pytest.raises(UserError, match="calls PyTorch's attention directly"):
        Attention(compute(attention="flash-attn 2"), nn.Linear(1, 1))
    Attention(compute(attention="flash-attn 2"), dispatching())


def test_torchs_kernels_are_pinned_and_given_back(card: Any) -> None:
    from torch.backends import cuda

    def enabled() -> tuple[bool, ...]:
        return cuda.flash_sdp_enabled(), cuda.cudnn_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()

    before, priority = enabled(), torch._C._get_sdp_priority_order()
    for kernel, expected in (("math", (False, False, False, True)), ("cudnn", (False, True, True, True)), ("auto", (True,) * 4)):
        with Attention(compute(attention=kernel), nn.Linear(1, 1)).training():
            assert enabled() == expected
            if kernel == "cudnn":
                assert torch._C._get_sdp_priority_order()[0] == int(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)
    assert enabled() == before and torch._C._get_sdp_priority_order() == priority


def test_a_package_computes_what_it_can_and_torch_the_rest(card: Any, package: Any) -> None:
    seen = list[float | None]()

    def flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, softmax_scale: float | None) -> torch.Tensor:
        seen.append(softmax_scale)
        assert {tensor.dtype for tensor in (query, key, value)} == {HALF}
        return scaled_dot_product_attention(*(t.transpose(1, 2) for t in (query, key, value)), scale=softmax_scale).transpose(1, 2)

    package("flash_attn", flash_attn_func=flash)
    query, key, value = torch.randn(3, 2, 5, 2, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([True] * 4 + [False])[None, None, None]
    plain, masked = dispatch_attention_fn(query, key, value), dispatch_attention_fn(query, key, value, attn_mask=mask)
    assert not torch.allclose(plain, masked)
    active = _AttentionBackendRegistry._active_backend
    with Attention(compute(attention="flash-attn 2"), dispatching()).training():
        assert torch.equal(dispatch_attention_fn(query, key, value, attn_mask=mask), masked) and seen == []
        assert torch.equal(dispatch_attention_fn(query, key, value), plain) and seen == []
        half = dispatch_attention_fn(query.to(HALF), key.to(HALF), value.to(HALF), scale=0.5)
        assert seen == [0.5] and half.dtype == HALF
        with torch.autocast("cpu", HALF):
            torch.testing.assert_close(dispatch_attention_fn(query, key, value).float(), plain, rtol=0.05, atol=0.05)
        assert len(seen) == 2
    assert _AttentionBackendRegistry._active_backend == active
    assert torch.equal(dispatch_attention_fn(query, key, value), plain) and len(seen) == 2


def test_on_a_cpu_and_in_deterministic_mode_nothing_changes() -> None:
    from torch.backends.cuda import flash_sdp_enabled, mem_efficient_sdp_enabled

    with (
        Compute(ComputeSettings(device="cpu", deterministic=True)).repeatable(),
        Attention(compute("cuda", deterministic=True), nn.Linear(1, 1)).training(),
    ):
        assert flash_sdp_enabled() and not mem_efficient_sdp_enabled()
    with Attention(compute("cpu"), nn.Linear(1, 1)).training():
        assert mem_efficient_sdp_enabled()


def replaced(*args: Any, **kwargs: Any) -> torch.Tensor:
    return scaled_dot_product_attention(*args, **kwargs)


class Called:
    def __call__(self, *args: Any) -> None: ...


@pytest.mark.parametrize(
    "function", [replaced, functools.wraps(scaled_dot_product_attention)(lambda *args: None), functools.partial(replaced), Called()],
    ids=["function", "wrapper", "partial", "object"],
)  # fmt: skip
def test_a_replaced_attention_is_refused_and_who_did_it_is_told(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    require_original()
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", function)
    with pytest.raises(UserError, match=r"was replaced by .*test_attention.*test_attention\.py\)"):
        Attention(compute("cpu"), nn.Linear(1, 1)).training()
