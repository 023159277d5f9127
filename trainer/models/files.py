"""Where a model's parts come from: a diffusers folder, or anything else that can give configurations and weights by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..errors import Problem, UserError, fail
from ..memory.choices import quantized_form
from .folder_fit import indexed_files, load_quantized, load_strictly, quantised_weights, require_fit
from .tensor_file import open_tensors, read_object

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..memory.choices import Weights

M = TypeVar("M", bound="nn.Module")


class ModelFiles(Protocol):
    """The files of one model. A part is a diffusers subfolder's name: transformer, transformer_2, vae, text_encoder, tokenizer, …

    `model_index` is a part that has a configuration only. `check` is called between a loaded model's tensors and may raise.
    """

    check: Callable[[], None]

    @property
    def name(self) -> str:
        """What errors call the model: a folder or a file."""
        ...

    def config(self, part: str) -> dict[str, Any]:
        """A part's configuration; empty if the model has no such part. "model_index" is what is said of the whole model."""
        ...

    def has(self, part: str) -> bool:
        """Whether the part's weights are there."""
        ...

    def lacks(self, part: str, weights: bool) -> Problem | None:
        """What is missing of a part that should be there, and with `weights` of its weights, told without reading them."""
        ...

    def paths(self, prefixes: Sequence[str]) -> dict[str, Path]:
        """All files that shape the parts whose names begin with a prefix, by a name that does not depend on where they lie."""
        ...

    def folder(self, part: str) -> Path:
        """A folder of the part's small files, such as a tokenizer's, for `from_pretrained`."""
        ...

    def require_fit(self, part: str, kind: type[nn.Module]) -> None:
        """Raises UserError, from headers alone, if a part's tensors are not those that the class has with its configuration."""
        ...

    def load(self, part: str, kind: type[M], dtype: torch.dtype, weights: Weights = "as stored") -> M:
        """A part as a diffusers or transformers class on the CPU; raises OSError or ValueError if the files do not fit.

        `weights` is how linear layers are held, as `Filler` has it.
        """
        ...

    def kept_quantised(self, part: str, kind: type[nn.Module], dtype: torch.dtype) -> dict[str, tuple[str, int]]:
        """What `load` leaves quantised with weights as stored: form and bytes of each weight, by its name in diffusers."""
        ...

    def tensor(self, part: str, name: str) -> Tensor:
        """One tensor of a part on the CPU, by its name in diffusers, without loading the part; raises UserError if it is not there."""
        ...


def missing_parts(files: ModelFiles, weights: Sequence[str], small: Sequence[str]) -> list[Problem]:
    """A problem for each part whose configuration or weights are not there; those in `small` have no weights."""
    found = (files.lacks(part, part in weights) for part in (*weights, *small))
    return [problem for problem in found if problem]


class DiffusersFolder:
    """A diffusers model folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.check: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        """The folder's path."""
        return str(self.root)

    def config(self, part: str) -> dict[str, Any]:
        """The first of the part's JSON files that describes it; the model's own is model_index.json."""
        names = ("config.json", "scheduler_config.json", "tokenizer_config.json", "preprocessor_config.json", "guider_config.json")
        files = [self.root / part / name for name in names] if part != "model_index" else [self.root / "model_index.json"]
        for file in files:
            if file.is_file():
                return read_object(file)
        return {}

    def has(self, part: str) -> bool:
        """Whether the part has a configuration and safetensors weights."""
        return bool(self.config(part)) and any((self.root / part).glob("*.safetensors"))

    def lacks(self, part: str, weights: bool) -> Problem | None:
        """A missing folder or file, or one that is cut off; files that an index names must all be there."""
        where = f"{self.root}, {part}"
        if not self.config(part):
            return Problem(where, "is missing.", "Download the whole model again.")
        if not weights:
            return None
        files = sorted((self.root / part).glob("*.safetensors"))
        if not files:
            return Problem(where, "holds no .safetensors file.", "Download the weights; other formats are not loaded.")
        for index in sorted((self.root / part).glob("*.safetensors.index.json")):
            try:
                named = set(indexed_files(index))
            except UserError as error:
                return error.problems[0]
            if missing := sorted(named - {file.name for file in files}):
                found = f"lacks {', '.join(missing)}: {index.name} names {len(named)} files, and {len(named) - len(missing)} are there."
                return Problem(where, found, "Download the missing files.")
        try:
            for file in files:
                open_tensors(file)
        except UserError as error:
            return error.problems[0]
        return None

    def paths(self, prefixes: Sequence[str]) -> dict[str, Path]:
        """All files of the subfolders, hidden ones left out, by their path below the model's folder."""
        starts = tuple(prefixes)
        parts = sorted(entry for entry in self.root.iterdir() if entry.is_dir() and entry.name.startswith(starts))
        found = {path.relative_to(self.root): path for part in parts for path in sorted(part.rglob("*")) if path.is_file()}
        return {name.as_posix(): path for name, path in found.items() if not any(piece.startswith(".") for piece in name.parts)}

    def folder(self, part: str) -> Path:
        """The part's subfolder."""
        return self.root / part

    def require_fit(self, part: str, kind: type[nn.Module]) -> None:
        """As the class's loader sees the headers."""
        require_fit(self.root / part, f"{self.root}, {part}", kind, self.config(part))

    def load(self, part: str, kind: type[M], dtype: torch.dtype, weights: Weights = "as stored") -> M:
        """The part by the class's own `from_pretrained`, or quantised tensor by tensor; raises UserError if that leaves one unfilled."""
        folder, where = self.root / part, f"{self.root}, {part}"
        if quantized_form(weights):
            return load_quantized(folder, where, kind, self.config(part), dtype, weights, self.check)
        return load_strictly(folder, where, kind, dtype)

    def kept_quantised(self, part: str, kind: type[nn.Module], dtype: torch.dtype) -> dict[str, tuple[str, int]]:
        """Nothing: what its class loads is in the run's precision, unless its configuration tells of a library's quantisation."""
        return quantised_weights(self.root / part) if "quantization_config" in self.config(part) else {}

    def tensor(self, part: str, name: str) -> Tensor:
        """Read from the first of the part's files that holds it."""
        from safetensors import safe_open

        for path in sorted((self.root / part).glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                if name in file.keys():  # noqa: SIM118 (the opened file is no mapping)
                    return file.get_tensor(name)
        raise fail(f"{self.name}, {part}", f"holds no tensor '{name}'.", "Download this part of the model again.")


class NoFiles:
    """A model of which no more than its family and, by `configs`, a variant is known; without, its classes' defaults hold."""

    def __init__(self, name: str, configs: Callable[[str], dict[str, Any]] = lambda part: {}) -> None:
        self.name, self._configs = name, configs
        self.check: Callable[[], None] = lambda: None

    def config(self, part: str) -> dict[str, Any]:
        """The variant's, or empty."""
        return self._configs(part)

    def has(self, part: str) -> bool:
        """False."""
        return False

    def lacks(self, part: str, weights: bool) -> Problem | None:
        """Everything."""
        return self._absent(part).problems[0]

    def paths(self, prefixes: Sequence[str]) -> dict[str, Path]:
        """None."""
        return {}

    def folder(self, part: str) -> Path:
        """Raises UserError."""
        raise self._absent(part)

    def require_fit(self, part: str, kind: type[nn.Module]) -> None:
        """Nothing to compare."""

    def load(self, part: str, kind: type[M], dtype: torch.dtype, weights: Weights = "as stored") -> M:
        """Raises UserError."""
        raise self._absent(part)

    def kept_quantised(self, part: str, kind: type[nn.Module], dtype: torch.dtype) -> dict[str, tuple[str, int]]:
        """Nothing: weights are taken to be in the run's precision."""
        return {}

    def tensor(self, part: str, name: str) -> Tensor:
        """Raises UserError."""
        raise self._absent(part)

    def _absent(self, part: str) -> UserError:
        return fail(f"{self.name}, {part}", "is not there: only the model's family was named.", "Give the model's folder.")
