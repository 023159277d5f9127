"""Text on pictures: a font of this machine that has its letters, and a spelling for those that no font here has."""

from __future__ import annotations

import math
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont, ImageFont

# Pillow looks for these where Windows, macOS and Linux keep fonts; the later ones have Chinese, Japanese and Korean.
_FILES = (
    "DejaVuSans.ttf", "NotoSans-Regular.ttf", "segoeui.ttf", "Arial.ttf", "LiberationSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc", "msyh.ttc", "msgothic.ttc", "malgun.ttf", "Arial Unicode.ttf", "PingFang.ttc", "AppleSDGothicNeo.ttc",
)  # fmt: skip
_NOWHERE = "\U0010ffff"  # no font has it: it is drawn as the box that stands for a missing letter


def drawable(text: str, size: int) -> tuple[str, FreeTypeFont | ImageFont]:
    """The text and a font of `size` px that draws it; letters that the best font here lacks lose their accents or become '?'."""
    text = "".join(letter for letter in unicodedata.normalize("NFC", text) if letter.isspace() or unicodedata.category(letter)[0] != "C")
    best, fewest = _own(size), len(text) + 1
    for font in (*(_installed(file, size) for file in _FILES), best):
        if font is None:
            continue
        lacking = sum(not _has(font, letter) for letter in text)
        if not lacking:
            return text, font
        if lacking < fewest:
            best, fewest = font, lacking
    return "".join(letter if _has(best, letter) else _plain(letter, best) for letter in text), best


def _plain(letter: str, font: FreeTypeFont | ImageFont) -> str:
    """The letter without what is put on it, as far as the font has that."""
    parts = "".join(part for part in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(part))
    try:
        bare = unicodedata.lookup(unicodedata.name(letter, "").partition(" WITH ")[0])
    except KeyError:
        bare = ""
    spellings = (parts, bare, letter.casefold())
    return next((spelt for spelt in spellings if spelt and all(_has(font, part) for part in spelt)), "?")


@cache
def _own(size: int) -> FreeTypeFont | ImageFont:
    """Pillow's font, which has the letters of English only."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


@cache
def _installed(file: str, size: int) -> FreeTypeFont | None:
    from PIL import ImageFont

    try:
        return ImageFont.truetype(file, size)
    except OSError:
        return None


@cache
def _has(font: FreeTypeFont | ImageFont, letter: str) -> bool:
    """Whether the font has a picture of the letter that is not the one of missing letters."""
    picture = _picture(font, letter)
    return letter.isspace() or (any(picture[1]) and picture != _picture(font, _NOWHERE))


def _picture(font: FreeTypeFont | ImageFont, letter: str) -> tuple[tuple[int, int], bytes]:
    from PIL import Image, ImageDraw

    _, _, right, bottom = font.getbbox(letter)
    image = Image.new("L", (max(1, math.ceil(right)), max(1, math.ceil(bottom))))
    ImageDraw.Draw(image).text((0, 0), letter, 255, font)
    return image.size, image.tobytes()
