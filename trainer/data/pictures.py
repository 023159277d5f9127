"""Pictures and moving pictures that Pillow reads: JPEG, PNG, WebP, BMP, TIFF; animated WebP and PNG with their durations."""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import fail
from ..files import reason, regular
from .colour import over_background
from .sources.endings import PICTURE_EXTENSIONS
from .sources.record import UnusableClip

if TYPE_CHECKING:
    from PIL.Image import Image

_MOVING = ("WEBP", "PNG")  # the frames of others are pages or previews, not moments
_SHORTEST, _INSTEAD = Fraction(1, 100), Fraction(1, 10)  # s; browsers show what is not longer than the one for the other
_WITH_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La")
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")  # others may be programs that Pillow hands on, such as EPS
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, TypeError, LookupError, ArithmeticError, struct.error)  # what Pillow raises of it
_ORIENTATION = 0x0112  # EXIF tag
_TURNS = {  # how to make a picture of an orientation upright; those from 5 on lie on their side
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90",
}  # fmt: skip


@dataclass(frozen=True)
class PictureFacts:
    """Size as displayed in px, Pillow's name of the format, and how long each frame is shown (s); none for a still."""

    height: int
    width: int
    format: str
    durations: tuple[Fraction, ...]


@dataclass(frozen=True)
class Picture:
    """A frame that a text is encoded with: the hash of its pixels, and what gives them, [H, W, 3] uint8."""

    digest: str
    pixels: Callable[[], np.ndarray] = field(compare=False)


def pixel_digest(frame: np.ndarray) -> bytes:
    """Hash of a frame's pixels and size, 20 bytes."""
    return hashlib.blake2b(f"{frame.shape}".encode() + np.ascontiguousarray(frame).tobytes(), digest_size=20).digest()


def is_picture(path: Path) -> bool:
    """Whether Pillow reads the file rather than FFmpeg, by its extension."""
    return path.suffix.lower() in PICTURE_EXTENSIONS


def picture_facts(path: Path) -> PictureFacts:
    """Reads a picture's header, or all frames of a moving one; raises UnusableClip saying why it cannot be read."""
    with _opened(path) as image:
        width, height = image.size
        if _orientation(image) >= 5:
            height, width = width, height
        return PictureFacts(height, width, str(image.format).lower(), tuple(_duration(image) for _ in _moments(image)))


def picture_frames(path: Path, last: int) -> Iterator[tuple[int, np.ndarray]]:
    """Frames 0 … `last` as upright sRGB, each [h, w, 3] uint8; raises UnusableClip where the file breaks off."""
    with _opened(path) as image:
        moments = _moments(image)
        index = -1
        for index, _ in zip(range(last + 1), moments, strict=False):
            yield index, _rgb(image)
        if index < 0:
            yield 0, _rgb(image)


def first_picture(path: Path, height: int, width: int, where: str, last: bool = False) -> np.ndarray:
    """A picture, or a clip's first or last frame, covering height x width and cropped at its centre: [height, width, 3] uint8.

    Raises UserError naming `where`.
    """
    from .decode import decode_frames
    from .probe import probe

    try:
        clip = probe(path)
        frames = decode_frames(path, clip, [len(clip.times) - 1 if last else 0], height, width, lambda: None)
        return next(frames).copy()  # Pillow's own pixels cannot be written, which torch warns of
    except (UnusableClip, OSError) as error:
        raise fail(where, f"'{path}' {error}.", "Give a picture file, such as a PNG, or a clip.") from None


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    from PIL import Image

    try:
        regular(path)
        with Image.open(path, formats=_FORMATS) as image:
            yield image
    except (*_DAMAGED, Image.DecompressionBombError) as error:
        raise UnusableClip(f"cannot be read ({reason(error)})") from error


def _orientation(image: Image) -> int:
    """1 to 8 by its EXIF data; 1, which is upright, if they are missing or damaged or say anything else."""
    try:
        value = image.getexif().get(_ORIENTATION)
    except _DAMAGED:
        return 1
    return value if isinstance(value, int) and value in _TURNS else 1


def _moments(image: Image) -> Iterator[None]:
    """Stands the image at each frame of its animation in turn; nothing for a still."""
    count = getattr(image, "n_frames", 1) if image.format in _MOVING else 1
    first = int(getattr(image, "default_image", False))  # a PNG's picture for viewers that do not animate
    if count - first > 1:
        for number in range(first, count):
            image.seek(number)
            image.load()
            yield


def _duration(image: Image) -> Fraction:
    """How long the frame it stands at is shown, s, exactly: WebP counts milliseconds, PNG has fractions of 16 bits."""
    shown = Fraction(image.info.get("duration", 0) / 1000).limit_denominator(65535)
    return shown if shown > _SHORTEST else _INSTEAD


def _rgb(image: Image) -> np.ndarray:
    """The frame it stands at: turned as its EXIF data say, to sRGB by its ICC profile, laid over the background."""
    from PIL.Image import Transpose

    if turn := _TURNS.get(_orientation(image)):
        image = image.transpose(Transpose[turn])
    if image.mode == "F":
        raise UnusableClip("holds floating-point values; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # grey of 16 bits
        grey = (np.clip(np.asarray(image).astype(np.int64), 0, 65535) + 128) // 257
        return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)
    if image.mode in _WITH_ALPHA or "transparency" in image.info:
        return over_background(np.asarray(_srgb(image.convert("RGBA"))))
    return np.asarray(_srgb(image if image.mode in ("RGB", "CMYK", "L") else image.convert("RGB")))


def _srgb(image: Image) -> Image:
    """RGB or RGBA in sRGB; a profile that is missing or does not fit counts as sRGB."""
    from PIL import ImageCms

    target = "RGBA" if image.mode == "RGBA" else "RGB"
    if profile := image.info.get("icc_profile"):
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            if "sRGB" not in ImageCms.getProfileDescription(source):
                converted = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode=target)
                assert converted is not None  # it only is when converting in place
                return converted
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
            pass
    return image.convert(target)
