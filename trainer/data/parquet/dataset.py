"""Training straight from FastVideo's Parquet files, made here or by someone else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import fail
from ...job import Bucket
from ..content import key_of, signature
from ..dataset import Item
from ..report import DatasetReport
from ..sources.record import UnusableClip
from ..texts import TextCache
from .fit import latent_axes, text_axes
from .read import read_row
from .sample import tensor
from .scan import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ..pictures import Picture


@dataclass(frozen=True)
class Found:
    """A row and the file it lies in; `state` is the file's signature when the row was checked."""

    path: Path
    state: tuple[int, ...]
    row: Row

    def read(self, name: str, axes: Callable[[Sequence[int]], list[int]]) -> Tensor:
        """One tensor of the row, float32; raises UserError if the file was removed, changed or damaged since."""
        import torch

        try:
            self._require_unchanged()
            array = tensor(read_row(self.path, self.row.place, [f"{name}_bytes", f"{name}_shape"]), name)
            self._require_unchanged()
        except (OSError, UnusableClip) as error:
            raise fail(str(self.path), f"row {self.row.place.number} cannot be read: {error}.", "Run again.") from error
        assert array is not None  # it was there when the row was checked
        return torch.from_numpy(array.reshape(axes(array.shape)))

    def _require_unchanged(self) -> None:
        if tuple(signature(self.path)) != self.state:
            raise fail(str(self.path), "changed since the run began.", "Run again.")


@dataclass(frozen=True)
class ParquetDataset:
    """Rows as items; latents and captions' embeddings are read from the files when they are asked for.

    Texts that no row has (the empty caption, sample prompts) are encoded by `texts`; without it the empty caption is
    `blank`, zeros as in FastVideo.
    """

    items: tuple[Item, ...]
    sample_size: Bucket
    report: DatasetReport
    rows: Mapping[str, Found]  # by an item's key
    captions: Mapping[str, Found]
    texts: TextCache | None
    blank: Tensor  # [L, D]
    windows: None = None

    def latents(self, item: Item, window: int = 0) -> dict[str, Tensor]:
        """One example's encoding, {"latents": [C, T, h, w]} as stored; a row has only window 0."""
        assert window == 0, "a row is one example"
        return {"latents": self.rows[item.key].read("vae_latent", latent_axes)}

    def picture(self, item: Item, window: int = 0) -> str:
        """Empty: what the files hold is of models whose texts see no picture."""
        return ""

    def text(self, caption: str, picture: str = "") -> dict[str, Tensor]:
        """Embeddings of a row's caption, of the empty caption, or of a text that was added; raises KeyError for any other."""
        if caption in self.captions:
            return {"text": self.captions[caption].read("text_embedding", text_axes)}
        if self.texts is not None:
            return self.texts.read(caption)
        if caption:
            raise KeyError(caption)
        return {"text": self.blank}

    def add_text(self, text: str, picture: Picture | None = None) -> None:
        """Encodes one more text, such as a sample prompt; raises UserError if there is nothing to encode it with."""
        if text in self.captions or (not text and self.texts is None):
            return
        if self.texts is None:
            raise fail(
                "samples.prompts", f"'{text}' cannot be encoded: the model has no text encoder here.", "Use captions of the dataset."
            )
        self.texts.add([text])

    @property
    def fingerprint(self) -> str:
        """Hash over what is trained on, in order: latents, captions, their embeddings, repeats, and the empty caption's."""
        blank = self.captions[""].row.text if "" in self.captions else self.texts.key("") if self.texts else "zeros"
        texts = {caption: [caption, found.row.text] for caption, found in self.captions.items()}
        items = [[item.key, [texts[caption] for caption in item.captions], item.repeats, item.weight] for item in self.items]
        return key_of(items=items, empty=blank)
