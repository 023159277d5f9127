"""Pictures of a preview: a strip of frames for each clip, and the contact sheet of all with what they are trained as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .fonts import drawable

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont, ImageFont

    from .preview import ShownClip

LONGEST_SIDE = 320  # px of a frame in a strip
_WIDTH, _MARGIN, _GAP = 1280, 24, 6  # px of the sheet
_SIZE, _LINE, _LINES = 18, 24, 2  # px of the text, px and number of a caption's lines
_PAPER, _INK, _FAINT = (24, 24, 27), (228, 228, 231), (161, 161, 170)


def strip(frames: np.ndarray) -> np.ndarray:
    """The frames [F, H, W, 3] side by side, made smaller if they are large: [h, F·w, 3] uint8."""
    import cv2

    height, width = frames.shape[1:3]
    scale = min(1.0, LONGEST_SIDE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = [frame if scale == 1.0 else cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames]
    return np.concatenate(small, axis=1)


def facts(clip: ShownClip) -> list[str]:
    """What the clip is trained as, in a few words each: size, frame rate, number of examples."""
    told = [str(clip.bucket), f"{clip.fps:g} fps"]
    examples = clip.report.windows * clip.report.sections
    for count, what in ((examples, "examples"), (clip.report.variants, "variants"), (len(clip.texts), "captions")):
        if count > 1:
            told.append(f"{count} {what}")
    return told


def contact_sheet(clips: Sequence[ShownClip]) -> np.ndarray:
    """One picture of all clips, a row each: frames, name and size, caption as it is trained; [h, 1280, 3] uint8."""
    rows = [_row(clip) for clip in clips]
    edge = np.full((_MARGIN, _WIDTH, 3), _PAPER, np.uint8)
    return np.concatenate([edge, *(part for row in rows for part in (row, edge))] if rows else [edge], axis=0)


def _row(clip: ShownClip) -> np.ndarray:
    """A clip's frames, as large as fits, above its text."""
    from PIL import Image, ImageDraw

    count, (height, width) = len(clip.frames), clip.frames.shape[1:3]
    inner = _WIDTH - 2 * _MARGIN
    wide = min((inner - _GAP * (count - 1)) / count, LONGEST_SIDE * min(1.0, width / height))
    size = (max(1, int(wide)), max(1, round(wide * height / width)))
    sheet = Image.new("RGB", (_WIDTH, size[1] + 8 + _LINE * (1 + _LINES)), _PAPER)
    enlarged = Image.Resampling.NEAREST if size[0] > width else Image.Resampling.LANCZOS
    for place, frame in enumerate(clip.frames):
        sheet.paste(Image.fromarray(frame).resize(size, enlarged), (_MARGIN + place * (size[0] + _GAP), 0))
    draw = ImageDraw.Draw(sheet)
    about, font = drawable(" · ".join([clip.record.name, *facts(clip)]), _SIZE)
    draw.text((_MARGIN, size[1] + 8), _wrapped(about, font, inner, 1)[0], _FAINT, font)
    caption, font = drawable(clip.texts[0] or "(no caption)", _SIZE)
    for line, text in enumerate(_wrapped(caption, font, inner, _LINES), 1):
        draw.text((_MARGIN, size[1] + 8 + line * _LINE), text, _INK, font)
    return np.asarray(sheet)


def _wrapped(text: str, font: FreeTypeFont | ImageFont, width: int, most: int) -> list[str]:
    """The text in at most so many lines of this width, the last one cut short with an ellipsis."""
    lines, words = list[str](), text.split()
    while words and len(lines) < most:
        count = 1
        while count < len(words) and font.getlength(" ".join(words[: count + 1])) <= width:
            count += 1
        lines.append(" ".join(words[:count]))
        words = words[count:]
    last = lines[-1] + ("…" if words else "")
    while font.getlength(last) > width:
        last = last[:-2] + "…"
    return [*lines[:-1], last]
