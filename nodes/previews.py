"""What previews of this session showed: the answers for the browser, and the clips whose captions may be edited there."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..trainer.data.captions import training_texts
from ..trainer.data.sources.folder import CAPTION_EXTENSIONS
from ..trainer.data.sources.sidecar import current_caption, write_caption

if TYPE_CHECKING:
    from ..trainer.caption_settings import CaptionEdit
    from ..trainer.data.sources.record import ClipRecord

MOST_KEPT = 200  # previews
LONGEST = 10_000  # characters of a caption

_writing = Lock()  # between looking at a caption file and replacing it


class Refused(Exception):
    """A caption is not written; `status` is that of the HTTP answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Editable:
    """A clip whose caption file may be written: what is shown of it is brought up to date with each edit."""

    record: ClipRecord
    settings: CaptionEdit
    seed: int
    shown: dict[str, Any]

    def write(self, text: str, may_write: Callable[[Path], bool]) -> dict[str, Any]:
        """Writes the caption file and returns what to show; raises Refused if it is not what was shown, or not a caption."""
        sidecar = self.record.sidecar
        if sidecar is None or sidecar.resolve().suffix.lower() not in CAPTION_EXTENSIONS or not may_write(sidecar):
            raise Refused(403, "The caption file does not lie inside ComfyUI's input or output folder.")
        if not text.strip() or len(text) > LONGEST:
            raise Refused(400, f"A caption has 1 to {LONGEST} characters.")
        try:
            with _writing:
                if current_caption(sidecar) != self.shown["text"]:
                    raise Refused(409, "The caption file was changed since this preview. Run again, then edit.")
                self.shown["text"] = write_caption(sidecar.resolve(), text)
        except OSError as error:
            raise Refused(409, f"The caption file cannot be written: {error.strerror}.") from None
        record = replace(self.record, captions=(self.shown["text"],))
        self.shown["texts"] = list(training_texts(record, self.settings, self.seed))
        return self.shown


@dataclass
class _Kept:
    shown: dict[str, Any]
    clips: list[Editable]


_previews: OrderedDict[str, _Kept] = OrderedDict()


def keep(shown: dict[str, Any], clips: list[Editable]) -> str:
    """Keeps a preview, and names its clips in their `id` so that nobody can guess them; the preview's own id."""
    preview = secrets.token_hex(16)
    shown["id"] = preview
    for number, clip in enumerate(clips):
        clip.shown["id"] = f"{preview}.{number}"
    _previews[preview] = _Kept(shown, clips)
    while len(_previews) > MOST_KEPT:
        _previews.popitem(last=False)
    return preview


def shown(preview: str) -> dict[str, Any] | None:
    """A preview as it was shown, with the edits made since; None for an unknown one."""
    kept = _previews.get(preview)
    return kept.shown if kept else None


def editable(clip: str) -> Editable | None:
    """The clip of this id; None if no preview of this session listed it."""
    preview, _, number = clip.partition(".")
    kept = _previews.get(preview)
    return next((item for item in kept.clips if item.shown["id"] == f"{preview}.{number}"), None) if kept else None
