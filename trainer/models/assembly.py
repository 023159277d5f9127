"""From the single files that a job names to the parts of one model, told from their headers alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Problem, UserError, fail, nearest
from .encoder_kinds import ENCODERS
from .layout import FileLayout, PartKind, overlaid
from .recognition import INSIDE, TRANSFORMER_PREFIXES, VAE_PREFIXES, Match, description, encoder_prefixes, matched
from .single_files import SingleFiles, slot_of
from .tensor_file import TensorFile, open_tensors

if TYPE_CHECKING:
    from ..job import ModelSettings

SAME_RELEASE = "Choose the one of the same release."
PARTS = {"transformer_low": "transformer", "text_encoders": "text_encoder"}  # settings that are called otherwise than their part


def open_single_files(settings: ModelSettings, layouts: Mapping[str, FileLayout]) -> tuple[str, SingleFiles]:
    """The family's name and the model's files; raises UserError listing every file that does not belong where it is named.

    Only headers are read. Parts that no file is named for are sought in the transformer's; what is missing in the end is
    for the family to say.
    """
    if settings.family and settings.family not in layouts:
        raise fail("model.family", f"'{settings.family}' is unknown.", nearest(settings.family, list(layouts)))
    assembly = _Assembly(settings, {settings.family: layouts[settings.family]} if settings.family else layouts, layouts)
    family = assembly.add_transformers()
    if family:
        assembly.add_vae(layouts[family])
        variant = assembly.variant(layouts[family])
        assembly.add_encoders(layouts[family], variant)
        assembly.require_agreement(layouts[family], variant)
        if not assembly.problems:
            tokenizers = Path(settings.tokenizers) if settings.tokenizers.strip() else None
            return family, SingleFiles(layouts[family], variant, assembly.parts, tokenizers)
    raise UserError(assembly.problems)


class _Assembly:
    """The parts found so far and the problems met."""

    def __init__(self, settings: ModelSettings, candidates: Mapping[str, FileLayout], known: Mapping[str, FileLayout]) -> None:
        self._settings, self._candidates, self._known = settings, candidates, known
        self.parts: dict[str, Match] = {}
        self.problems: list[Problem] = []
        single = ("transformer", "transformer_low", "vae", "image_encoder")
        self._files = {slot: self._open(slot, getattr(settings, slot)) for slot in single}
        self._texts = [file for name in settings.text_encoders if (file := self._open("text_encoders", name))]

    def add_transformers(self) -> str:
        """The transformers; the name of their family, empty if the first is of none."""
        file, second = self._files["transformer"], self._files["transformer_low"]
        if file is None:
            return ""
        kinds = {name: layout.transformer for name, layout in self._candidates.items()}
        first = self._find("transformer", file, list(kinds.values()), TRANSFORMER_PREFIXES, f"a diffusion model of {', '.join(kinds)}")
        if first is None:
            return ""
        self.parts["transformer"] = first
        if second is not None:
            self._require_pair(file.path, second.path)
            low = self._find("transformer_low", second, [first.kind], TRANSFORMER_PREFIXES, "the model for low noise levels")
            self._add("transformer_2", low)
            if low and low.told.values != first.told.values:
                differing = sorted(name for name, value in first.told.values.items() if low.told.values.get(name) != value)
                self._refuse("transformer_low", f"'{low.path}' differs from '{first.path}' in {', '.join(differing)}.", SAME_RELEASE)
        return next(name for name, kind in kinds.items() if kind is first.kind)

    def _require_pair(self, high: Path, low: Path) -> None:
        """Notes one file in both places, and two files whose names say that they are in each other's."""
        if high.resolve() == low.resolve():
            found = f"'{low}' is also the transformer: this model needs two files, for high and for low noise levels."
            self._refuse("transformer_low", found, "Choose the one for low noise levels.")
        elif _levels(high) == {"low"} and _levels(low) == {"high"}:
            found = f"'{high.name}' is by its name the model for low noise levels, and transformer_low the one for high."
            self._refuse("transformer", found, "Exchange the two.")

    def add_vae(self, layout: FileLayout) -> None:
        """The VAE of its own file, or of the transformer's."""
        file = self._files["vae"]
        if file is not None:
            self._add("vae", self._find("vae", file, layout.vaes, VAE_PREFIXES, layout.vaes[0].label))
        elif not self._settings.vae.strip():
            checkpoint = self.parts["transformer"].part.file
            inside = (matched(checkpoint, kind, VAE_PREFIXES[:-1], "vae") for kind in layout.vaes)
            self._add("vae", next(filter(None, inside), None))

    def variant(self, layout: FileLayout) -> str:
        """The variant whose traits the transformer has; of several one that the VAE belongs to, the file's
        name tells of, the image encoder is for, of just its sizes, the first by name.
        """
        transformer, two, wanted = self.parts["transformer"], "transformer_2" in self.parts, self._settings.variant
        values, shipped = transformer.told.values, {name: layout.config(name, "transformer") for name in layout.variants}
        fitting = [name for name, config in shipped.items() if _has_trait(transformer, config)]
        if not fitting:
            what = ", ".join(f"{name} {value}" for name, value in values.items())
            found = f"'{transformer.path}' is {transformer.kind.label} of a variant that is not known here ({what})."
            self._refuse("transformer", found, f"Known are {', '.join(shipped)}.")
            raise UserError(self.problems)
        pairs = [name for name in fitting if "transformer_2" in layout.config(name, "model_index")]
        if two and not pairs:
            self._refuse("transformer_low", f"is given, and '{transformer.path}' is not one of two models.", "Leave it empty.")
            raise UserError(self.problems)
        if wanted and wanted not in fitting:
            self._refuse("variant", f"'{wanted}' does not fit '{transformer.path}'.", f"It can be {', '.join(fitting)}.")
            raise UserError(self.problems)
        exact = {name for name in fitting if all(shipped[name].get(key) == value for key, value in values.items())}
        vae = self.parts.get("vae")
        suits = {name for name in fitting if vae is None or _has_trait(vae, layout.config(name, "vae"))}
        called = {name for name in fitting if name in layout.file_names and re.search(layout.file_names[name], transformer.path.stem, re.I)}
        sees = {name for name in fitting if layout.config(name, "image_encoder")}
        image = self._files["image_encoder"] is not None

        def misfits(name: str) -> tuple[bool, ...]:
            return (name in pairs) != two, name not in suits, name not in called, (name in sees) != image, name not in exact

        return wanted or min(fitting, key=lambda name: (*misfits(name), name))

    def add_encoders(self, layout: FileLayout, variant: str) -> None:
        """Gives each encoder's part a file of its kind, of several the first that has the most of its sizes."""
        wanted = {part: kind for part, kind in layout.encoders.items() if layout.config(variant, part)}
        image = self._files["image_encoder"]
        if image is not None and "image_encoder" not in wanted:
            self._refuse("image_encoder", f"'{image.path}' is not needed by this model.", "Leave it empty.")
        elif image is not None:
            kind = ENCODERS[wanted["image_encoder"]]
            self._add("image_encoder", self._find("image_encoder", image, [kind], ("",), kind.label))
        texts = {part: ENCODERS[kind] for part, kind in wanted.items() if part != "image_encoder"}
        found = self._text_encoders(list(texts.values()))
        for part, kind in texts.items():
            shipped, fitting = layout.config(variant, part), [match for match in found if match.kind is kind]
            if fitting:
                self.parts[part] = max(fitting, key=partial(_likeness, shipped))
                found.remove(self.parts[part])
        for match in found:
            if match.part.file in self._texts:
                self._refuse("text_encoders", f"'{match.path}' is {match.kind.label} too many.", "Remove it.")

    def require_agreement(self, layout: FileLayout, variant: str) -> None:
        """Notes parts that belong to other models of their kind."""
        made = {part: overlaid(layout.config(variant, part), match.told.values) for part, match in self.parts.items()}
        for part, match in self.parts.items():
            shipped = layout.config(variant, part)
            if part != "transformer" and not _has_trait(match, shipped):
                is_like, should = match.kind.trait(made[part]), match.kind.trait(shipped)
                self._refuse(slot_of(part), f"'{match.path}' has {is_like}, and this model ({variant}) needs {should}.", SAME_RELEASE)
        for part, name, other, own in layout.agreements:
            if part in made and other in made and made[part].get(name) != made[other].get(own):
                found = f"'{self.parts[other].path}' has {own} {made[other].get(own)}, and '{self.parts[part].path}' needs"
                self._refuse(slot_of(other), f"{found} {made[part].get(name)}.", SAME_RELEASE)

    def _text_encoders(self, kinds: Sequence[PartKind]) -> list[Match]:
        """Those of the files that are named, then those beside the transformer in its file."""
        kinds = list(dict.fromkeys(kinds))
        labels = " or ".join(kind.label for kind in kinds)
        named = [self._find("text_encoders", file, kinds, encoder_prefixes(file), labels) for file in self._texts]
        checkpoint = self.parts["transformer"].part.file
        inside = [prefix for prefix in encoder_prefixes(checkpoint) if INSIDE.fullmatch(prefix)]
        beside = [matched(checkpoint, kind, [prefix], "text_encoder") for prefix in inside for kind in kinds]
        return [match for match in (*named, *beside) if match]

    def _open(self, slot: str, name: str) -> TensorFile | None:
        """A file's header; None if no file is named or it cannot be read."""
        if not name.strip():
            return None
        try:
            return open_tensors(Path(name))
        except UserError as error:
            self._refuse_all(slot, error)
            return None

    def _find(self, slot: str, file: TensorFile, kinds: Sequence[PartKind], prefixes: Sequence[str], wanted: str) -> Match | None:
        """The part of one of these kinds in a file; None if there is none or it cannot be used."""
        try:
            match = next((match for kind in kinds if (match := matched(file, kind, prefixes, PARTS.get(slot, slot)))), None)
        except UserError as error:
            self._refuse_all(slot, error)
            return None
        if match is None:
            self._refuse(slot, f"'{file.path}' is {description(file, self._known)}.", f"Choose {wanted}.")
        elif match.told.unsupported:
            found = f"'{file.path}' is {match.kind.label}, {match.told.unsupported}, which cannot be trained."
            self._refuse(slot, found, "Choose a variant that the documentation lists.")
            return None
        return match

    def _add(self, part: str, match: Match | None) -> None:
        if match is not None:
            self.parts[part] = match

    def _refuse(self, slot: str, found: str, cure: str) -> None:
        self.problems.append(Problem(f"model.{slot}", found, cure))

    def _refuse_all(self, slot: str, error: UserError) -> None:
        self.problems += [Problem(f"model.{slot}: {problem.where}", problem.found, problem.cure) for problem in error.problems]


def _likeness(shipped: Mapping[str, Any], match: Match) -> int:
    """How many of the values that are told are those that ship."""
    return sum(overlaid(shipped, {name: value}) == shipped for name, value in match.told.values.items())


def _levels(file: Path) -> set[str]:
    """The noise levels that a file's name tells of, "high" or "low"."""
    return {word for word in ("high", "low") if re.search(rf"(?<![a-z]){word}(?![a-z])", file.stem.lower())}


def _has_trait(match: Match, shipped: Mapping[str, Any]) -> bool:
    return match.kind.trait(shipped) == match.kind.trait(overlaid(shipped, match.told.values))
