"""chosen: of all ways of holding and computing a transformer the one to take for a card."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .card import CONTEXT, GB
from .choices import LIGHTER, Checkpointing, Choices, Weights, settled
from .prediction import Micro, Prediction, Predictor

if TYPE_CHECKING:
    from ..job import ComputeSettings, MemorySettings

FRAGMENTS = 1.03  # what PyTorch's allocator reserves for each byte that is used at the peak
SPLIT = (1, 2, 4)  # examples of a batch that may be computed together, beside all
WHOLE = 1.05  # batches are only split if a step of whole ones takes longer than this for each second of a split one's
EXACTNESS = 1.25  # less exact weights are only taken if a step with more exact ones takes longer than this for each second of theirs
HOST_SHARE = 0.9  # of the free host memory that a run may take before offloaded weights lie on disk
CHECKPOINTING: tuple[Checkpointing, ...] = ("selective", "full", "offloaded")  # the others are those with all blocks lighter
SPARE = 1.05  # of a peak that is raised for speed alone: an allocator that must give back and ask anew costs more than is gained
KEEPS_MORE = 2  # activations with lighter checkpointing are at least so many times those without


@dataclass(frozen=True)
class Limits:
    """What may be used: bytes of the card, its context and the allocator's gaps counted, and steps to train."""

    card: float
    steps: int
    compiler: bool  # whether Triton is installed

    def fits(self, prediction: Prediction) -> bool:
        """Whether training stays inside the card's memory."""
        return taken(prediction.peak) <= self.card


@dataclass(frozen=True)
class Candidate:
    """Choices and what they come to; of the ones to take also what has more exact weights and was passed over for them."""

    choices: Choices
    prediction: Prediction
    passed_over: Candidate | None = None


def taken(peak: float) -> float:
    """Bytes that a card loses to a process whose allocator holds `peak`."""
    return peak * FRAGMENTS + CONTEXT * GB


def triton_installed() -> bool:
    """Whether torch.compile can make kernels for a card here."""
    return importlib.util.find_spec("triton") is not None


def chosen(predictor: Predictor, memory: MemorySettings, compute: ComputeSettings, limits: Limits) -> Candidate | None:
    """The most exact weights whose step is not much slower than that of less exact ones, and the fastest way to compute them.

    Ways are compared by a few of the micro-batches, which saves most of the rehearsals. None if nothing fits.
    """
    compared = replace(predictor, micros=representatives(predictor.micros))
    floor = smallest(predictor, memory, compute, limits)
    if not limits.fits(floor.prediction):
        return None
    best: list[Candidate] = []
    for weights in _weights(predictor, memory):
        if best and not _hampered(best[-1]) and not _multiplied_in_fp8(predictor, compute, weights):
            continue  # it can save neither copies nor arithmetic nor host memory
        found = list(_of_weights(compared, memory, compute, limits, weights))
        if found:
            best.append(min(found, key=lambda each: (each.prediction.host_lacks, _weighted_seconds(each, limits))))
    if not best:  # the fastest way of computing is not always the smallest
        return _of_all(predictor, floor.choices)
    least = min(candidate.prediction.host_lacks for candidate in best)
    best = [candidate for candidate in best if candidate.prediction.host_lacks == least]
    fastest = min(candidate.prediction.seconds for candidate in best)
    found = next(candidate for candidate in best if candidate.prediction.seconds <= EXACTNESS * fastest)
    passed_over = None if found is best[0] else _of_all(predictor, best[0].choices)
    return replace(_of_all(predictor, found.choices), passed_over=passed_over)


def _hampered(candidate: Candidate) -> bool:
    """Whether smaller weights would help it otherwise than by their arithmetic."""
    return _copies(candidate.choices) or candidate.prediction.host_lacks > 0


def _copies(choices: Choices) -> bool:
    """Whether steps copy something from the host."""
    return choices.offload > 0 or choices.checkpointing == "offloaded"


def _multiplied_in_fp8(predictor: Predictor, compute: ComputeSettings, weights: Weights) -> bool:
    return compute.fp8_products != "off" and predictor.card.fp8_products and predictor.in_fp8(Choices(weights=weights))


def _of_all(predictor: Predictor, choices: Choices) -> Candidate:
    """What choices come to by all micro-batches."""
    prediction = predictor.predict(choices)
    return Candidate(replace(choices, on_disk=prediction.on_disk), prediction)


def representatives(micros: Sequence[Micro]) -> list[Micro]:
    """The micro-batches that take most memory, as a whole and in each split, and in place of all others the middle one of them."""
    largest = dict.fromkeys(max(micros, key=lambda micro: micro.in_pieces(size)[0].size()) for size in (0, *SPLIT))
    others = sorted((micro for micro in micros if micro not in largest), key=Micro.size)
    middle = [replace(others[len(others) // 2], count=sum(micro.count for micro in others))] if others else []
    return [*largest, *middle]


def _weights(predictor: Predictor, memory: MemorySettings) -> list[Weights]:
    """The forms of weights to try, the most exact first."""
    if memory.weights != "auto":
        return [memory.weights]
    return ["as stored", "nf4"] if predictor.form(Choices()) else ["as stored", "fp8", "nf4"]


def _of_weights(
    predictor: Predictor, memory: MemorySettings, compute: ComputeSettings, limits: Limits, weights: Weights
) -> Iterator[Candidate]:
    """What fits with weights in a form, for batches as a whole and split."""
    plain = replace(settled(memory, compute), weights=weights)
    most = max(micro.batch for micro in predictor.micros)
    copied = True
    for at_once in (0, *(number for number in SPLIT if number < most)):
        if at_once > 1 and not copied:
            return  # more at once only spare copies
        found = list(_at(predictor, memory, compute, limits, replace(plain, at_once=at_once)))
        copied = all(_copies(each.choices) for each in found)
        yield from found


def _at(predictor: Predictor, memory: MemorySettings, compute: ComputeSettings, limits: Limits, plain: Choices) -> Iterator[Candidate]:
    """What fits of one form and batch: the least checkpointing without offloading that may be fastest, else each way with the least."""
    wanted = memory.gradient_checkpointing
    free = memory.layer_offload_fraction < 0
    ways = (wanted,) if wanted != "auto" else CHECKPOINTING
    tried: dict[Checkpointing, Choices] = {}
    for way in ways:
        shares = (plain.offload,) if not free else (0.0,) if way not in ("full", "offloaded", wanted) else (1.0, 0.0)
        if not _may_fit(predictor, limits, replace(plain, checkpointing=way), shares):
            continue
        choices = compiled(predictor, compute, limits, replace(plain, checkpointing=way))
        prediction = predictor.predict(choices)
        if limits.fits(prediction):
            found = Candidate(choices, prediction)
            yield most_lighter(predictor, found, limits) if wanted == "auto" else found
            asks = way == "selective" and not choices.compile  # what is to be kept, of every operation: full may be faster
            if way != "offloaded" and not asks:
                return
        tried[way] = choices
    for way, choices in tried.items():
        if free and way in ("full", "offloaded", wanted) and (found := least_offload(predictor, choices, limits)):
            yield found


def _may_fit(predictor: Predictor, limits: Limits, choices: Choices, shares: Sequence[float]) -> bool:
    """Whether choices can fit with a share of the blocks offloaded, before they are rehearsed with their form of weights.

    A step holds at least what it holds with weights as they are computed with, which are neither dequantised nor rounded, but for
    the weights themselves. That is rehearsed once for all forms.
    """
    alone = replace(predictor, micros=[predictor.largest(choices)])
    for share, compiles in itertools.product(shares, (False, True)):
        plain = replace(choices, weights="unquantized", fp8_products=False, offload=share, compile=compiles)
        prediction = alone.predict(plain)
        if taken(prediction.peak - prediction.weights + predictor.weights_on_card(replace(choices, offload=share))) <= limits.card:
            return True
    return False


def most_lighter(predictor: Predictor, found: Candidate, limits: Limits) -> Candidate:
    """What fits with as many of the blocks checkpointed lighter as still fit, if that is faster."""
    choices, blocks = found.choices, predictor.sizes.blocks
    room = limits.card - taken(found.prediction.peak)
    if choices.checkpointing not in LIGHTER or room < (KEEPS_MORE - 1) * found.prediction.activations / blocks:
        return found
    low, high = 0, blocks
    while low < high:
        middle = (low + high + 1) // 2
        fits = taken(SPARE * predictor.predict(replace(choices, lighter=middle / blocks)).peak) <= limits.card
        low, high = (middle, high) if fits else (low, middle - 1)
    whole = low == blocks
    lighter = replace(choices, checkpointing=LIGHTER[choices.checkpointing]) if whole else replace(choices, lighter=low / blocks)
    better = Candidate(lighter, predictor.predict(lighter))
    if _run_seconds(better, limits) >= _run_seconds(found, limits):
        return found
    return most_lighter(predictor, better, limits) if whole else better


def least_offload(predictor: Predictor, choices: Choices, limits: Limits) -> Candidate | None:
    """The choices with as few blocks offloaded as fit; None if all of them are too few."""
    blocks = predictor.sizes.blocks
    low, high = 1, blocks
    if not limits.fits(predictor.predict(replace(choices, offload=1.0))):
        return None
    while low < high:
        middle = (low + high) // 2
        fits = limits.fits(predictor.predict(replace(choices, offload=middle / blocks)))
        low, high = (low, middle) if fits else (middle + 1, high)
    choices = replace(choices, offload=low / blocks)
    return Candidate(choices, predictor.predict(choices))


def compiled(predictor: Predictor, compute: ComputeSettings, limits: Limits, choices: Choices) -> Choices:
    """The choices with blocks compiled and products in fp8 where the settings and the card allow, if a run takes less time so."""
    ways = computed(predictor, compute, limits, choices)
    return min(ways, key=lambda found: _run_seconds(Candidate(found, predictor.predict(found)), limits))


def computed(predictor: Predictor, compute: ComputeSettings, limits: Limits, choices: Choices) -> list[Choices]:
    """The choices with each way of computing them that the settings and the card allow."""
    products = compute.fp8_products if predictor.card.fp8_products and predictor.in_fp8(choices) else "off"
    plain = replace(choices, compile=False, fp8_products=products == "on")
    ways = [plain] if compute.compile != "on" else []
    if compute.compile == "on" or (compute.compile == "auto" and _compiles(predictor, limits)):
        ways.append(replace(plain, compile=True))
        if products == "auto":
            ways.append(replace(plain, compile=True, fp8_products=True))
    return ways


def _compiles(predictor: Predictor, limits: Limits) -> bool:
    return limits.compiler and predictor.card.compiles and predictor.family.spec.compiles


def _weighted_seconds(candidate: Candidate, limits: Limits) -> float:
    return _run_seconds(candidate, limits) * (WHOLE if candidate.choices.at_once else 1)


def _run_seconds(candidate: Candidate, limits: Limits) -> float:
    return candidate.prediction.seconds * limits.steps + candidate.prediction.compile_seconds


def smallest(predictor: Predictor, memory: MemorySettings, compute: ComputeSettings, limits: Limits) -> Candidate:
    """What takes least of the card of all that the settings allow, or the first such way that fits; `chosen` finds one then.

    Single examples, all blocks and activations on the host. Its time is that of the largest micro-batch alone, as no other is
    rehearsed.
    """
    largest = predictor.largest(Choices(at_once=1))
    alone = replace(predictor, micros=[largest])
    split = max(micro.batch for micro in predictor.micros) > 1
    wanted = memory.gradient_checkpointing
    plain = replace(settled(memory, compute), at_once=int(split), checkpointing="offloaded" if wanted == "auto" else wanted)
    shares = (1.0, 0.0) if memory.layer_offload_fraction < 0 else (memory.layer_offload_fraction,)  # copies of few blocks take more
    found: list[Candidate] = []
    for choices in _small(alone, memory, compute, limits, plain):
        for share in shares:
            offloaded = replace(choices, offload=share)
            found.append(Candidate(offloaded, alone.predict(offloaded)))
            if limits.fits(found[-1].prediction):
                return found[-1]
    return min(found, key=lambda each: each.prediction.peak)


def _small(predictor: Predictor, memory: MemorySettings, compute: ComputeSettings, limits: Limits, plain: Choices) -> Iterator[Choices]:
    """Forms of weights, and ways of computing them, of which one takes least; nf4 first, which most often does.

    Others only may where they are smaller than nf4, or multiplied as they are: compiled code keeps what it dequantised.
    """
    nf4 = predictor.weight_size(Choices(weights="nf4"))
    for weights in reversed(_weights(predictor, memory)):
        choices = replace(plain, weights=weights)
        small = memory.weights != "auto" or predictor.weight_size(choices) <= nf4
        yield from (way for way in computed(predictor, compute, limits, choices) if small or way.fp8_products)
