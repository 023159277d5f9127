"""Frames against ffmpeg told the same matrix and range: 99.9 % of pixels within 2 levels, in every codec, container, depth and odd size."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.footage import by_ffmpeg, decoded, encode, ffmpeg, scene, within
from tests.data.synthetic import turn_by_display_matrix
from trainer.data.probe import probe

X265 = {"x265-params": "log-level=error:pools=1", "crf": "20"}
QUICK = {"crf": "20", "preset": "ultrafast"}
VPX = {"crf": "20", "b": "0", "deadline": "realtime", "cpu-used": "8"}
SVT = {"preset": "12", "svtav1-params": "lp=1"}


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "options"),
    [
        ("a.mp4", "libx264", "yuv420p", QUICK),
        ("a.mkv", "libx264", "yuv420p10le", QUICK),
        ("a.avi", "libx264", "yuv422p", QUICK),
        ("b.avi", "mjpeg", "yuvj420p", {}),
        ("a.mov", "libx265", "yuv420p10le", X265),
        ("b.mp4", "libx265", "yuv420p", X265),
        ("a.m4v", "libx264", "yuv420p", QUICK),
        ("a.mp4", "libsvtav1", "yuv420p", SVT),
        ("a.mkv", "libsvtav1", "yuv420p10le", SVT),
        ("a.webm", "libvpx-vp9", "yuv420p", VPX),
        ("a.mov", "prores_ks", "yuv422p10le", {}),
        ("a.mkv", "libx264", "yuv444p", QUICK),
    ],
)
def test_codecs_and_depths(tmp_path: Path, name: str, codec: str, pix_fmt: str, options: dict[str, str]) -> None:
    path = encode(tmp_path / name, [scene(index) for index in range(4)], codec, pix_fmt, options=options)
    clip = probe(path)
    assert (clip.height, clip.width, len(clip.times)) == (96, 128, 4)
    assert within(decoded(path), by_ffmpeg(path, clip, "bt601")) >= 0.999


def test_vp9_of_ten_bits(tmp_path: Path) -> None:
    source = encode(tmp_path / "a.mkv", [scene(index) for index in range(4)], "ffv1", "yuv420p10le")
    path = tmp_path / "a.webm"
    ffmpeg("-i", source, "-c:v", "libvpx-vp9", "-profile:v", "2", "-pix_fmt", "yuv420p10le", "-cpu-used", "8", "-threads", "1", path)
    assert within(decoded(path), by_ffmpeg(path, probe(path), "bt601")) >= 0.999


@pytest.mark.parametrize(("matrix", "told"), [(1, "bt709"), (5, "bt601"), (6, "bt601"), (9, "bt2020")])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le"])
def test_matrices_and_ranges(tmp_path: Path, matrix: int, told: str, full: bool, pix_fmt: str) -> None:
    tags = {"colorspace": matrix, "color_range": 2 if full else 1}
    path = encode(tmp_path / "a.mkv", [scene(0)], "ffv1", pix_fmt, tags=tags)
    clip = probe(path)
    assert clip.colour.range == tags["color_range"]
    assert within(decoded(path), by_ffmpeg(path, clip, told)) >= 0.999


@pytest.mark.parametrize(("height", "width", "told"), [(144, 176, "bt601"), (720, 1280, "bt709"), (1280, 720, "bt709")])
def test_untagged_video_is_bt709_from_720_lines(tmp_path: Path, height: int, width: int, told: str) -> None:
    path = encode(tmp_path / "a.mp4", [scene(0, height, width)], "libx264", "yuv420p", options=QUICK)
    assert within(decoded(path), by_ffmpeg(path, probe(path), told)) >= 0.999


def test_odd_sizes(tmp_path: Path) -> None:
    path = encode(tmp_path / "odd.webm", [scene(index, 607, 1079) for index in range(2)], "libvpx-vp9", "yuv420p", options=VPX)
    clip = probe(path)
    assert (clip.height, clip.width) == (607, 1079)
    assert within(decoded(path), by_ffmpeg(path, clip, "bt601")) >= 0.999
    path = encode(tmp_path / "odd.mp4", [scene(0, 95, 127)], "libx264", "yuv444p", options=QUICK)
    assert within(decoded(path), by_ffmpeg(path, probe(path), "bt601")) >= 0.999


def test_gif_with_transparency_is_laid_over_black(tmp_path: Path) -> None:
    from PIL import Image

    pictures = [Image.fromarray(scene(index, 48, 64)).quantize(200) for index in range(3)]
    for picture in pictures:
        picture.paste(255, (10, 10, 30, 30))
    path = tmp_path / "a.gif"
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=100, transparency=255, disposal=2)
    frames, clip = decoded(path), probe(path)
    assert clip.fps == 10 and len(frames) == 3
    assert frames[:, 10:30, 10:30].max() == 0
    theirs = by_ffmpeg(path, clip)
    theirs[:, 10:30, 10:30] = 0  # ffmpeg drops the alpha and shows what colour lies under it
    assert within(frames, theirs) >= 0.999


def test_rotated_as_ffmpeg_does(tmp_path: Path) -> None:
    path = encode(tmp_path / "rot.mp4", [scene(index) for index in range(3)], "libx264", "yuv444p", options=QUICK)
    turn_by_display_matrix(path)
    clip = probe(path)
    assert (clip.height, clip.width, clip.rotation) == (128, 96, 270)
    assert within(decoded(path), by_ffmpeg(path, clip, "bt601")) >= 0.999


def test_scaled_down_as_ffmpeg_averages(tmp_path: Path) -> None:
    path = encode(tmp_path / "a.mp4", [scene(index, 192, 256) for index in range(2)], "libx264", "yuv420p", options=QUICK)
    small = decoded(path, size=(96, 128))
    large = by_ffmpeg(path, probe(path), "bt601")
    averaged = large.reshape(2, 96, 2, 128, 2, 3).mean((2, 4))
    assert np.abs(small - averaged).max() <= 3
