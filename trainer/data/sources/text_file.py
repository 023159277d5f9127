"""Reading text of any encoding that captions come in."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import Problem, fail

if TYPE_CHECKING:
    from .record import Scan

_BOMS = (  # UTF-32 before UTF-16, whose mark it begins with
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decoded(data: bytes) -> tuple[str, str]:
    """Text and its encoding: by byte order mark, else UTF-8, else Windows-1252, else Latin-1, which takes any byte."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data.decode(encoding, errors="replace"), encoding
    for encoding in ("utf-8", "cp1252"):
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1"), "latin-1"


def one_line(text: str) -> str:
    """The text with line breaks and runs of spaces made one space."""
    return " ".join(text.split())


def read_caption(path: Path) -> tuple[str, str]:
    """The caption in a file, as one line, and its encoding; raises OSError if the file cannot be read."""
    text, encoding = decoded(path.read_bytes())
    return one_line(text), encoding


def read_list(path: Path, scan: Scan) -> str:
    """The text of a list or table; an odd encoding becomes a notice. Raises UserError if the file cannot be read."""
    try:
        text, encoding = decoded(path.read_bytes())
    except OSError as error:
        raise fail(str(path), f"cannot be read ({error.strerror}).", "Check its name and permissions.") from None
    tell_encoding(path, encoding, scan)
    return text


def tell_encoding(path: Path, encoding: str, scan: Scan) -> None:
    """A notice for a file that was not UTF-8 and bore no mark."""
    if encoding in ("cp1252", "latin-1"):
        scan.notices.append(Problem(str(path), "is not UTF-8 and was read as Windows-1252.", "Save it as UTF-8 if letters look wrong."))
