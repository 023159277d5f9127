"""What a Parquet file holds, row by row: read and checked whole once, then remembered by the file's hash."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ValidationError

from ...files import read_file, reason, write_bytes
from ..content import key_of
from ..sources.record import ChangedFile
from .read import Findings, Place, Skipped, file_samples
from .sample import Sample, float32
from .schema import IMAGE_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cache import TensorCache
    from .sample import Array

SCAN_FORMAT = 1  # raised whenever what is remembered or how rows are checked changes


class Row(BaseModel):
    """A sound row; `latent` and `text` are hashes of shape and values, empty where there is no such tensor."""

    place: Place
    id: str
    caption: str
    file_name: str
    fps: float
    latent: str
    latent_shape: list[int]
    text: str
    text_shape: list[int]
    image: bool  # has any of the image parts


class FileScan(BaseModel):
    """All of one file: sound rows; (rows, reason) of those left out; rows per contradicted dtype."""

    rows: list[Row]
    skipped: list[tuple[str, str]] = []
    dtypes: dict[str, int] = {}
    group_rows: int = 1  # of the largest row group, which is decoded up to the row that is read


def scan_file(path: Path, store: TensorCache, check: Callable[[], None]) -> tuple[FileScan, tuple[int, ...]]:
    """The file's scan, from the cache if these bytes were sound when scanned before, and the file's signature.

    Raises UserError if the scan cannot be kept there.
    """
    try:
        content = store.index.content(path, check)
        key = key_of(content=content.digest, format=SCAN_FORMAT)
        known = store.folder / "parquet" / key[:2] / f"{key}.json"
        store.used.mark(known)
        with suppress(OSError, ValidationError):
            return FileScan.model_validate_json(read_file(known)), content.state
        with content.steady(path, check):
            scan = _scanned(path, check)
    except OSError as error:
        return FileScan(rows=[], skipped=[("", f"cannot be read: {reason(error)}")]), ()
    except ChangedFile as error:
        return FileScan(rows=[], skipped=[("", str(error))]), ()
    if scan.skipped:  # perhaps only this machine or this pyarrow cannot read it
        return scan, content.state
    try:
        write_bytes(known, scan.model_dump_json().encode())
    except OSError as error:
        raise store.not_written(error) from error
    return scan, content.state


def _scanned(path: Path, check: Callable[[], None]) -> FileScan:
    findings, rows = Findings(), list[Row]()
    for place, sample in file_samples(path, findings, check):
        if all(np.isfinite(array).all() for array in _arrays(sample)):
            rows.append(_row(place, sample))
        else:
            findings.skipped.append(Skipped(path, f"row {place.number}", "holds values that are not finite"))
    skipped = [(left.rows, left.reason) for left in findings.skipped]
    return FileScan(rows=rows, skipped=skipped, dtypes=findings.dtypes, group_rows=1 + max((row.place.row for row in rows), default=0))


def _row(place: Place, sample: Sample) -> Row:
    latent, text = sample.vae_latent, sample.text_embedding
    return Row(
        place=place, id=sample.id, caption=sample.caption, file_name=sample.file_name, fps=sample.fps,
        latent=_digest(latent), latent_shape=_shape(latent), text=_digest(text), text_shape=_shape(text),
        image=any(getattr(sample, part) is not None for part in IMAGE_PARTS),
    )  # fmt: skip


def _arrays(sample: Sample) -> list[Array]:
    return [array for array in (sample.vae_latent, sample.text_embedding) if array is not None]


def _shape(array: Array | None) -> list[int]:
    return [] if array is None else list(array.shape)


def _digest(array: Array | None) -> str:
    if array is None:
        return ""
    values = float32(array)
    hasher = hashlib.blake2b(str(values.shape).encode(), digest_size=20)
    hasher.update(values.data)
    return hasher.hexdigest()
