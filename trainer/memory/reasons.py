"""Why a plan is as it is, and what would make the training faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .card import GB
from .step_time import DISK, told

if TYPE_CHECKING:
    from ..job import MemorySettings, TrainingJob
    from .choices import Decoding
    from .choosing import Candidate, Limits
    from .prediction import Predictor
    from .sampling_memory import SamplingMemory


def why(decoding: Decoding) -> list[str]:
    """Why sample videos are decoded so."""
    reasons = []
    if decoding.parked:
        reasons.append("the transformer is on the host while samples are decoded, as both take more of the card than training.")
    if decoding.tiled:
        reasons.append("samples are decoded in tiles, as whole frames do not fit; clips are encoded whole, as their latents are cached.")
    return reasons


def reasons_of(predictor: Predictor, found: Candidate, job: TrainingJob) -> list[str]:
    """Why it was chosen."""
    choices, card, memory = found.choices, predictor.card, job.memory
    reasons = _of_weights(found, memory)
    if choices.offload:
        blocks, free = predictor.offloaded(choices), memory.layer_offload_fraction < 0
        because = "all of them do not fit" if free else f"memory.layer_offload_fraction is {memory.layer_offload_fraction:g}"
        reasons.append(f"{blocks} of {predictor.sizes.blocks} blocks lie outside of the card, as {because}.")
    if choices.at_once:
        masks = ", but for the masks of adapter.dropout" if predictor.adapter.dropout else ""
        same = f"their gradients added up: the same step{masks}, in less of the card."
        reasons.append(f"batches are computed {choices.at_once} at a time and {same}")
    if choices.on_disk:
        reasons.append(
            f"offloaded blocks lie on disk, as the free host memory is too small for them; they are taken to be read at {DISK:g} GB/s, "
            f"and host memory is copied at {card.pcie:.0f}."
        )
    if not choices.compile and not predictor.family.spec.compiles:
        reasons.append("nothing is compiled: in this model's blocks the data decide what is computed.")
    elif not choices.compile and not card.compiles:
        reasons.append("nothing is compiled: this card is too old for Triton.")
    if not card.fp8_products and predictor.in_fp8(choices):
        reasons.append("weights are held in fp8 and multiplied in the run's precision: products in fp8 need a card of RTX 40 or newer.")
    elif job.compute.fp8_products == "on" and not choices.fp8_products:
        reasons.append("no product is in fp8: that needs weights in fp8, and a card of RTX 40 or newer.")
    return reasons


def advice_of(predictor: Predictor, found: Candidate, limits: Limits) -> list[str]:
    """What would make training faster, or safe."""
    choices, advice = found.choices, list[str]()
    if choices.on_disk:
        advice.append("more host memory would make steps faster: offloaded blocks are read from disk twice a step.")
    if lacks := found.prediction.host_lacks:
        there = (found.prediction.host - lacks) / GB
        advice.append(
            f"{found.prediction.host / GB:.1f} GB of host memory are needed and {there:.1f} may be taken: close other programs, or the "
            "system pages to its disk, or ends the run."
        )
    if not choices.compile and predictor.family.spec.compiles and predictor.card.compiles and not limits.compiler:
        advice.append("Triton would make steps about 1.3 times as fast: on Windows install triton-windows.")
    return advice


def advice_of_vae(sampling: SamplingMemory, encoding: float, limits: Limits, may_tile: bool) -> list[str]:
    """What would make samples and the encoding of clips, which takes so many bytes, fit or take less."""
    advice = list[str]()
    if sampling.taken > limits.card:
        advice.append("drawing samples takes more than there is: give samples.prompts a smaller size, or set samples.every=0.")
    if sampling.tiling_helps:
        advice.append("memory.vae_tiling=true lowers what decoding sample videos takes.")
    if encoding > limits.card:
        cure = "set memory.vae_tiling=true, or smaller buckets" if may_tile else "use smaller buckets"
        advice.append(f"encoding clips takes more than there is: {cure}.")
    return advice


def _of_weights(found: Candidate, memory: MemorySettings) -> list[str]:
    """Why weights are less exact than they could be, where that was left to the plan."""
    weights, instead = found.choices.weights, found.passed_over
    if memory.weights != "auto" or weights == "as stored":
        return []
    if instead is None:
        return [f"weights are held in {weights}, as more exact ones do not fit."]
    exact, quantised = told(instead.prediction.seconds), told(found.prediction.seconds)
    return [f"weights are held in {weights}: a step takes {quantised} s, and {exact} s with weights {_held(instead)}."]


def _held(candidate: Candidate) -> str:
    """How weights are held, and where blocks lie if some are offloaded."""
    choices, place = candidate.choices, "disk" if candidate.prediction.on_disk else "host"
    form = choices.weights if choices.weights == "as stored" else f"in {choices.weights}"
    return f"{form} and {choices.offload:.0%} of the blocks on the {place}" if choices.offload else form
