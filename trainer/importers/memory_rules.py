"""Rules for what is traded for memory and speed: offloading, compiling, kernels of attention, the LoRA's precision."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from .result import Entry, Report
from .rules import as_number, is_off, plain
from .sizes import joined, whole

AUTO_OFFLOAD = "memory.layer_offload_fraction is left at auto, which offloads as many blocks as must be"
GRADIENTS_STAY = "gradients are kept until the step, which costs little: those of a LoRA are small"
NOT_TRAINING = "text encoders and the VAE are on the card only while they encode"
AS_AUTO = "kernels differ in speed alone: compute.attention at auto takes the fastest that is there"
_OWN_FLASH = "PyTorch's own; those of an installed flash-attn are 'flash-attn 2' and 'flash-attn 3'"
_KERNELS = {  # a kernel's name, without case, - and _, -> compute.attention
    "flash": "flash", "flashvarlen": "flash", "flashattn": "flash", "nativeflash": "flash", "cudnn": "cudnn", "nativecudnn": "cudnn",
    "nativeefficient": "efficient", "nativemath": "math",
}  # fmt: skip
_PLAIN_KERNELS = ("sdp", "native", "torchsdpa", "default", "flex", "xformers")
_PRECISIONS = {"float32": "fp32", "fp32": "fp32", "tfloat32": "fp32", "bfloat16": "bf16", "bf16": "bf16"}


def lora_precision(report: Report, entry: Entry) -> None:
    """The rule for the type that the LoRA is kept in while it is trained."""
    if value := _PRECISIONS.get(plain(entry.value)):
        report.put("adapter.precision", value)
        report.mapped(entry, "adapter.precision", value, "steps are rounded up or down by chance" if value == "bf16" else "")
    else:
        report.unsupported(entry, "adapter.precision knows only: fp32, bf16")


def compiling(report: Report, entry: Entry) -> None:
    """The rule for a switch that compiles the model."""
    if is_off(entry.value):
        report.put("compute.compile", "off")
        report.mapped(entry, "compute.compile", "off")
    elif report.family and not report.family.compiles:
        report.unsupported(entry, f"in the blocks of {report.family.title} the data decide what is computed, so that they do not compile")
    else:
        report.put("compute.compile", "on")
        report.mapped(entry, "compute.compile", "on", "each block of the model by itself")


def attention(report: Report, entry: Entry) -> None:
    """The rule for the kernel of attention; one that has no backward pass draws samples alone."""
    name = plain(entry.value)
    if kernel := _KERNELS.get(name):
        report.put("compute.attention", kernel)
        why = _OWN_FLASH if kernel == "flash" and name != "nativeflash" else ""
        report.mapped(entry, "compute.attention", kernel, why)
    elif name.startswith("sage"):
        sampling_attention(report, entry)
    elif name in _PLAIN_KERNELS:
        report.ignored(entry, AS_AUTO)
    elif re.search(r"sparse|bsa|moba|sla|nabla", name):
        report.unsupported(entry, "sparse attention is not supported yet")
    else:
        report.unsupported(entry, "compute.attention knows only: auto, flash, cudnn, efficient, math, flash-attn 2, flash-attn 3")


def sampling_attention(report: Report, entry: Entry) -> None:
    """The rule for the kernel that draws samples: SageAttention, or that of training."""
    if plain(entry.value).startswith("sage"):
        report.put("compute.sampling_attention", "sage")
        report.mapped(entry, "compute.sampling_attention", "sage", "it has no backward pass, and draws sample videos alone")
    else:
        report.ignored(entry, "sample videos are drawn by the kernel of training, or by SageAttention")


def attention_of_parts(report: Report, entry: Entry) -> None:
    """The rule for kernels of several parts, each written part:kernel."""
    kernels = [kernel for part, _, kernel in (str(value).partition(":") for value in entry.values) if part == "transformer"]
    if kernels:
        rule = sampling_attention if "inference" in entry.key else attention
        rule(report, replace(entry, value=kernels[-1]))
    else:
        report.ignored(entry, "the attention of the transformer alone can be chosen")


def layer_offload(report: Report, entry: Entry) -> None:
    """The rule for the share of the model's layers that lie in the host's memory; none at all is not asked for here."""
    share = as_number(entry.value)
    if is_off(share):
        report.ignored(entry, f"it is off; {AUTO_OFFLOAD}")
    else:
        report.put("memory.layer_offload_fraction", share)
        report.mapped(entry, "memory.layer_offload_fraction", share)


def swapped_blocks(report: Report, entry: Entry) -> None:
    """The rule for a number of blocks that lie in the host's memory, as a share of those that the model has.

    Where blocks are of two kinds, one unit is half a double block and a single block, and one single block is added
    (musubi-tuner's way of counting, which diffusion-pipe follows: `enable_block_swap` of its HunyuanVideo and HiDream).
    """
    count = whole(entry.value)
    if count is None:
        report.ignored(entry, f"it is off; {AUTO_OFFLOAD}")
        return
    known = report.family.block_counts(_model_names(report)) if report.family else None
    if known is None:
        report.put("memory.layer_offload_fraction", -1.0)
        why = f"{count} blocks are asked for, and how many this model has its name does not tell: as many as must be are offloaded"
        report.mapped(entry, "memory.layer_offload_fraction", -1.0, why)
        return
    double, single = known
    swapped = min(count // 2 + 2 * (count - count // 2) + 1 if single else count, double + single)
    share = math.floor(swapped / (double + single) * 10**4) / 10**4  # down, as a run rounds the number of blocks up
    report.put("memory.layer_offload_fraction", share)
    two_kinds = f"{count} there stand for {swapped}, as the blocks are of two kinds" if single else ""
    report.mapped(entry, "memory.layer_offload_fraction", share, joined(f"{swapped} of {double + single} blocks", two_kinds))


def _model_names(report: Report) -> list[str]:
    """All that the files say of the model: its folder, its files, its type."""
    entries = [entry for document in report.documents for entry in document.entries() if entry.key.startswith(("model", "dit", "task"))]
    return [str(value) for entry in entries for value in entry.values]
