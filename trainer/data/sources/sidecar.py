"""Writing the caption file of a clip, with the first text kept beside it."""

from __future__ import annotations

import os
from pathlib import Path

from ...files import write_bytes
from .text_file import one_line, read_caption


def current_caption(sidecar: Path) -> str:
    """The caption on the disk now, empty without a file; raises OSError if it cannot be read."""
    return read_caption(sidecar)[0] if sidecar.is_file() else ""


def write_caption(sidecar: Path, text: str) -> str:
    """Writes a caption as one line of UTF-8, complete or not at all, and returns it; raises OSError if that cannot be done.

    The text that was there before the first edit stays beside it, in a file of the same name with .bak added. What no
    encoding holds, lone surrogates, is replaced by question marks.
    """
    caption, kept = one_line(text.encode(errors="replace").decode()), sidecar.with_name(f"{sidecar.name}.bak")
    if os.path.lexists(sidecar) and not os.path.lexists(kept):  # a link whose file is gone is not replaced
        write_bytes(kept, sidecar.read_bytes())
    write_bytes(sidecar, f"{caption}\n".encode())
    return caption
