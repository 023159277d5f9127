"""Pictures as one-frame clips, and moving pictures with the durations of their frames."""

import io
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from tests.data.footage import decoded, scene
from tests.data.synthetic import write_clip
from trainer.data.pictures import first_picture
from trainer.data.probe import probe
from trainer.data.retime import retime
from trainer.data.sources.record import UnusableClip
from trainer.errors import UserError


@pytest.mark.parametrize(("name", "tolerance"), [("a.png", 0), ("a.bmp", 0), ("a.TIFF", 0), ("a.jpg", 4), ("a.webp", 6)])
def test_a_picture_is_a_clip_of_one_frame_at_any_rate(tmp_path: Path, name: str, tolerance: int) -> None:
    Image.fromarray(scene(0)).save(tmp_path / name)
    clip = probe(tmp_path / name)
    assert (len(clip.times), clip.height, clip.width, clip.fps) == (1, 96, 128, 1.0)
    for fps in (1, 16, 60, 240):
        assert retime(clip.times, clip.end, Fraction(fps)) == [0]
    assert np.abs(decoded(tmp_path / name)[0] - scene(0)).mean() <= tolerance
    assert decoded(tmp_path / name, [0], (32, 64)).shape == (1, 32, 64, 3)


def test_a_video_gives_its_first_and_last_frame(tmp_path: Path) -> None:
    frames = [scene(9 * number, 96, 128) for number in range(6)]
    write_clip(tmp_path / "clip.mp4", frames, rate=16)
    Image.fromarray(frames[2]).save(tmp_path / "still.png")
    for last, index in ((False, 0), (True, 5)):
        shown = first_picture(tmp_path / "clip.mp4", 96, 128, "image", last)
        distances = [np.abs(shown.astype(int) - frame).mean() for frame in frames]
        assert distances.index(min(distances)) == index and shown.shape == (96, 128, 3)
        assert (first_picture(tmp_path / "still.png", 96, 128, "image", last) == frames[2]).all()
    (tmp_path / "text.png").write_text("no picture", encoding="utf-8")
    for name in ("text.png", "nowhere.png"):
        with pytest.raises(UserError, match=f"image: '.*{name}' cannot be read"):
            first_picture(tmp_path / name, 96, 128, "image")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(scene(0))
    turn = [None, "FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90"][orientation - 1]
    stored.save(tmp_path / "a.png", exif=exif)
    if turn:
        stored = stored.transpose(Image.Transpose[turn])
    clip = probe(tmp_path / "a.png")
    assert (clip.width, clip.height) == stored.size
    assert (decoded(tmp_path / "a.png")[0] == np.asarray(stored)).all()


def exif(kind: int, count: int, value: bytes) -> bytes:
    """EXIF data whose orientation is of a TIFF type, with a count and four bytes: a value, or where the values lie."""
    return b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHI", 0x0112, kind, count) + value + b"\0\0\0\0" + b"\0\x06\0\x08" * 4


@pytest.mark.parametrize(
    ("kind", "count", "value"),
    [
        (7, 4, b"\x06\0\0\0"), (2, 2, b"6\0\0\0"), (5, 1, b"\0\0\0\x1a"), (11, 1, b"\x40\xc0\0\0"),
        (3, 0, b"\0\0\0\0"), (3, 1, b"\0\x09\0\0"), (3, 2**31, b"\xff\xff\xff\xff"), (99, 1, b"\0\x06\0\0"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Tag data larger")  # Pillow's
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp"])
def test_an_orientation_that_is_no_number_from_1_to_8_is_upright(tmp_path: Path, name: str, kind: int, count: int, value: bytes) -> None:
    Image.fromarray(scene(0)).save(tmp_path / name, exif=exif(kind, count, value), quality=100)
    clip = probe(tmp_path / name)
    assert (clip.height, clip.width) == (96, 128) and np.abs(decoded(tmp_path / name)[0] - scene(0)).mean() < 6


@pytest.mark.filterwarnings("ignore:Metadata Warning")  # Pillow's, of a second value
@pytest.mark.parametrize("count", [1, 2])
def test_of_several_orientations_the_first_counts(tmp_path: Path, count: int) -> None:
    Image.fromarray(scene(0)).save(tmp_path / "a.png", exif=exif(3, count, b"\0\x06\0\x08"))
    assert probe(tmp_path / "a.png").height == 128
    assert (decoded(tmp_path / "a.png")[0] == np.rot90(scene(0), -1)).all()


def test_sixteen_bits_palette_and_grey(tmp_path: Path) -> None:
    ramp = np.tile(np.linspace(0, 65535, 64).astype(np.uint16), (48, 1))
    Image.fromarray(ramp).save(tmp_path / "deep.png")
    assert np.abs(decoded(tmp_path / "deep.png")[0] - np.round(ramp / 257)[..., None]).max() <= 0
    palette = Image.fromarray(scene(0)).quantize(64)
    palette.save(tmp_path / "palette.png")
    assert (decoded(tmp_path / "palette.png")[0] == np.asarray(palette.convert("RGB"))).all()
    Image.fromarray(scene(0)[..., 0]).save(tmp_path / "grey.jpg", quality=100)
    assert np.abs(decoded(tmp_path / "grey.jpg")[0] - scene(0)[..., :1]).max() <= 3


def test_cmyk_and_profiles_come_out_as_srgb(tmp_path: Path) -> None:
    Image.fromarray(scene(0)).convert("CMYK").save(tmp_path / "print.jpg", quality=100)
    assert np.abs(decoded(tmp_path / "print.jpg")[0] - scene(0)).max() <= 8
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
    stored = Image.fromarray(scene(0))
    stored.save(tmp_path / "odd.png", icc_profile=lab.tobytes())  # a profile that does not fit counts as none
    assert (decoded(tmp_path / "odd.png")[0] == scene(0)).all()
    stored.save(tmp_path / "broken.png", icc_profile=b"no profile")
    assert (decoded(tmp_path / "broken.png")[0] == scene(0)).all()


def test_a_wide_profile_is_converted(tmp_path: Path) -> None:
    """A profile whose red and green are exchanged, so that heeding it exchanges them back."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    entries = {bytes(data[at : at + 4]): at for at in range(132, 132 + 12 * int.from_bytes(data[128:132], "big"), 12)}
    red, green = entries[b"rXYZ"] + 4, entries[b"gXYZ"] + 4
    data[red : red + 8], data[green : green + 8] = data[green : green + 8], data[red : red + 8]
    named = bytes(data).replace("sRGB".encode("utf-16-be"), "test".encode("utf-16-be"))
    assert "sRGB" not in ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(named)))
    Image.fromarray(scene(0)).save(tmp_path / "a.png", icc_profile=named)
    assert np.abs(decoded(tmp_path / "a.png")[0] - scene(0)[..., [1, 0, 2]]).max() <= 3


def test_transparent_parts_of_pictures_turn_black(tmp_path: Path) -> None:
    pixels = np.dstack([scene(0), np.tile(np.linspace(0, 255, 128).astype(np.uint8), (96, 1))])
    for name, lossless in (("a.png", {}), ("a.webp", {"lossless": True, "exact": True})):
        Image.fromarray(pixels).save(tmp_path / name, **lossless)
        expected = pixels[..., :3] * (pixels[..., 3:] / 255)
        assert np.abs(decoded(tmp_path / name)[0] - expected).max() <= 1
    palette = Image.fromarray(scene(0)).quantize(8)
    palette.save(tmp_path / "hole.png", transparency=0)
    hole = np.asarray(palette) == 0
    assert hole.any() and decoded(tmp_path / "hole.png")[0][hole].max() == 0


@pytest.mark.parametrize(("name", "options"), [("a.webp", {"lossless": True}), ("a.png", {}), ("a.apng", {"format": "PNG"})])
def test_moving_pictures_go_by_their_durations(tmp_path: Path, name: str, options: dict) -> None:
    first, *rest = [Image.fromarray(scene(index)) for index in range(4)]
    first.save(tmp_path / name, save_all=True, append_images=rest, duration=[40, 120, 40, 80], loop=0, **options)
    clip = probe(tmp_path / name)
    assert [float(time) for time in clip.times] == [0, 0.04, 0.16, 0.2] and clip.end == Fraction(28, 100)
    wanted = retime(clip.times, clip.end, Fraction(25))
    assert wanted == [0, 1, 1, 1, 2, 3, 3]
    frames = decoded(tmp_path / name, wanted)
    assert all((frame == scene(index)).all() for frame, index in zip(frames, wanted, strict=True))


def test_a_moving_picture_that_asks_for_no_delay_is_shown_as_browsers_do(tmp_path: Path) -> None:
    first, *rest = [Image.fromarray(scene(index)) for index in range(3)]
    first.save(tmp_path / "a.webp", save_all=True, append_images=rest, duration=0, lossless=True)
    assert probe(tmp_path / "a.webp").fps == 10


def test_the_picture_that_stands_in_for_an_animation_is_not_part_of_it(tmp_path: Path) -> None:
    first, *rest = [Image.fromarray(scene(index)) for index in range(4)]
    first.save(tmp_path / "a.png", save_all=True, append_images=rest, duration=50, default_image=True)
    assert (decoded(tmp_path / "a.png") == np.stack([scene(index) for index in (1, 2, 3)])).all()


def test_pages_and_previews_are_not_moments(tmp_path: Path) -> None:
    first, second = Image.fromarray(scene(0)), Image.fromarray(scene(5, 24, 32))
    first.save(tmp_path / "a.tif", save_all=True, append_images=[second])
    first.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[second], quality=100)
    for name in ("a.tif", "a.jpg"):
        assert len(probe(tmp_path / name).times) == 1
        assert np.abs(decoded(tmp_path / name)[0] - scene(0)).mean() < 3


def test_bad_pictures_say_why(tmp_path: Path) -> None:
    Image.fromarray(scene(0)).save(tmp_path / "whole.png")
    data = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(UnusableClip, match="cannot be read"):
        decoded(tmp_path / "cut.png")
    (tmp_path / "text.jpg").write_bytes(b"no picture")
    (tmp_path / "empty.png").write_bytes(b"")
    for name, reason in (("text.jpg", "cannot identify"), ("empty.png", "empty")):
        with pytest.raises(UnusableClip, match=reason):
            probe(tmp_path / name)
    Image.fromarray(np.ones((8, 8), np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(UnusableClip, match="floating-point"):
        decoded(tmp_path / "float.tif")
