"""open_parquet: from a folder of FastVideo's Parquet files to a dataset that a run can train on."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import Problem, UserError, fail
from ...events import EventLog, Phase
from ...packages import require
from ..cache import TensorCache
from ..content import ContentIndex
from ..dataset import Item, commonest_size
from ..report import ClipReport, DatasetReport
from ..sources.folder import folder_path
from ..sources.record import ClipRecord
from ..texts import TextCache
from .dataset import Found, ParquetDataset, state_of
from .fit import LEAST_LIKENESS, clip_size, encoder_doubt, latent_axes, likeness, misfit, text_axes
from .read import Findings, Skipped, parquet_files
from .scan import scan_file

if TYPE_CHECKING:
    from ...models.base import ModelFamily
    from ..encoders import Encoders

_NOTICES = 20  # rows named one by one in notices; the report names all
_DEAR = 256 << 20  # bytes decoded to read one example
_CURE = "Write these rows anew with the model that is trained, or take the file out of the folder."
SCANS = "parquet"  # the cache's folder of what files hold


def open_parquet(
    folder: str, family: ModelFamily, cache: Path, encoders: Encoders | None, log: EventLog,
    *, encoder: str = "", repeats: int = 1, prefix: str = "",
) -> ParquetDataset:  # fmt: skip
    """The rows of a folder's files (or of one file) that this model can be trained on; the others are reported.

    `encoder` declares the model whose VAE and text encoder made the files: its folder or hub id. `encoders` encodes the
    empty caption and prompts; None, or a model folder without text encoder, makes the empty caption zeros as FastVideo
    does. `prefix` cannot be put before texts that are already encoded, and is told so. The files are read whole once;
    `cache` remembers what they hold. Raises UserError if no row can be used, Interrupted on cancel.
    """
    require("pyarrow")
    if not folder.strip():
        raise fail("folder", "is empty.", "Give the folder that holds the Parquet files.")
    if not family.spec.text_width:
        raise fail(folder, "holds one embedding per caption, and this model needs several.", "Train it on the clips themselves.")
    store = TensorCache(cache, ContentIndex(cache / "index.json"))
    opening = _Opening(family, store, log)
    rows = opening.rows(folder_path(folder).absolute())
    if doubt := encoder_doubt(encoder, family, store.index, log.check):
        opening.notice(doubt, "encoder")
    if prefix:
        opening.notice(f"'{prefix}' is not put before the captions: Parquet files hold them already encoded.", "captions.prefix")
    items = [
        Item(
            found.row.file_name or found.row.id, found.path, found.row.caption, clip_size(latent_axes(found.row.latent_shape), family.spec),
            1, repeats, found.row.latent,
        )
        for found in rows
    ]  # fmt: skip
    captions: dict[str, Found] = {}
    for found in rows:
        captions.setdefault(found.row.caption, found)
    if other := sum(captions[found.row.caption].row.text != found.row.text for found in rows):
        opening.notice(f"{other} rows have the caption of another row but another embedding; the first row's is used for both.")
    texts = opening.texts(encoders, captions)
    store.index.save()
    import torch

    blank = torch.zeros(family.spec.text_length, family.spec.text_width)
    return ParquetDataset(
        tuple(items), commonest_size(items), opening.report, {found.row.latent: found for found in rows}, captions, texts, blank
    )


class _Opening:
    """Reads and checks the files of one dataset, and tells what is found."""

    def __init__(self, family: ModelFamily, store: TensorCache, log: EventLog) -> None:
        self.family, self.store, self.log = family, store, log
        self.report = DatasetReport(family.spec.fps)

    def notice(self, text: str, where: str = "") -> None:
        """A notice that the report keeps too."""
        self.report.notices.append(f"{where}: {text}" if where else text)
        self.log.notice(text, where)

    def rows(self, root: Path) -> list[Found]:
        """All usable rows in order; raises UserError with the reasons if there is none."""
        files = parquet_files(root)
        self.report.seen = {".parquet": len(files)}
        self.log.emit(Phase("prepare", "Reading Parquet"))
        findings, rows, images, dear = Findings(), list[Found](), 0, 0
        done = self.log.progress(len(files), "Parquet files read")
        for number, path in enumerate(files, 1):
            scan = scan_file(path, self.store.folder / SCANS, self.store.index, self.log.check)
            findings.skipped += [Skipped(path, *left) for left in scan.skipped]
            findings.dtypes.update(scan.dtypes)
            state = state_of(path) if scan.rows else (0, 0)
            for row in scan.rows:
                if reason := misfit(row, self.family.spec):
                    findings.skipped.append(Skipped(path, f"row {row.place.number}", reason))
                    continue
                rows.append(Found(path, state, row))
                self._keep(rows[-1])
                images += row.image
                dear = max(dear, scan.group_rows * 4 * prod(row.latent_shape))
            done(number)
        self.store.index.save()
        self._tell(root, findings, images, dear)
        if not rows:
            raise UserError([Problem(str(root), "none of the rows can be used:"), *_reasons(findings)])
        return rows

    def _keep(self, found: Found) -> None:
        row, spec = found.row, self.family.spec
        size = clip_size(latent_axes(row.latent_shape), spec)
        self.report.clips.append(ClipReport(
            row.file_name or row.id, str(found.path), "file" if row.caption else "none",
            source_frames=size.frames, source_fps=round(row.fps or spec.fps, 3), source_size=f"{size.height}x{size.width}",
            target_fps=round(row.fps or spec.fps, 3), retimed_frames=size.frames, used_frames=size.frames, bucket=str(size), windows=1,
        ))  # fmt: skip

    def _tell(self, root: Path, findings: Findings, images: int, dear: int) -> None:
        """What the files hold besides sound rows."""
        for left in findings.skipped:
            self.report.skip(ClipRecord(left.path, f"{left.path.name} {left.rows}".strip()), left.reason, _CURE)
        for left in findings.skipped[:_NOTICES]:
            self.log.notice(f"skipped: {left.reason}", f"{left.path}, {left.rows or 'the whole file'}")
        if (more := len(findings.skipped) - _NOTICES) > 0:
            self.log.notice(f"{more} more rows are skipped; the dataset report says why.", str(root))
        for text in findings.notices():
            self.notice(text, str(root))
        if images:
            self.notice(f"{images} rows also hold an encoded image, which is not used: the model is trained from text.", str(root))
        if dear > _DEAR:
            text = f"Reading one row decodes up to {dear >> 20} MiB, because its file keeps many rows in a row group; steps may be slow."
            self.notice(f"{text} Writing the dataset again with Save Parquet makes each row readable alone.", str(root))

    def texts(self, encoders: Encoders | None, captions: dict[str, Found]) -> TextCache | None:
        """What encodes further texts; tells if this model's text encoder would not have made the files' embeddings."""
        if encoders is None or not (self.family.folder / "text_encoder").is_dir():
            if "" not in captions:
                self.notice("Without a text encoder the empty caption is trained as zeros, as FastVideo does.", "captions.dropout")
            return None
        texts = TextCache(self.family, encoders, self.store, self.log)
        probe = next((caption for caption in captions if caption), "")
        texts.add(["", probe])
        if probe:
            theirs = captions[probe].read("text_embedding", text_axes)
            if (alike := likeness(theirs, texts.read(probe)["text"])) < LEAST_LIKENESS:
                text = f"This model's text encoder gives '{probe[:80]}' another embedding than the file holds (likeness {alike:.2f} of 1)."
                self.notice(f"{text} Samples and the empty caption come from this model's: check the declared encoder.", "encoder")
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
