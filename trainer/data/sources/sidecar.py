"""Writing the caption file of a clip, with the first text kept beside it."""

from __future__ import annotations

import os
from pathlib import Path

from ...files import kind_of, read_file, write_bytes
from .text_file import one_line, read_caption, whole


def current_caption(sidecar: Path) -> str:
    """The caption on the disk now, empty without a file; raises OSError if it cannot be read."""
    return read_caption(sidecar)[0] if kind_of(sidecar) == "file" else ""


def write_caption(sidecar: Path, text: str) -> str:
    """Writes a caption as one line of UTF-8, complete or not at all, and returns it; raises OSError if that cannot be done.

    The text that was there before the first edit stays beside it, in a file of the same name with .bak added.
    """
    caption, kept = one_line(whole(text)), sidecar.with_name(f"{sidecar.name}.bak")
    if os.path.lexists(sidecar) and not os.path.lexists(kept):  # a link whose file is gone is not replaced
        write_bytes(kept, read_file(sidecar))
    write_bytes(sidecar, f"{caption}\n".encode())
    return caption
