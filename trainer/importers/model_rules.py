"""Rules for what names a model, its parts and what is fed to it."""

from __future__ import annotations

from .families import Family, find_family
from .result import Entry, Report
from .rules import Rule, plain, to
from .sizes import joined

SINGLE_FILES = (".safetensors", ".gguf")
PARTS = {  # setting of a part -> what to choose there
    "transformer": "the diffusion model's file, of ComfyUI's models/diffusion_models",
    "vae": "the VAE's file, of ComfyUI's models/vae",
    "text_encoders": "each text encoder's file, of ComfyUI's models/text_encoders",
    "image_encoder": "the image encoder's file, of ComfyUI's models/clip_vision",
}
ONE_OR_OTHER = "a job takes a diffusers folder or hub id in model.source, or single files in model.transformer, .vae and .text_encoders"
IN_DTYPE = "the model is in compute.dtype"
_FORMS = {  # a type's name, without case and _, -> memory.weights
    "float8": "fp8", "float8e4m3fn": "fp8", "float8e5m2": "fp8", "floatw8a8": "fp8", "floatw8a8compressed": "fp8",
    "int8": "int8", "intw8a8": "int8", "intw8a8compressed": "int8", "nfloat4": "nf4", "nf4": "nf4",
    "gguf": "as stored", "ggufa8float": "as stored", "ggufa8int": "as stored",
}  # fmt: skip
_WHOLE = ("bfloat16", "float16", "float32", "tfloat32", "bf16", "fp16", "fp32")
_SCALED = "e4m3 with a scale for each row"
_PRODUCTS = "products are in compute.dtype, not in 8 bits"
_COMPRESSED = "weights are not compressed beyond that"


def family(report: Report, entry: Entry) -> None:
    """The rule for a model type: sets the family, or says that this version cannot train it."""
    report.family = found = find_family(str(entry.value)) or Family(f"'{entry.value}'")
    if not found.trained:
        reason = f", since {found.instead}" if found.instead else ""
        report.unsupported(entry, f"{found} cannot be trained by this version{reason}; choose another model in model.source")
        return
    report.put("model.family", found.trained)
    report.mapped(entry, "model.family", found.trained)


def model(report: Report, entry: Entry) -> None:
    """The rule for a whole model: a diffusers folder, a hub id, or a single file."""
    if is_single(entry.value):
        part("transformer")(report, entry)
    elif _untrained(report):
        report.unsupported(entry, f"{report.family} cannot be trained by this version")
    elif report.value("model.transformer"):
        taken = report.value("model.transformer")
        report.unsupported(entry, f"{ONE_OR_OTHER}; '{taken}' is taken: for the rest set model.text_encoders, and model.vae if it has none")
    else:
        to("model.source")(report, entry)


def part(name: str, slot: str = "") -> Rule:
    """The rule for the place of a part: single files become settings, the others are told what to choose.

    `slot` is the setting if it is not that of `name`.
    """
    target, choose = f"model.{slot or name}", PARTS[name]

    def rule(report: Report, entry: Entry) -> None:
        if _untrained(report):
            report.unsupported(entry, f"{report.family} cannot be trained by this version")
        elif report.value("model.source"):
            report.unsupported(entry, f"{ONE_OR_OTHER}; the first is taken")
        elif not all(map(is_single, entry.values)):
            report.unsupported(entry, f"no single file of .safetensors or .gguf; in {target} choose {choose}")
        elif name != "text_encoders" and report.value(target) not in (None, "", str(entry.value)):
            report.unsupported(entry, f"another setting names this part, which is taken: {target} is '{report.value(target)}'")
        else:
            files = list(map(str, entry.values))
            report.put(target, [*(report.value(target) or []), *files] if name == "text_encoders" else files[0])
            report.mapped(entry, target, ", ".join(files))

    return rule


def one_expert(report: Report, entry: Entry) -> None:
    """The rule for a diffusion model's file; where the noise levels chose the second of two experts, it is that of this one."""
    part("transformer", "transformer_low" if report.value("model.expert") == "low" else "")(report, entry)
    if report.value("model.expert") in ("high", "low"):
        both = "model.transformer takes the file for high noise, model.transformer_low the other"
        report.notes.append(f"A model of two experts is loaded whole: {both}.")


def guidance(report: Report, entry: Entry) -> None:
    """The rule for what a guidance-distilled model is fed as guidance in training."""
    if report.family and report.family.guided:
        to("objective.guidance")(report, entry)
    else:
        report.ignored(entry, "only guidance-distilled models are fed one, in training HunyuanVideo and FramePack")


def noise_levels(expert: str, whole: int) -> Rule:
    """The rule for the end of the trained noise levels on one side: at a boundary of a model with two experts it chooses one of them.

    Where both ends are at boundaries they leave neither expert's levels, and none is chosen.
    """

    def rule(report: Report, entry: Entry) -> None:
        if entry.value == whole:
            report.ignored(entry, "all noise levels are trained on this side")
        elif report.family and entry.value in report.family.boundaries and report.value("model.expert") not in (None, expert):
            why = "noise levels that end at a boundary on both sides are those of neither expert"
            report.withdraw("model.expert", why)
            report.put("model.expert", "all")
            report.unsupported(entry, why)
        elif report.family and entry.value in report.family.boundaries:
            report.put("model.expert", expert)
            report.mapped(entry, "model.expert", expert)
        else:
            report.unsupported(entry, "noise levels can only be limited to those of one expert of a model with two: set model.expert")

    return rule


def size_shift(report: Report, entry: Entry) -> None:
    """The rule for a shift of the noise levels that grows with the size."""
    if report.family and report.family.shifts_by_size:
        report.ignored(entry, f"the shift of {report.family} grows with the size here too, unless objective.shift is set")
    else:
        report.unsupported(entry, "objective.shift is one value for all sizes")


def note_shift(report: Report, trainer: str) -> None:
    """A note if the file of a trainer that shifts noise levels only where it is told to tells no shift."""
    if report.value("objective.shift") is None:
        ours = "the model's own shift is used here: objective.shift 1 does the same"
        report.notes.append(f"{trainer} does not shift noise levels unless its file says so, and {ours}.")


def note_model(report: Report) -> None:
    """Notes on what the job lacks of its model, and on what a family does by itself."""
    if report.value("model.transformer"):
        if not report.value("model.tokenizers") and report.value("model.family") != "wan":
            cure = "model.tokenizers takes the folder comfy of a ComfyUI installation."
            report.notes.append(f"Files of other text encoders than UMT5 hold no tokenizer: {cure}")
    elif not report.value("model.source"):
        files = "model.transformer and the settings beside it single files as ComfyUI has them"
        report.notes.append(f"The model is not set: model.source takes a diffusers folder or a hub id, {files}.")
    if report.family and report.family.first_frame_optional and report.value("objective.first_frame_probability") is None:
        share = "half of the examples begin with their own first frame; objective.first_frame_probability 0 trains text to video alone"
        report.notes.append(f"{report.family} can start from a picture: {share}.")


def _untrained(report: Report) -> bool:
    return report.family is not None and not report.family.trained


def is_single(value: object) -> bool:
    """Whether a place is that of a single file."""
    return str(value).lower().endswith(SINGLE_FILES)


def frozen_weights(report: Report, entry: Entry) -> None:
    """The rule for the type in which the frozen transformer is held: its linear layers are quantised as it is loaded."""
    name = plain(entry.value)
    if form := _FORMS.get(name):
        report.put("memory.weights", form)
        in_fp8 = name.startswith("floatw8a8")
        products = _PRODUCTS if "a8" in name and not in_fp8 else ""
        why = joined(_SCALED if form == "fp8" else "", products, _COMPRESSED if name.endswith("compressed") else "")
        report.mapped(entry, "memory.weights", form, why)
        if in_fp8:
            report.put("compute.fp8_products", "on")
    elif name in (*_WHOLE, "none"):
        report.ignored(entry, IN_DTYPE)
    else:
        report.unsupported(entry, "memory.weights knows only: as stored, unquantized, fp8, int8, nf4")
