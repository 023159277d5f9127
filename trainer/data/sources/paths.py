"""Paths as users write, paste and list them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_QUOTES = ('""', "''", "“”", "‘’")
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")  # a Windows drive is one letter


def folder_path(text: str) -> Path:
    """The path a user typed or pasted: spaces and quotes around it are dropped, ~ is the home folder."""
    text = text.strip()
    while len(text) >= 2 and text[0] + text[-1] in _QUOTES:
        text = text[1:-1].strip()
    try:
        return Path(text).expanduser()
    except RuntimeError:  # "~name" of no user here is a name like any other
        return Path(text)


def listed_path(text: str, *roots: Path) -> tuple[Path, str]:
    """The file that a list names, in the first of `roots` that has it, and what is wrong with the name, if anything.

    A backslash also parts folders, since lists are written on Windows too.
    """
    if _ADDRESS.match(text.strip()):
        return Path(text), "is an address, not a file; download it and name the file"
    if not text.strip():
        return roots[0], "no clip is named"
    names = [folder_path(text)]
    if "\\" in text:
        names.append(folder_path(text.replace("\\", "/")))
    candidates = [root / name for name in names for root in roots]
    try:
        return next((path for path in candidates if path.is_file()), candidates[0]), ""
    except (OSError, ValueError):  # too long, or holding what no name can
        return roots[0], f"'{text[:80]}' is not a file name"


def usual_file(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of these files that is in a folder, else the first that is there with letters of another case."""
    if found := next((folder / name for name in names if (folder / name).is_file()), None):
        return found
    try:
        there = {path.name.lower(): path for path in sorted(folder.iterdir(), reverse=True)}
    except OSError:
        return None
    return next((there[name] for name in names if name in there and there[name].is_file()), None)
