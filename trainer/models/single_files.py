"""A model out of the single files that ComfyUI's loaders take: its transformers, VAE, text and image encoders."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Problem, fail
from .encoder_kinds import ENCODERS, SENTENCEPIECE
from .key_tensors import place_of
from .layout import FileLayout, overlaid
from .loading import kept_quantised, load_model, planned
from .recognition import Match
from .tokenizer_files import (
    copy_tokenizer,
    tokenizer_files,
    tokenizer_problem,
    write_sentencepiece,
    write_small_files,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..memory.choices import Weights

M = TypeVar("M", bound="nn.Module")
SLOTS = {"transformer": "transformer", "transformer_2": "transformer_low", "vae": "vae", "image_encoder": "image_encoder"}


def slot_of(part: str) -> str:
    """The setting of ModelSettings that names a part's file."""
    return SLOTS.get(part, "text_encoders")


class SingleFiles:
    """The files of one model, each part found in one of them; configurations ship with the pack."""

    def __init__(self, layout: FileLayout, variant: str, parts: Mapping[str, Match], tokenizers: Path | None = None) -> None:
        self._layout, self.variant, self._parts = layout, variant, dict(parts)
        self._tokenizers = tokenizers
        self._configs: dict[str, dict[str, Any]] = {}
        self.check: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        """The transformer's file."""
        return str(self._parts["transformer"].path)

    def config(self, part: str) -> dict[str, Any]:
        """The shipped configuration of the variant's part, with what the file's header tells in its place."""
        if part not in self._configs:
            found = self._parts.get(part)
            self._configs[part] = overlaid(self._layout.config(self.variant, part), found.told.values if found else {})
        return self._configs[part]

    def has(self, part: str) -> bool:
        """Whether a file was given for the part."""
        return part in self._parts

    def lacks(self, part: str, weights: bool) -> Problem | None:
        """What to choose where a part is missing."""
        if weights and not self.has(part):
            wanted = self._layout.encoders.get(part)
            what = ENCODERS[wanted].label if wanted else "a VAE" if part == "vae" else "a second diffusion model"
            return Problem(f"model.{slot_of(part)}", f"has no file for {part}: this model needs {what}.", "Choose one.")
        source, encoder = self._layout.tokenizers.get(part), self._encoder_of(part)
        if source == SENTENCEPIECE and encoder is not None and SENTENCEPIECE not in encoder.part.names:
            found = f"holds no tokenizer: it has no tensor '{SENTENCEPIECE}'."
            return Problem(str(encoder.path), found, "Choose the file that ComfyUI's own workflows use.")
        return tokenizer_problem(self._tokenizers, source) if source and source != SENTENCEPIECE else None

    def paths(self, prefixes: Sequence[str]) -> dict[str, Path]:
        """The files that shape the parts: weights, shipped configurations and tokenizers, whatever they are called."""
        starts, found = tuple(prefixes), dict[str, Path]()
        for part in self._layout.parts(self.variant):
            if part.startswith(starts) and (config := self._layout.file(self.variant, part)):
                found[f"{part}/config.json"] = config
                found |= {f"{part}/{file.name}": file for file in self._tokenizer_files(part)}
        return found | {f"{part}/weights": match.path for part, match in sorted(self._parts.items()) if part.startswith(starts)}

    def folder(self, part: str) -> Path:
        """A folder with the part's small files, made for this object and gone with it."""
        folder = Path(self._scratch.name) / part
        if folder.is_dir():
            return folder
        config = self.config(part)
        encoder = self._encoder_of(part)
        if self._layout.tokenizers.get(part) == SENTENCEPIECE and encoder is not None:
            write_sentencepiece(folder, part, config, encoder.part.raw(SENTENCEPIECE), encoder.path)
        elif files := self._tokenizer_files(part):
            copy_tokenizer(folder, part, config, files)
        else:
            write_small_files(folder, part, config)
        return folder

    def require_fit(self, part: str, kind: type[nn.Module]) -> None:
        """As `load` does before it reads a tensor."""
        planned(kind, self.config(part), self._parts[part], strict=part.startswith("transformer"))

    def load(self, part: str, kind: type[M], dtype: torch.dtype, weights: Weights = "as stored") -> M:
        """The part on the CPU, read tensor by tensor; a VAE is always unpacked. Raises UserError, before that, if its file does not fit."""
        weights = "unquantized" if part.startswith("vae") else weights
        config, match = self.config(part), self._parts[part]
        return load_model(kind, config, match, dtype, weights, self.check, strict=part.startswith("transformer"))

    def kept_quantised(self, part: str, kind: type[nn.Module], dtype: torch.dtype) -> dict[str, tuple[str, int]]:
        """By the file's header."""
        return kept_quantised(kind, self.config(part), self._parts[part], dtype, strict=part.startswith("transformer"))

    def tensor(self, part: str, name: str) -> Tensor:
        """Read under the name that it has in the part's file; it must be a whole tensor there."""
        match = self._parts[part]
        theirs = name
        if match.kind.keys:
            try:
                place, parameter = place_of(match.kind.keys(self.config(part)).place, name)
            except KeyError:
                raise fail(str(match.path), f"cannot hold '{name}'.", "Choose another file of this model.") from None
            assert len(place.modules) == 1 and not place.swapped, name
            theirs = place.comfy + parameter
        if theirs not in match.part.names:
            raise fail(str(match.path), f"holds no tensor '{theirs}'.", "Choose another file of this model.")
        return match.part.read(theirs, None)

    @cached_property
    def _scratch(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="video_trainer_")

    def _encoder_of(self, tokenizer: str) -> Match | None:
        return self._parts.get(tokenizer.replace("tokenizer", "text_encoder"))

    def _tokenizer_files(self, part: str) -> list[Path]:
        source = self._layout.tokenizers.get(part)
        return tokenizer_files(self._tokenizers, source) if self._tokenizers and source and source != SENTENCEPIECE else []
