"""A prepared dataset to FastVideo's Parquet files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...errors import fail
from ...events import EventLog, Phase
from ..content import key_of
from ..dataset import Item, TrainingData
from .sample import Sample
from .write import write_samples

if TYPE_CHECKING:
    from torch import Tensor

ExportKind = Literal["t2v", "text_only"]


def export_dataset(dataset: TrainingData, out: Path, log: EventLog, kind: ExportKind = "t2v") -> list[Path]:
    """Writes a dataset's latents, not normalised, and texts as FastVideo's trainer reads them; the files.

    Every window is a sample of its own, named clip#window; "text_only" writes each caption once. Running again goes on
    where writing stopped. Raises UserError if the folder holds anything else, Interrupted on cancel.
    """
    log.emit(Phase("export", "Writing Parquet"))
    for loss in _losses(dataset.items) if kind == "t2v" else ():
        log.notice(loss, str(out), "info")
    samples = _Clips(dataset) if kind == "t2v" else _Texts(dataset)
    source = key_of(dataset=dataset.fingerprint, names=samples.names, fps=dataset.report.target_fps)
    return write_samples(samples, kind, out, source, log.progress(len(samples), "samples written"))


def _losses(items: Sequence[Item]) -> Iterator[str]:
    """What rows cannot say of the clips."""
    if any(item.repeats > 1 for item in items):
        yield "Repeats are not written: every clip is one row. FastVideo repeats whole folders (folder:2)."
    if len(weights := sorted({item.weight for item in items})) > 1:
        yield f"Loss weights are not written ({', '.join(f'{weight:g}' for weight in weights)}): every row counts the same."
    if several := sum(any(len(item.captions_of(window)) > 1 for window in range(item.windows)) for item in items):
        yield f"{several} clips have several captions; a row holds one, which is the first."
    if several := sum(bool(item.variants) for item in items):
        yield f"{several} clips have several variants of their frames; a row holds one, which is the first."


class _Clips:
    """Every window of every clip, loaded when it is asked for."""

    def __init__(self, dataset: TrainingData) -> None:
        self._dataset = dataset
        self._places = [(item, window) for item in dataset.items for window in range(item.windows)]
        self.names = _distinct([f"{item.name}#{window}" if item.windows > 1 else item.name for item, window in self._places])

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Sample:
        (item, window), name, fps = self._places[index], self.names[index], self._dataset.report.target_fps
        caption = item.captions_of(window)[0]
        return Sample(
            id=name, file_name=name, caption=caption, text_embedding=_embedding(self._dataset, caption),
            vae_latent=self._dataset.latents(item, window)["latents"], media_type="video" if item.size.frames > 1 else "image",
            width=item.size.width, height=item.size.height, duration_sec=item.size.frames / fps, fps=fps,
        )  # fmt: skip


class _Texts:
    """Every caption once, in the order of the clips."""

    def __init__(self, dataset: TrainingData) -> None:
        self._dataset = dataset
        self._captions = list(dict.fromkeys(caption for item in dataset.items for caption in item.texts))
        self.names = [f"text_{number}" for number in range(len(self._captions))]

    def __len__(self) -> int:
        return len(self._captions)

    def __getitem__(self, index: int) -> Sample:
        caption = self._captions[index]
        return Sample(id=self.names[index], caption=caption, text_embedding=_embedding(self._dataset, caption))


def _embedding(dataset: TrainingData, caption: str) -> Tensor:
    tensors = dataset.text(caption)
    if tensors.keys() != {"text"}:
        raise fail(
            "dataset", f"this model has {len(tensors)} text tensors per caption, and Parquet holds one.", "Keep to the clips themselves."
        )
    return tensors["text"]


def _distinct(names: list[str]) -> list[str]:
    """The names, those of further clips of the same name (of other folders) with a number."""
    seen = Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}~{seen[name]}")
    return found
