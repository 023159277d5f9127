"""Reading text of any encoding that captions come in."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import Problem, fail
from ...files import read_file, reason

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
    """Text and its encoding: by byte order mark, else UTF-8, else Windows-1252, else Latin-1, which takes any byte.

    UTF-16 without a mark is told by its zero bytes, which most letters have: before it or after it.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data.decode(encoding, errors="replace"), encoding
    if data.count(0) * 5 > len(data):
        encoding = "utf-16-be" if data[::2].count(0) > data[1::2].count(0) else "utf-16-le"
        return data.decode(encoding, errors="replace"), encoding
    for encoding in ("utf-8", "cp1252"):
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1"), "latin-1"


def whole(text: str) -> str:
    """The text with a question mark for each lone surrogate, half of a character, which no encoding holds.

    JSON can name one, and a file name that is not UTF-8 becomes some.
    """
    return text.encode(errors="replace").decode()


def one_line(text: str) -> str:
    """The text with line breaks and runs of spaces made one space."""
    return " ".join(text.split())


def lines_of(text: str) -> list[str]:
    """The lines of a text, each with its spaces as `one_line` has them; blank ones are empty."""
    return [one_line(line) for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]


def read_caption(path: Path) -> tuple[str, str]:
    """The caption in a file, as one line, and its encoding; raises OSError if the file cannot be read."""
    text, encoding = decoded(read_file(path))
    return one_line(text), encoding


def read_captions(path: Path, lines: bool) -> tuple[tuple[str, ...], str]:
    """The captions in a file, one or one of each of its `lines`, none that is blank, and its encoding; raises OSError as above."""
    text, encoding = decoded(read_file(path))
    return tuple(filter(None, lines_of(text) if lines else [one_line(text)])), encoding


def read_list(path: Path, scan: Scan) -> str:
    """The text of a list or table; an odd encoding becomes a notice. Raises UserError if the file cannot be read."""
    try:
        text, encoding = decoded(read_file(path))
    except OSError as error:
        raise fail(str(path), f"cannot be read ({reason(error)}).", "Check its name and permissions.") from None
    tell_encoding(path, encoding, scan)
    return text


def is_odd(encoding: str) -> bool:
    """Whether text of this encoding was neither UTF-8 nor bore a mark."""
    return encoding in ("cp1252", "latin-1")


def tell_encoding(path: Path, encoding: str, scan: Scan) -> None:
    """A notice for a file that was not UTF-8 and bore no mark."""
    if is_odd(encoding):
        scan.notices.append(Problem(str(path), "is not UTF-8 and was read as Windows-1252.", "Save it as UTF-8 if letters look wrong."))
