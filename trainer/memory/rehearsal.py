"""rehearse: a training step on tensors without memory, to know what it keeps, computes and moves before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from .card_arithmetic import CardArithmetic
from .checkpointing import kept_or_computed
from .control_values import Masks
from .forms import hold
from .ledger import Ledger, Storage, Stretch
from .partition import kept_by_compiler
from .pieces import as_compiled
from .twin import Kind, fill, kinds_of, shorten, twin_of

if TYPE_CHECKING:
    from ..job import AdapterSettings
    from ..models.base import ModelFamily
    from .choices import Checkpointing

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Shapes:
    """What one example looks like: the tensors that the family encodes a clip and a caption to, without batch dimension."""

    encoding: Mapping[str, tuple[int, ...]]  # with "latents"
    text: Mapping[str, tuple[int, ...]]

    def __hash__(self) -> int:
        return hash((tuple(self.encoding.items()), tuple(self.text.items())))


@dataclass(frozen=True)
class Part:
    """One block of a kind: bytes kept after its forward pass, and when the backward pass begins; work and peaks of both passes.

    Peaks are above what is kept of everything before the block, and its LoRA's gradients are in that of the backward pass.
    """

    kind: Kind
    way: Checkpointing
    kept_forward: int
    kept: int
    boundary: int  # of `kept`, what goes from block to block
    peak_forward: int
    peak_backward: int
    gradients: int  # bytes of its LoRA's gradients
    forward: Stretch
    backward: Stretch


@dataclass(frozen=True)
class Rehearsal:
    """A step's memory and work: the blocks by kind, and what lies outside of them."""

    parts: tuple[Part, ...]
    outside: int  # bytes alive through the whole step
    peak_outside: int  # the most beside what blocks keep, while none of them computes
    work_outside: tuple[Stretch, ...]

    @property
    def peak(self) -> int:
        """Bytes alive at most, without weights, LoRA and optimizer."""
        blocks = [part for part in self.parts for _ in range(part.kind.count)]
        kept_all = sum(part.kept for part in blocks)
        peaks = [self.peak_outside + kept_all]
        before_forward = before = 0
        after = sum(part.gradients for part in blocks)
        for part in blocks:
            after -= part.gradients
            peaks += [self.outside + before_forward + part.peak_forward, self.outside + before + part.peak_backward + after]
            before_forward += part.kept_forward
            before += part.kept
        return max(peaks)

    def work(self) -> list[tuple[Stretch, int, Checkpointing | None]]:
        """Each stretch, how many times it comes in a step, and how its block is checkpointed; None outside of blocks."""
        found: list[tuple[Stretch, int, Checkpointing | None]] = [(stretch, 1, None) for stretch in self.work_outside]
        for part in self.parts:
            found.append((part.forward, part.kind.count, part.way))
            found.append((part.backward, part.kind.count, part.way))
        return found


def as_much_at_once(fused: Rehearsal, plain: Rehearsal) -> Rehearsal:
    """The compiled step with the plain one's backward peaks where they are higher.

    Compiled code that computes a block again holds about as much of it at once as plain code (PyTorch 2.11's Inductor on an H200).
    """
    both = zip(fused.parts, plain.parts, strict=True)
    return replace(fused, parts=tuple(replace(own, peak_backward=max(own.peak_backward, other.peak_backward)) for own, other in both))


def mixed(rehearsal: Rehearsal, lighter: Rehearsal, count: int) -> Rehearsal:
    """A step whose last `count` blocks are those of the lighter one."""
    parts: list[Part] = []
    for part, other in zip(reversed(rehearsal.parts), reversed(lighter.parts), strict=True):
        own = min(count, part.kind.count)
        count -= own
        for which, number in ((other, own), (part, part.kind.count - own)):
            if number:
                parts.append(replace(which, kind=replace(which.kind, count=number)))
    return replace(rehearsal, parts=tuple(reversed(parts)))


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsed step, computed operation by operation, and with what a compiler fuses."""

    plain: Rehearsal
    fused: Rehearsal


def rehearse(
    family: ModelFamily, shapes: Shapes, adapter: AdapterSettings, batch: int = 1, checkpointing: Checkpointing = "full",
    weights: str = "", fp8_products: bool = False, whole: bool = False, dtype: torch.dtype = torch.bfloat16,
) -> Rehearsed:  # fmt: skip
    """A rehearsed step. `weights` is a form as FrozenWeight calls it, or empty for `dtype`; `whole`: converted whole, as compiled."""
    family = twin_of(family)
    transformer, kinds, blocks = prepared(family, adapter, dtype, weights, fp8_products)
    masks = Masks()
    masks.watch(transformer)
    inputs = example(family, shapes, batch)
    pieces = as_compiled() if whole else nullcontext()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.random.fork_rng(devices=[]), pieces:
        fill(transformer)
        if checkpointing != "off":
            transformer.enable_gradient_checkpointing(_checkpoint(checkpointing))
        batched = {name: torch.empty(tensor) if isinstance(tensor, tuple) else tensor for name, tensor in inputs[0].items()}
        with CardArithmetic(), Ledger(masks, listed=True) as ledger:
            ledger.leave_out([*transformer.parameters(), *transformer.buffers()])
            marks = _Marks(ledger, blocks)
            _step(family, transformer, batched, inputs[1], dtype, marks)
    keeps = partial(kept_by_compiler, ledger.entries, decided=checkpointing != "off")
    return Rehearsed(*(_measured(ledger, marks, kinds, blocks, checkpointing, kept) for kept in (None, keeps)))


def prepared(
    family: ModelFamily, adapter: AdapterSettings | None, dtype: torch.dtype, weights: str = "", fp8_products: bool = False
) -> tuple[Any, list[Kind], list[nn.Module]]:
    """The transformer of a `twin_of` a family with its LoRA, on the meta device, the kinds of its blocks and the one of each."""
    from ..adapters.lora import Lora

    transformer: Any = family.load_transformer(dtype)
    kinds = kinds_of(transformer)
    blocks = shorten(transformer, kinds)
    if weights:
        hold(transformer, weights, fp8_products)
    if adapter is not None:
        Lora.attach(transformer, family.spec, adapter, 0).train(True)
    return transformer, kinds, blocks


def example(family: ModelFamily, shapes: Shapes, batch: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A batch: shapes of what is encoded of the clips, small values as they are, and the transformer's text arguments."""
    spec = family.spec
    with FakeTensorMode():
        stacked = family.stack([{name: torch.empty(shape) for name, shape in shapes.encoding.items()}] * batch)
    encoding: dict[str, Any] = {}
    for name, tensor in stacked.items():
        small = name != "latents" and tensor.numel() // batch < 4096  # such as indices, which decide what is computed
        encoding[name] = torch.zeros(tensor.shape, dtype=torch.int64) if small else tuple(tensor.shape)
    if spec.guidance_input is not None:
        encoding["guidance"] = torch.full((batch,), spec.guidance_input)
    if spec.first_frame_optional:
        encoding["has_first_frame"] = torch.ones(batch, dtype=torch.bool)
    text = family.text_inputs([{name: torch.ones(shape) for name, shape in shapes.text.items()}] * batch)
    return encoding, text


class _Marks:
    """Tells the ledger which block computes, forward and backward."""

    def __init__(self, ledger: Ledger, blocks: Sequence[nn.Module]) -> None:
        self.ledger, self.turned = ledger, False
        self.ends = [0] * len(blocks)  # of the forward passes
        self.turn = 0  # when the backward pass begins
        self.back = len(blocks)  # the block whose backward pass is on
        self.outputs: list[list[Storage]] = [[] for _ in blocks]
        for number, block in enumerate(blocks):
            block.register_forward_pre_hook(partial(self._enter, number))
            block.register_forward_hook(partial(self._leave, number))

    def _enter(self, number: int, block: nn.Module, args: Any) -> None:
        if not self.turned:
            self.ledger.begin(f"{FORWARD} {number}")

    def _leave(self, number: int, block: nn.Module, args: Any, out: Any) -> None:
        if self.turned:
            return
        self.ends[number] = self.ledger.time
        self.ledger.begin("outside")
        for tensor in out if isinstance(out, tuple) else (out,):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(partial(self._back, number))
                storage = self.ledger.storage(tensor)
                if storage and storage not in self.outputs[number]:  # of one that is cut in two
                    self.outputs[number].append(storage)

    def _back(self, number: int, grad: Tensor) -> None:
        if number < self.back:  # a block may hand on what another one made
            self.back = number
            self.ledger.begin(f"{BACKWARD} {number}")


def _step(
    family: ModelFamily, transformer: Any, batch: dict[str, Tensor], text: dict[str, Tensor], dtype: torch.dtype, marks: _Marks
) -> None:
    noise, sigma = torch.empty_like(batch["latents"]), torch.full((len(batch["latents"]),), 0.5)
    with torch.autocast("cpu", dtype) if dtype != torch.float32 else nullcontext():
        inputs = family.model_inputs(batch, text, noise, sigma)
        error = (family.predict(transformer, inputs).to(inputs.target.dtype) - inputs.target).square()
        loss = error.flatten(1).mean(1).sum()
    marks.turned, marks.turn = True, marks.ledger.time
    loss.backward()
    marks.ledger.begin("end")


def _checkpoint(way: Checkpointing) -> Callable[..., Any]:
    """What diffusers calls in a block's place."""

    def checkpointed(block: Callable[..., Any], *args: Any) -> Any:
        def computed(*args: Any) -> Any:
            with CardArithmetic():  # autograd recomputes outside of function modes
                return block(*args)

        policy = partial(create_selective_checkpoint_contexts, partial(kept_or_computed, way))
        contexts: dict[str, Any] = {"context_fn": policy} if way != "full" else {}
        again: Any = checkpoint
        return again(computed, *args, use_reentrant=False, preserve_rng_state=False, **contexts)

    return checkpointed


def _measured(
    ledger: Ledger, marks: _Marks, kinds: Sequence[Kind], blocks: Sequence[nn.Module], way: Checkpointing,
    keeps: Callable[[Stretch, Stretch], set[Storage]] | None,
) -> Rehearsal:  # fmt: skip
    """What a step took; where blocks are compiled, `keeps` says by a block's forward and backward pass what it keeps between them."""
    fused = keeps is not None
    alive = ledger.alive(fused)
    counted = [storage for storage in ledger.storages if storage.written or not fused]
    peaks: dict[str, int] = {}
    for (start, name), (end, _) in zip(ledger.begun, [*ledger.begun[1:], (ledger.time, "")], strict=True):
        peaks[name] = max(peaks.get(name, 0), *alive[start + 1 : end + 1], 0)
    stretches = {stretch.name: stretch for stretch in ledger.stretches}
    later = marks.turn
    outside = sum(s.size for s in counted if s.stretch.name in ("start", "outside") and s.start <= later and not s.freed_by(later))
    parts: list[Part] = []
    before_forward = before = 0
    gradients = [sum(p.numel() * p.element_size() for p in block.parameters() if p.requires_grad) for block in blocks]
    for number, (kind, block_gradients) in enumerate(zip(kinds, gradients, strict=True)):
        forward, backward = (stretches.get(f"{turn} {number}", Stretch(turn)) for turn in (FORWARD, BACKWARD))
        born = [storage for storage in counted if storage.stretch is forward]
        kept_forward = sum(s.size for s in born if not s.freed_by(marks.ends[number]))
        kept_here = sum(s.size for s in born if not s.freed_by(later))
        boundary = sum(s.size for s in marks.outputs[number])
        # The next block of the kind keeps what goes into it; the last one's output goes elsewhere.
        outputs = [s for s in marks.outputs[number] if s.stretch is forward]
        kept = kept_here + sum(s.size for s in outputs if s.freed_by(later))
        after = sum(gradients[number + 1 :])
        peak_forward = peaks.get(forward.name, 0) - outside - before_forward
        peak_backward = peaks.get(backward.name, 0) - outside - before - after
        before_forward, before = before_forward + kept_forward, before + kept_here
        if keeps is not None:
            least = sum(s.size for s in keeps(forward, backward).union(outputs))
            kept_forward, kept, peak_backward = least, least, peak_backward - kept + least
        parts.append(Part(kind, way, kept_forward, kept, boundary, peak_forward, peak_backward, block_gradients, forward, backward))
    own = [stretches[name] for name in ("start", "outside", "end") if name in stretches]
    return Rehearsal(tuple(parts), outside, max(peaks.get("start", 0), peaks.get("outside", 0) - before), tuple(own))
