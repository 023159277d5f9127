"""Samples to FastVideo's Parquet files, each complete or absent; writing again goes on where it stopped.

Every row is a row group of its own: any reader then gets at one sample without decoding the other 63 of its file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ...errors import fail
from ...files import complete_or_absent, kind_of, not_written, read_file, write_json
from ...packages import require
from .sample import Sample, to_row
from .schema import Kind, arrow_schema

SAMPLES_PER_FILE = 64
PLACE = "training_dataset/worker_0/worker_0"  # where FastVideo's first worker of the first rank writes
MARKER = ".video_trainer_parquet.json"  # says what a folder is being filled with
FILE_LIST = "map_style_cache/file_info.pkl"  # FastVideo's list of a folder's files, which it never renews


class Samples(Protocol):
    """A list of samples, or what loads each when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...


def write_samples(samples: Samples, kind: Kind, out: Path, source: str, progress: Callable[[int], None] | None = None) -> list[Path]:
    """Writes `<out>/training_dataset/worker_0/worker_0/data_chunk_<n>.parquet`, 64 samples a file, zstd; the files.

    One sample is held at a time. `source` names the samples: with the same source and number of samples, files that are
    there stay and the missing ones are written, byte for byte what an uninterrupted writing gives. `progress` is called
    with the number of samples done. Raises UserError if the folder holds anything else, if a sample does not fit, or if
    the disk is full.
    """
    require("pyarrow")
    if not len(samples):
        raise fail(str(out), "there is no sample to write.", "Add clips to the dataset.")
    starts = range(0, len(samples), SAMPLES_PER_FILE)
    files = [out / PLACE / f"data_chunk_{number}.parquet" for number in range(len(starts))]
    try:
        with _only_here(out, {"format": 1, "kind": kind, "source": source, "samples": len(samples)}, files):
            for file, start in zip(files, starts, strict=True):
                stop = min(start + SAMPLES_PER_FILE, len(samples))
                if not _is_whole(file, kind, stop - start):
                    _write_file(file, kind, samples, range(start, stop), progress)
                    for stale in out.rglob(FILE_LIST):
                        stale.unlink(missing_ok=True)
                if progress:
                    progress(stop)
    except OSError as error:
        full = "Free space there and write again: it goes on with the missing files."
        raise not_written(out, error, full, "Check the folder's permissions, or choose another.") from error
    return files


def _write_file(file: Path, kind: Kind, samples: Samples, numbers: range, progress: Callable[[int], None] | None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(kind)
    settings = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    with complete_or_absent(file) as beside, pq.ParquetWriter(beside, schema, **settings) as writer:
        for number in numbers:
            if progress:
                progress(number)
            writer.write_table(pa.Table.from_pylist([to_row(samples[number], kind)], schema=schema))


def _is_whole(file: Path, kind: Kind, rows: int) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as found:
            return found.metadata.num_rows == rows and found.schema_arrow.equals(arrow_schema(kind))
    except (OSError, pa.ArrowException):
        return False


def require_own(out: Path) -> None:
    """Raises UserError if the folder is there and holds anything but Parquet that was written here."""
    if not (kind := kind_of(out)):
        return
    if kind == "file":
        raise fail(str(out), "is a file.", "Choose a new folder.")
    if not (out / MARKER).is_file() and not all(MARKER in path.name for path in out.iterdir()):
        raise fail(str(out), "is not empty.", "Choose a new folder: Parquet files are not mixed with anything else.")


@contextmanager
def _only_here(out: Path, about: dict[str, object], files: Sequence[Path]) -> Iterator[None]:
    """Holds the folder for this writing; raises UserError if it holds other content or another process writes to it."""
    from filelock import FileLock, Timeout

    require_own(out)
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / f"{MARKER}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise fail(str(out), "is being written by another process.", "Wait for it, or choose another folder.") from None
    try:
        if not (out / MARKER).is_file():
            write_json(out / MARKER, about)
        _require_same(out, about, files)
        for left in (out / PLACE).glob(".data_chunk_*.part"):  # of a process that was killed
            left.unlink()
        yield
    finally:
        lock.release()


def _require_same(out: Path, about: dict[str, object], files: Sequence[Path]) -> None:
    try:
        known = json.loads(read_file(out / MARKER))
    except (ValueError, RecursionError):
        known = None
    if known != about:
        raise fail(str(out), "holds Parquet files of other clips, captions or settings.", "Choose a new folder, or delete this one first.")
    if foreign := sorted(set(out.rglob("*.parquet")) - set(files)):
        raise fail(str(foreign[0]), "does not belong to what is written here.", "Choose a new folder, or move this file away.")
