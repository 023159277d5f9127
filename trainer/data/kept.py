"""JSON files of the cache that only save time: read as they were written, or as good as absent."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files import read_file, write_bytes


def keep(path: Path, data: Any) -> None:
    """Writes JSON data with its checksum; a full disk is no error."""
    text = _text(data)
    with suppress(OSError):
        write_bytes(path, f'{{"checksum": "{_checksum(path, text)}", "data": {text}}}\n'.encode())


def kept(path: Path) -> Any:
    """The data that `keep` wrote under this name; None if there are none, or if anything of them is no longer as it was."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(read_file(path))
        if isinstance(found, dict) and found.get("checksum") == _checksum(path, _text(found.get("data"))):
            return found.get("data")
    return None


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _checksum(path: Path, text: str) -> str:
    return hashlib.blake2b(f"{path.name} {text}".encode(), digest_size=20).hexdigest()
