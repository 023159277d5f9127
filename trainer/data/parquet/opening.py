"""open_parquet: from a folder of FastVideo's Parquet files to a dataset that a run can train on."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ...caption_settings import CaptionSettings
from ...errors import Problem, UserError, fail
from ...events import EventLog, Phase
from ...packages import require
from ...settings import changed_settings
from ...source_settings import ParquetFolder
from ..cache import TensorCache
from ..captions import UNCAPTIONED
from ..dataset import Item, commonest_size
from ..report import CaptionStatistics, ClipReport, DatasetReport
from ..sources.paths import folder_path
from ..sources.record import ClipRecord
from ..teller import Teller
from ..texts import TextCache
from .dataset import Found, ParquetDataset
from .fit import LEAST_LIKENESS, clip_size, encoder_doubt, latent_axes, likeness, misfit, text_axes
from .read import Findings, Skipped, parquet_files
from .scan import scan_file

if TYPE_CHECKING:
    from ...models.base import FamilySpec, ModelFamily
    from ..encoders import Encoders

_DEAR = 256 << 20  # bytes decoded to read one example
_CURE = "Write these rows anew with the model that is trained, or take the file out of the folder."


def open_parquet(
    source: ParquetFolder, family: ModelFamily, store: TensorCache, encoders: Encoders | None, log: EventLog,
    *, captions: CaptionSettings | None = None, where: str = "dataset.sources.0",
) -> ParquetDataset:  # fmt: skip
    """The rows of a folder's files (or of one file) that this model can be trained on; the others are reported.

    `encoders` encodes the empty caption and prompts; None, or a model folder without text encoder, makes the empty caption
    zeros as FastVideo does. Texts are encoded already: what `captions` would do to them is told as not done. The files are
    read whole once; `store` remembers what they hold. Raises UserError, of settings of `where`, if no row can be used,
    Interrupted on cancel.
    """
    import torch

    require("pyarrow")
    if not source.folder.strip():
        raise fail(f"{where}.folder", "is empty.", "Give the folder that holds the Parquet files.")
    if not family.spec.text_width:
        raise fail(source.folder, "holds one embedding per caption, and this model needs several.", "Train it on the clips themselves.")
    if family.spec.required:
        raise fail(source.folder, "holds no pictures to start from, and this model needs them.", "Train it on the clips themselves.")
    captions = captions or CaptionSettings()
    teller = Teller(log, DatasetReport(family.spec.fps))
    opening = _Opening(family, store, teller, f"{where}.encoder")
    rows = opening.rows(folder_path(source.folder).absolute(), captions.uncaptioned == "skip")
    if doubt := encoder_doubt(source.encoder, family, store.index, log.check, f"{where}.encoder"):
        teller.notice(doubt, f"{where}.encoder")
    for name in changed_settings(captions, but=("dropout", "uncaptioned")):
        teller.notice("is not applied: Parquet files hold their captions already encoded.", f"captions.{name}")
    texts: dict[str, Found] = {}
    for found in rows:
        texts.setdefault(found.row.caption, found)
    if other := sum(texts[found.row.caption].row.text != found.row.text for found in rows):
        teller.notice(f"{other} rows have the caption of another row but another embedding; the first row's is used for both.")
    encoding = opening.texts(encoders, texts)
    store.save()
    items = tuple(_item(found, source, family.spec) for found in rows)
    teller.report.texts = CaptionStatistics.of([item.captions for item in items])
    blank = torch.zeros(family.spec.text_length, family.spec.text_width)
    latents = {found.row.latent: found for found in rows}
    return ParquetDataset(items, commonest_size(items), teller.report, latents, texts, encoding, blank)


def _item(found: Found, source: ParquetFolder, spec: FamilySpec) -> Item:
    row = found.row
    size = clip_size(latent_axes(row.latent_shape), spec)
    return Item(row.file_name or row.id, found.path, (row.caption,), size, 1, source.repeats, row.latent, source.weight)


class _Opening:
    """Reads and checks the files of one dataset, and tells what is found."""

    def __init__(self, family: ModelFamily, store: TensorCache, teller: Teller, encoder: str) -> None:
        self.family, self.store, self.teller, self.log, self._encoder = family, store, teller, teller.log, encoder

    def rows(self, root: Path, captioned: bool) -> list[Found]:
        """All usable rows in order, only those with a caption if wanted; raises UserError with the reasons if there is none."""
        files = parquet_files(root)
        self.teller.report.seen = {".parquet": len(files)}
        self.log.emit(Phase("prepare", "Reading Parquet"))
        findings, rows, images, dear = Findings(), list[Found](), 0, 0
        done = self.log.progress(len(files), "Parquet files read")
        for number, path in enumerate(files, 1):
            scan, state = scan_file(path, self.store, self.log.check)
            findings.skipped += [Skipped(path, *left) for left in scan.skipped]
            findings.dtypes.update(scan.dtypes)
            for row in scan.rows:
                if reason := misfit(row, self.family.spec) or (UNCAPTIONED if captioned and not row.caption else ""):
                    findings.skipped.append(Skipped(path, f"row {row.place.number}", reason))
                    continue
                rows.append(Found(path, state, row))
                self._keep(rows[-1])
                images += row.image
                dear = max(dear, scan.group_rows * 4 * prod(row.latent_shape))
            done(number)
        self.store.save()
        if not rows:
            raise UserError([Problem(str(root), "none of the rows can be used:"), *_reasons(findings)])
        self._tell(root, findings, images, dear)
        return rows

    def _keep(self, found: Found) -> None:
        row, spec = found.row, self.family.spec
        size = clip_size(latent_axes(row.latent_shape), spec)
        self.teller.report.clips.append(ClipReport(
            row.file_name or row.id, str(found.path), "file" if row.caption else "none",
            source_frames=size.frames, source_fps=round(row.fps or spec.fps, 3), source_size=f"{size.height}x{size.width}",
            target_fps=round(row.fps or spec.fps, 3), retimed_frames=size.frames, used_frames=size.frames, bucket=str(size), windows=1,
        ))  # fmt: skip

    def _tell(self, root: Path, findings: Findings, images: int, dear: int) -> None:
        """What the files hold besides sound rows."""
        for left in findings.skipped:
            self.teller.report.skip(ClipRecord(left.path, f"{left.path.name} {left.rows}".strip()), left.reason, _CURE)
            self.teller.skip(f"{left.path}, {left.rows or 'the whole file'}", left.reason)
        self.teller.count_skips("rows", str(root))
        for text in findings.notices():
            self.teller.notice(text, str(root))
        if images:
            self.teller.notice(f"{images} rows also hold an encoded image, which is not used: the model is trained from text.", str(root))
        if dear > _DEAR:
            text = f"Reading one row decodes up to {dear >> 20} MiB, because its file keeps many rows in a row group; steps may be slow."
            self.teller.notice(f"{text} Writing the dataset again with Save Parquet makes each row readable alone.", str(root))

    def texts(self, encoders: Encoders | None, captions: dict[str, Found]) -> TextCache | None:
        """What encodes further texts; tells if this model's text encoder would not have made the files' embeddings."""
        if encoders is None or not self.family.files.has("text_encoder"):
            if "" not in captions:
                self.teller.notice("Without a text encoder the empty caption is trained as zeros, as FastVideo does.", "captions.dropout")
            return None
        texts = TextCache(self.family, encoders, self.store, self.log)
        probe = next((caption for caption in captions if caption), "")
        texts.add(["", probe])
        if probe:
            theirs = captions[probe].read("text_embedding", text_axes)
            if (alike := likeness(theirs, texts.read(probe)["text"])) < LEAST_LIKENESS:
                text = f"This model's text encoder gives '{probe[:80]}' another embedding than the file holds (likeness {alike:.2f} of 1)."
                cure = "Samples and the empty caption come from this model's: check the declared encoder."
                self.teller.notice(f"{text} {cure}", self._encoder)
        return texts


def _reasons(findings: Findings) -> list[Problem]:
    """Each reason once, with the first place it was met and how many more there are."""
    counts = Counter(left.reason for left in findings.skipped)
    first = {left.reason: left for left in reversed(findings.skipped)}
    return [
        Problem(
            f"{left.path}, {left.rows or 'the whole file'}",
            f"{reason}" + (f", and {counts[reason] - 1} more." if counts[reason] > 1 else "."),
        )
        for reason, left in sorted(first.items(), key=lambda pair: -counts[pair[0]])
    ]
