"""Rows of FastVideo's Parquet files, new and old layout, in a stable order; what cannot be read is told, never fatal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import fail
from ...files import kind_of
from ...packages import require
from ..content import nothing
from ..sources.folder import files_below
from ..sources.record import UnusableClip
from .sample import STORED, Sample, from_row
from .schema import Kind, columns_kind, tensors

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_NOT_TRAINED = {"validation_dataset", "map_style_cache"}  # beside training_dataset; FastVideo's list of files
_PIECE = 1 << 20  # bytes read at once


@dataclass(frozen=True)
class Place:
    """Where a row lies: row group, row inside it, and its number in the file; all count from 0."""

    group: int
    row: int
    number: int


@dataclass(frozen=True)
class Skipped:
    """What is left out of a file, such as "row 3", "rows 64 to 127" or (empty) all of it, and why."""

    path: Path
    rows: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}{self.rows and f', {self.rows}'}: {self.reason}."


@dataclass
class Findings:
    """What reading came upon: rows and files left out with the reason, and tensors said to be other than float32."""

    skipped: list[Skipped] = field(default_factory=list)
    dtypes: Counter[str] = field(default_factory=Counter)  # "vae_latent_dtype says bfloat16" -> rows

    def notices(self) -> list[str]:
        """A line on each dtype that the bytes contradict."""
        return [
            f"in {rows} rows {said}, but the bytes are float32, which is all that FastVideo reads: they are taken as that."
            for said, rows in sorted(self.dtypes.items())
        ]


def parquet_files(root: Path) -> list[Path]:
    """All Parquet files below a folder, numbers in names by value; or the file itself.

    Validation sets beside a training set are left out. Raises UserError if there is none.
    """
    if kind_of(root) == "file":
        return [root]
    if kind_of(root) != "folder":
        raise fail(str(root), "does not exist.", "Give the folder that holds the Parquet files.")
    found = [
        path
        for path in files_below(root)
        if path.suffix.lower() == ".parquet" and not _NOT_TRAINED & set(path.relative_to(root).parent.parts)
    ]
    if not found:
        raise fail(str(root), "holds no .parquet file.", "Give the folder that FastVideo's preprocessing or Save Parquet wrote.")
    return sorted(found, key=lambda path: (_by_value(path.relative_to(root)), str(path)))


def _by_value(path: Path) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.as_posix())]


def file_samples(path: Path, findings: Findings, check: Callable[[], None] = nothing) -> Iterator[tuple[Place, Sample]]:
    """The samples of one file with their places, one in memory at a time; damaged rows go into `findings`, `check` is called at each."""
    require("pyarrow")
    import pyarrow as pa

    def skip(rows: str, reason: str) -> None:
        findings.skipped.append(Skipped(path, rows, reason))

    try:
        with opened(path) as file:
            kind = columns_kind(file.schema_arrow.names)
            if kind is None:
                columns = ", ".join(file.schema_arrow.names)
                skip("", f"is not of a known kind (t2v, i2v or text only); its columns are {columns}")
                return
            for place, row in _rows(file, skip):
                check()
                try:
                    sample = from_row(row, kind)
                except UnusableClip as error:
                    skip(f"row {place.number}", str(error))
                    continue
                findings.dtypes.update(_contradicted(row, kind))
                yield place, sample
    except (OSError, pa.ArrowException) as error:
        skip("", f"cannot be read as Parquet: {_first_line(error)}")


def _rows(file: pq.ParquetFile, skip: Callable[[str, str], None]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every row that decodes; a row group that breaks off is told and the next one gone on with."""
    import pyarrow as pa

    first = 0
    for group in range(file.num_row_groups):
        count, row = file.metadata.row_group(group).num_rows, 0
        batches = file.iter_batches(batch_size=1, row_groups=[group])
        while row < count:
            try:
                batch = next(batches)
            except (OSError, pa.ArrowException, StopIteration) as error:
                rows = f"row {first + row}" if row + 1 == count else f"rows {first + row} to {first + count - 1}"
                skip(rows, f"cannot be decoded: {_first_line(error)}")
                break
            try:
                values = batch.to_pylist()[0]
            except UnicodeDecodeError as error:
                skip(f"row {first + row}", f"holds text that is not UTF-8: {error.reason}")
            else:
                yield Place(group, row, first + row), values
            row += 1
        first += count


def foreign_columns(path: Path) -> str:
    """The columns of a file that is of no kind that is known here, else nothing; raises UserError if it cannot be read."""
    require("pyarrow")
    import pyarrow as pa

    try:
        with opened(path) as file:
            names = file.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        raise fail(str(path), f"cannot be read as Parquet: {_first_line(error)}.", "Make or download it again.") from None
    return "" if columns_kind(names) else ", ".join(names)


def read_row(path: Path, place: Place, columns: Sequence[str]) -> dict[str, Any]:
    """Some columns of one row and nothing else of the file; raises OSError if it cannot be read."""
    import pyarrow as pa

    try:
        with opened(path) as file:
            # batch by batch: a row group of many rows is decoded up to this row only, and is never all in memory
            for number, batch in enumerate(file.iter_batches(batch_size=1, row_groups=[place.group], columns=list(columns))):
                if number == place.row:
                    return batch.to_pylist()[0]
        raise OSError("the row is not there")
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise OSError(_first_line(error)) from error


def opened(path: Path) -> pq.ParquetFile:
    """The file, read in pieces, its checksums verified where it has any; raises OSError or ArrowException.

    Not memory-mapped: a mapped file that is cut off while it is read ends the process, and its pages count as ours.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, buffer_size=_PIECE, pre_buffer=False, page_checksum_verification=True)


def _contradicted(row: dict[str, Any], kind: Kind) -> list[str]:
    said = {f"{name}_dtype": row.get(f"{name}_dtype") for name in tensors(kind) if row.get(f"{name}_bytes")}
    return [f"{column} says {dtype}" for column, dtype in said.items() if dtype and dtype.removeprefix("torch.") != STORED]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["the file ends early"])[0].rstrip(".")
