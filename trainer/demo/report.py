"""The demo's report: loss curve, before/after contact sheet, figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

INK, FAINT, PAPER = (40, 40, 40), (200, 200, 200), (255, 255, 255)
CURVE = (900, 420)  # px, width and height of the loss curve
FRAMES_SHOWN = 6
SCALE = 2  # of the sample frames on the sheet


def write_report(folder: Path, losses: list[float], rows: list[tuple[str, np.ndarray, np.ndarray]], figures: dict[str, object]) -> Path:
    """Writes loss.png, before-after.png and figures.json; `rows` are (prompt, frames before, frames after)."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "loss.png", loss_curve(losses))
    _write(folder / "before-after.png", contact_sheet(rows))
    (folder / "figures.json").write_text(json.dumps(figures, indent=2), encoding="utf-8")
    return folder


def loss_curve(losses: list[float]) -> np.ndarray:
    """The raw loss and its running mean over the steps, [H, W, 3] uint8 RGB."""
    import cv2
    import numpy as np

    width, height = CURVE
    left, top, right, bottom = 70, 50, width - 20, height - 40
    picture = np.full((height, width, 3), PAPER, np.uint8)
    low, high = min(losses), max(losses)
    span = (high - low) or 1.0

    def place(values: list[float]) -> np.ndarray:
        x = left + np.arange(len(values)) * (right - left) / max(len(values) - 1, 1)
        y = bottom - (np.asarray(values) - low) / span * (bottom - top)
        return np.stack([x, y], 1).round().astype(np.int32)

    for share in (0.0, 0.5, 1.0):
        y = round(bottom - share * (bottom - top))
        cv2.line(picture, (left, y), (right, y), FAINT, 1)
        _text(picture, f"{low + share * span:.3f}", (8, y + 5))
    cv2.polylines(picture, [place(losses)], False, (170, 195, 230), 1, cv2.LINE_AA)
    cv2.polylines(picture, [place(smoothed(losses))], False, (30, 90, 180), 2, cv2.LINE_AA)
    _text(picture, "Training loss (bold: running mean)", (left, 30))
    _text(picture, "1", (left, height - 14))
    _text(picture, f"step {len(losses)}", (right - 80, height - 14))
    return picture


def smoothed(losses: list[float], share: float = 0.1) -> list[float]:
    """Exponential running mean, `share` of each new value, free of the start's bias."""
    total, weight, means = 0.0, 0.0, []
    for loss in losses:
        total, weight = total * (1 - share) + loss * share, weight * (1 - share) + share
        means.append(total / weight)
    return means


def contact_sheet(rows: list[tuple[str, np.ndarray, np.ndarray]]) -> np.ndarray:
    """Frames of each prompt before (left) and after training (right), [H, W, 3] uint8 RGB."""
    import numpy as np

    bands = []
    for prompt, before, after in rows:
        halves = [np.concatenate([_enlarged(clip[i]) for i in _spread(len(clip))], 1) for clip in (before, after)]
        gap = np.full((halves[0].shape[0], 24, 3), PAPER, np.uint8)
        frames = np.concatenate([halves[0], gap, halves[1]], 1)
        title = np.full((34, frames.shape[1], 3), PAPER, np.uint8)
        _text(title, f"{prompt}: before", (6, 23))
        _text(title, "with the LoRA", (halves[0].shape[1] + 30, 23))
        bands += [title, frames]
    return np.concatenate(bands, 0)


def _spread(count: int) -> list[int]:
    return [round(i * (count - 1) / (FRAMES_SHOWN - 1)) for i in range(FRAMES_SHOWN)]


def _enlarged(frame: np.ndarray) -> np.ndarray:
    return frame.repeat(SCALE, 0).repeat(SCALE, 1)


def _text(picture: np.ndarray, text: str, origin: tuple[int, int]) -> None:
    import cv2

    cv2.putText(picture, text, origin, cv2.FONT_HERSHEY_SIMPLEX, 0.5, INK, 1, cv2.LINE_AA)


def _write(file: Path, picture: np.ndarray) -> None:
    import cv2

    encoded = cv2.imencode(".png", picture[:, :, ::-1])[1]  # OpenCV's writer fails on non-ASCII paths under Windows
    file.write_bytes(encoded.tobytes())
