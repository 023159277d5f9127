"""LoRA files made of others: several merged by weight, one resized, one extracted from two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import fail
from ..models import known_family, open_model
from .checkpoints import FileWeights, FolderWeights
from .combining import Loss, Size, merged, resized
from .converting import Written, read_fitting, require_new, write
from .extraction import Extracted, extract
from .names import Convention
from .reading import LoraFile, open_lora
from .recognition import family_of
from .weights import check_changed, check_finite

if TYPE_CHECKING:
    import torch

    from ..events import EventLog
    from ..models.base import ModelFamily

TRIGGER, TITLE, MERGED = "modelspec.trigger_phrase", "modelspec.title", "modelspec.merged_from"


def merge_files(
    files: Sequence[Path], factors: Sequence[float], output: Path, model: ModelFamily | str = "", size: Size | None = None,
    convention: Convention = "comfyui",
) -> tuple[Written, Loss | None]:  # fmt: skip
    """Writes the sum of LoRA files by weight, exact, or of a smaller `size` with what that lost."""
    require_new(output)
    raws = [open_lora(file) for file in files]
    family = family_of(raws[0], model)
    found = [read_fitting(raw, family, model) for raw in raws]
    _require_one_size(files, found)
    weights = merged([(lora.weights, factor) for lora, factor in zip(found, factors, strict=True)])
    if not weights.pairs:
        found = f"add up to nothing by the weights {', '.join(f'{factor:g}' for factor in factors)}: the LoRA would change nothing."
        raise fail(" + ".join(map(str, files)), found, "Give other weights, or other files.")
    check_finite(weights, " + ".join(map(str, files)))
    weights, loss = resized(weights, size) if size else (weights, None)
    write(weights, family, output, _merged_metadata(files, found, output), convention)
    source = " + ".join(f"{factor:g} · {file.name}" for file, factor in zip(files, factors, strict=True))
    return Written(output, family.spec.family, weights, source, convention), loss


def resize_file(
    file: Path, output: Path, size: Size, model: ModelFamily | str = "", convention: Convention = "comfyui"
) -> tuple[Written, Loss]:
    """Writes the nearest LoRA of a smaller size."""
    require_new(output)
    raw = open_lora(file)
    family = family_of(raw, model)
    found = read_fitting(raw, family, model)
    check_changed(found.weights, str(file))
    weights, loss = resized(found.weights, size)
    write(weights, family, output, found.metadata, convention)
    return Written(output, family.spec.family, weights, f"{file.name}, {found.weights}", convention), loss


def extract_files(
    base: Path, tuned: Path, output: Path, size: Size, device: torch.device, log: EventLog, model: ModelFamily | str = "",
    convention: Convention = "comfyui",
) -> list[tuple[Written, Extracted]]:  # fmt: skip
    """Writes what two model folders or transformer files differ in as a LoRA, one for each of the model's experts.

    `model`, a model or a family's name, is needed where neither is a folder. Raises UserError if they are not of one family.
    """
    opened = [open_model(path) if path.is_dir() else None for path in (base, tuned)]
    named = (known_family(model) if isinstance(model, str) else model) if model else None
    known = [each for each in (*opened, named) if each is not None]
    if not known:
        raise fail(str(base), "and the other are single files.", "Name their family, or give the folder of one of them.")
    if len(families := {each.spec.family for each in known}) > 1:
        found = f"and the other are of different families ({' and '.join(sorted(families))})."
        raise fail(str(tuned), found, "Choose two models of one family.")
    counts = [len(each.spec.experts) for each in opened if each is not None]
    if len(set(counts)) > 1:
        found = f"have {counts[0]} and {counts[1]} transformers."
        raise fail(f"{base} and {tuned}", found, "Choose a model and one that was trained from it.")
    owner, made, parted = known[0], [], all(opened) and len(known[0].spec.experts) > 1
    if any(opened) and not all(opened) and len(owner.spec.experts) > 1:
        raise fail(owner.files.name, "has two transformers, and the other is one file.", "Give two folders, or two files of one kind.")
    experts = owner.spec.experts if parted else owner.spec.experts[:1]
    targets = {expert.part: output.with_stem(f"{output.stem}-{expert.name}") if parted else output for expert in experts}
    for target in targets.values():
        require_new(target)
    for part, target in targets.items():
        old, new = (
            FolderWeights(each, part) if each else FileWeights(path, owner) for each, path in zip(opened, (base, tuned), strict=True)
        )
        found = extract(old, new, owner.keys, size, device, f"{base} and {tuned}", log)
        made.append((Written(target, owner.spec.family, found.weights, f"{tuned.name} - {base.name}", convention), found))
    for written, _ in made:  # once all are found: of a pair that is no pair nothing is left behind
        metadata = {TITLE: written.file.stem, "ss_output_name": written.file.stem, "ss_sd_model_name": base.name}
        write(written.weights, owner, written.file, metadata, convention)
    return made


def _require_one_size(files: Sequence[Path], found: Sequence[LoraFile]) -> None:
    """Raises UserError, naming two of the files, if they have a layer in different sizes."""
    seen: dict[str, tuple[Path, tuple[int, int]]] = {}
    for file, lora in zip(files, found, strict=True):
        for name in sorted(lora.weights.pairs):
            pair = lora.weights.pairs[name]
            other, size = seen.setdefault(name, (file, pair.layer))
            if pair.layer != size:
                sizes = f"{name} is of {size[0]}x{size[1]} in the first and of {pair.layer[0]}x{pair.layer[1]} in the second."
                raise fail(f"{other} and {file}", f"are of models of different sizes: {sizes}", "Choose LoRA files of one model.")


def _merged_metadata(files: Sequence[Path], found: Sequence[LoraFile], output: Path) -> Mapping[str, str]:
    """What all sources say alike, the trigger words of all, and what they are."""
    shared = {name: value for name, value in found[0].metadata.items() if all(lora.metadata.get(name) == value for lora in found)}
    triggers = [word for lora in found for word in lora.metadata.get(TRIGGER, "").split(", ") if word]
    titles = [lora.metadata.get(TITLE) or file.stem for lora, file in zip(found, files, strict=True)]
    return {
        **shared, TITLE: output.stem, "ss_output_name": output.stem, MERGED: ", ".join(titles), TRIGGER: ", ".join(dict.fromkeys(triggers)),
    }  # fmt: skip
