"""Tables of clips and captions: metadata.csv, metadata.json, metadata.jsonl."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import UserError, fail
from ...files import kind_of
from ...source_files import TABLES
from ...source_settings import MetadataTable
from .context import ScanContext
from .paths import folder_path, usual_file
from .record import Listed
from .rows import CAPTION_COLUMNS, VIDEO_COLUMNS, Columns, Row, listed_rows
from .text_file import read_list

_SEPARATORS = ",;\t"  # the one the header has most of


def scan_table(source: MetadataTable, context: ScanContext) -> Iterator[Listed]:
    """The clip of each row."""
    file = existing_file(source.file, TABLES, context)
    rows = read_rows(file, context)
    if rows:
        columns = Columns.of(rows, file, context)
        video = columns.video(source.video_column, VIDEO_COLUMNS)
        caption = columns.caption(source.caption_column, CAPTION_COLUMNS)
        yield from listed_rows(rows, video, caption, file, [file.parent])


def existing_file(text: str, usual: tuple[str, ...], context: ScanContext) -> Path:
    """The file that the setting "file" names, or the first usual one in the folder it names; raises UserError if there is none."""
    path = folder_path(text)
    if not text.strip():
        raise context.fail("file", "is empty.", f"Give a file, or a folder that holds {' or '.join(usual)}.")
    if kind_of(path) == "folder":
        found = usual_file(path, usual)
        if found is None:
            raise context.fail("file", f"'{path}' holds no {' or '.join(usual)}.", "Give the file itself.")
        return found.absolute()
    if kind_of(path) != "file":
        raise context.fail("file", f"'{path}' does not exist.", f"Give a file, or a folder that holds {' or '.join(usual)}.")
    return path.absolute()


def read_rows(file: Path, context: ScanContext) -> list[Row]:
    """All rows of a .csv, .json or .jsonl file; raises UserError naming the line that cannot be read."""
    text = read_list(file, context.scan)
    extension = file.suffix.lower()
    if extension in (".csv", ".tsv"):
        return list(_csv_rows(file, text))
    if extension == ".jsonl":
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        return [_json_row(file, f"line {number}", _json(file, line, number)) for number, line in lines]
    if extension == ".json":
        return [_json_row(file, f"entry {number}", entry) for number, entry in enumerate(_json_list(file, text), start=1)]
    raise context.fail("file", f"'{file}' is no table.", "Tables end in .csv, .json or .jsonl.")


def _json_list(file: Path, text: str) -> list[Any]:
    """The list in a JSON text; raises UserError naming the line of a fault."""
    data = _json(file, text)
    if not isinstance(data, list):
        raise fail(str(file), f"holds {_kind(data)} where a list of clips is needed.", 'Write [{"file_name": "a.mp4", "caption": "…"}, …].')
    return data


def _csv_rows(file: Path, text: str) -> Iterator[Row]:
    header = text.lstrip().partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(_SEPARATORS, key=header.count), strict=True)
    try:
        for row in reader:
            yield f"line {reader.line_num}", {name.strip(): value for name, value in row.items() if isinstance(name, str)}
    except csv.Error as error:
        raise fail(str(file), f"the row after line {reader.line_num} cannot be read: {error}.", "Check its quotes.") from None


def _json_row(file: Path, place: str, entry: Any) -> Row:
    if not isinstance(entry, dict):
        raise fail(str(file), f"{place} is {_kind(entry)}, not an object.", 'Write {"file_name": "a.mp4", "caption": "…"}.')
    return place, entry


def _json(file: Path, text: str, line: int = 0) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _not_json(file, line or error.lineno, f"{error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _not_json(file, line or 1, str(error)) from None


def _not_json(file: Path, line: int, reason: str) -> UserError:
    return fail(str(file), f"line {line} is not JSON: {reason}.", "In JSON a backslash is written \\\\ and the last entry has no comma.")


def _kind(value: Any) -> str:
    return "an object" if isinstance(value, dict) else f"'{value}'" if isinstance(value, str) else str(value)
