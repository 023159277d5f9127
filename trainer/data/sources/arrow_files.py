"""Rows of Parquet and Arrow files that hold the clips themselves, or name them, read a few at a time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ...errors import fail
from ...packages import require
from ...source_settings import HubDataset
from ..parquet.read import opened
from .context import ScanContext
from .paths import listed_path
from .record import Listed, UnusableClip
from .rows import CAPTION_COLUMNS, VIDEO_COLUMNS, Columns, cell_captions
from .text_file import decoded
from .unpack import Archive

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 16  # read at a time, since each may hold a whole clip


def scan_rows(file: Path, root: Path, source: HubDataset, context: ScanContext) -> Iterator[Listed]:
    """The clip of each row: bytes become a file of the cache, a path is relative to the file or to `root`.

    Raises UserError if the file cannot be read or lacks the columns, or if pyarrow is missing.
    """
    require("pyarrow")
    import pyarrow as pa

    archive = context.archive(file)
    try:
        rows = _rows(file)
        columns = Columns(rows.schema.names, file, context)
        video = columns.video(source.video_column, VIDEO_COLUMNS)
        caption = columns.caption(source.caption_column, CAPTION_COLUMNS)
        unpacked = all(archive.known(str(number)) for number in range(rows.count))
        for number, (clip, text) in enumerate(_cells(rows, video, caption, unpacked)):
            yield _listed(number, clip, text, archive, root)
    except (pa.ArrowException, OSError) as error:
        raise fail(str(file), f"cannot be read ({error}).", "Download it again.") from None
    finally:
        archive.save()


def _listed(number: int, clip: dict[str, Any], text: Any, archive: Archive, root: Path) -> Listed:
    """A row whose clip has a path, bytes or both, as `datasets` writes it."""
    captions, fault = cell_captions(text)
    told, member = f"row {number + 1} of {archive.path}", str(number)
    path, content = clip.get("path"), clip.get("bytes")
    named = path if isinstance(path, str) else ""
    name = named or f"{archive.path.name} row {number + 1}"
    path = archive.known(member)
    try:
        if path is None and isinstance(content, bytes) and content:
            path = archive.unpack(member, PurePosixPath(named).suffix.lower(), io.BytesIO(content))
    except UnusableClip as error:
        path, fault = archive.path, str(error)
    if path is None:
        path, wrong = listed_path(named, archive.path.parent, root)
        fault = wrong or fault
    return Listed(path, name, captions, told, fault)


def _cells(rows: _Table, video: str, caption: str | None, unpacked: bool) -> Iterator[tuple[dict[str, Any], Any]]:
    """Clip and caption of each row; of clips that are all `unpacked` already, the bytes are left unread."""
    import pyarrow as pa

    kind = rows.schema.field(video).type
    struct, named = pa.types.is_struct(kind), pa.types.is_string(kind) or pa.types.is_large_string(kind)
    paths_only = struct and unpacked and kind.get_field_index("path") >= 0
    unread = unpacked and not named and not paths_only and caption is not None
    read = [] if unread else [f"{video}.path"] if paths_only else [video]
    for batch in rows.batches([*read, caption] if caption else read):
        clips = None if unread else batch.column(video).field("path") if paths_only else batch.column(video)
        texts = batch.column(caption) if caption else None
        for place in range(batch.num_rows):
            cell = None if clips is None else _value(clips[place])
            clip = cell if isinstance(cell, dict) else {"path": cell} if isinstance(cell, str) else {"bytes": cell}
            yield clip, None if texts is None else _value(texts[place])


def _value(cell: pa.Scalar) -> Any:
    """What a cell holds; text that is not UTF-8, which Arrow does not check, is read as a caption file would be."""
    import pyarrow as pa

    try:
        return cell.as_py()
    except UnicodeDecodeError:
        if pa.types.is_string(cell.type) or pa.types.is_large_string(cell.type):
            return decoded(cell.as_buffer().to_pybytes())[0]
        return b""  # neither a caption nor a clip


@dataclass(frozen=True)
class _Table:
    """A table on disk."""

    schema: pa.Schema
    count: int
    batches: Callable[[list[str]], Iterator[pa.RecordBatch]]  # of some columns; others may come along


def _rows(file: Path) -> _Table:
    """A Parquet file, or an Arrow file in the stream form that `datasets` saves or in the file form."""
    import pyarrow as pa

    if file.suffix.lower() == ".parquet":
        table = opened(file)
        return _Table(table.schema_arrow, table.metadata.num_rows, lambda columns: table.iter_batches(_ROWS, columns=columns))
    try:
        stream = pa.ipc.open_stream(pa.memory_map(str(file)))
        schema, batches = stream.schema, list(stream)  # mapped, not read
    except pa.ArrowInvalid:
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        schema, batches = reader.schema, [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return _Table(schema, sum(batch.num_rows for batch in batches), lambda columns: iter(batches))
