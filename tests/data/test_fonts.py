"""Text on contact sheets: accents are drawn or left out, never boxes."""

import pytest
from PIL import Image, ImageDraw

from trainer.data import fonts
from trainer.data.fonts import drawable

TEXT = "un café à Łódź, 犬 und ein Straßenhund"


def picture(font: object, letter: str) -> bytes:
    image = Image.new("L", (40, 40))
    ImageDraw.Draw(image).text((5, 5), letter, 255, font)
    return image.tobytes()


def test_english_and_signs_of_the_sheet_are_drawn_as_they_are() -> None:
    for text in ("a dog · 33x480x832…", ""):
        assert drawable(text, 18)[0] == text


def test_an_installed_font_draws_accents() -> None:
    if all(fonts._installed(file, 18) is None for file in fonts._FILES):
        pytest.skip("no known font is installed here")
    assert drawable("un café à Łódź", 18)[0] == "un café à Łódź"
    text, font = drawable(TEXT, 18)
    assert text.replace("?", "犬") == TEXT
    assert picture(font, "é") != picture(font, "\U0010ffff") and any(picture(font, "é"))


def test_without_one_accents_are_left_out_and_nothing_is_a_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_installed", lambda file, size: None)
    text, font = drawable(TEXT, 18)
    assert text == "un cafe a Lodz, ? und ein Strassenhund"
    assert picture(font, "\U0010ffff") not in [picture(font, letter) for letter in text]


def test_what_cannot_be_seen_is_left_out_and_parts_of_letters_are_joined() -> None:
    assert drawable("a\u200db\x07c\ud800", 18)[0] == "abc"
    assert drawable("cafe\u0301", 18)[0] in ("caf\u00e9", "cafe")
