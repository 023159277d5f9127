"""videos2caption.json: a list of objects with `path` and `cap`. What else they tell of a clip is read from the clip itself."""

from __future__ import annotations

from collections.abc import Iterator

from ...source_settings import CaptionJson
from .context import ScanContext
from .record import Listed
from .rows import Columns, listed_rows
from .table import existing_file, read_rows

FILES = ("videos2caption.json",)


def scan_caption_json(source: CaptionJson, context: ScanContext) -> Iterator[Listed]:
    """The clip of each entry, beside the file or in its videos folder; `cap` is one caption or a list of them."""
    file = existing_file(source.file, FILES, context)
    rows = read_rows(file, context)
    if rows:
        columns = Columns.of(rows, file, context)
        video = columns.video("", ("path",), setting="file")
        caption = columns.caption("", ("cap",))
        yield from listed_rows(rows, video, caption, file, [file.parent, file.parent / "videos"])
