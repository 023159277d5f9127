"""Probing and decoding real files: counts, times, rotation, colour, containers, faults."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.synthetic import grey, index_of, turn_by_display_matrix, write_clip, write_tagged
from trainer.data.decode import decode_frames
from trainer.data.fit import fit
from trainer.data.probe import probe
from trainer.data.retime import retime
from trainer.data.sources.record import UnusableClip


def decode(path: Path, wanted: list[int], height: int = 48, width: int = 64) -> torch.Tensor:
    return everything(decode_frames(path, probe(path), wanted, height, width, lambda: None))


def everything(frames: Iterator[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(list(frames)))


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.mp4", "libx264"), ("a.mov", "mpeg4"), ("a.mkv", "libx264"), ("a.webm", "libvpx-vp9"), ("a.avi", "libx264"), ("a.m4v", "libx264")],
)
def test_every_container_gives_its_frames_in_order(tmp_path: Path, name: str, codec: str) -> None:
    path = write_clip(tmp_path / name, 17, rate=16, codec=codec)
    clip = probe(path)
    assert (len(clip.times), clip.fps, clip.height, clip.width) == (17, 16.0, 48, 64)
    wanted = retime(clip.times, clip.end, Fraction(16))
    assert wanted == list(range(17))
    frames = decode(path, wanted)
    assert frames.shape == (17, 48, 64, 3) and frames.dtype == torch.uint8
    assert [index_of(frame) for frame in frames] == wanted


def test_gif_with_its_own_delays(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.gif", 5, rate=10, codec="gif")
    clip = probe(path)
    assert len(clip.times) == 5 and clip.fps == pytest.approx(10)
    frames = decode(path, [0, 2, 4])
    levels = frames.float().mean((1, 2, 3)).tolist()
    assert levels == sorted(levels) and levels[2] - levels[0] > 10


def test_variable_frame_rate_goes_by_presentation_time(tmp_path: Path) -> None:
    times = [0, 40, 80, 500, 540, 1000, 1040, 1080]
    path = write_clip(tmp_path / "vfr.mp4", 8, rate=25, pts_ms=times)
    clip = probe(path)
    assert [round(float(time) * 1000) for time in clip.times] == times
    wanted = retime(clip.times, clip.end, Fraction(25))
    assert wanted[:14] == [0, 1] + [2] * 11 + [3]
    assert [index_of(frame) for frame in decode(path, wanted)] == wanted


def test_repeats_and_gaps_in_what_is_wanted(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", 20)
    assert [index_of(frame) for frame in decode(path, [3, 3, 7, 19, 19])] == [3, 3, 7, 19, 19]


def test_rotation_is_applied(tmp_path: Path) -> None:
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:24, :32] = 200  # bright top left corner
    path = write_clip(tmp_path / "phone.mp4", [picture] * 3)
    turn_by_display_matrix(path)
    clip = probe(path)
    assert (clip.height, clip.width) == (64, 48)
    upright = decode(path, [0], 64, 48)[0].numpy().astype(int)
    assert np.abs(upright - np.rot90(picture, -1)).mean() < 6  # clockwise: the corner is top right now
    assert upright[:32, 24:].mean() > 190 > 10 > upright[:32, :24].mean()


def test_pixels_that_are_not_square_are_made_so(tmp_path: Path) -> None:
    import av

    path = tmp_path / "wide.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=16)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        stream.codec_context.sample_aspect_ratio = Fraction(2, 1)
        for _ in range(2):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey(3), format="rgb24")))
        container.mux(stream.encode(None))
    assert (probe(path).height, probe(path).width) == (48, 128)


@pytest.mark.parametrize(("height", "width", "matrix"), [(48, 64, 5), (720, 1280, 1)])
def test_untagged_colour_is_601_when_small_and_709_when_large(tmp_path: Path, height: int, width: int, matrix: int) -> None:
    import av

    colour = (200, 30, 60)
    path = tmp_path / "c.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=16, options={"crf": "1"})
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        picture = av.VideoFrame.from_ndarray(np.full((height, width, 3), colour, np.uint8), format="rgb24")
        converted = picture.reformat(format="yuv420p", dst_colorspace=matrix, dst_color_range=1)
        frame = av.VideoFrame.from_ndarray(converted.to_ndarray(), format="yuv420p")  # a frame without tags
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert probe(path).colour.matrix == matrix
    assert np.abs(decode(path, [0], 48, 64)[0].float().mean((0, 1)).numpy() - colour).max() < 4


@pytest.mark.parametrize(
    "tags", [{"colorspace": 1, "color_range": 1}, {"colorspace": 1, "color_range": 2}, {"colorspace": 5, "color_range": 2}]
)
def test_tagged_matrix_and_range_are_honoured(tmp_path: Path, tags: dict[str, int]) -> None:
    path = write_tagged(tmp_path / "a.mp4", (200, 30, 60), **tags)
    assert (probe(path).colour.matrix, probe(path).colour.range) == (tags["colorspace"], tags["color_range"])
    assert (decode(path, [0])[0].float().mean((0, 1)) - torch.tensor([200.0, 30, 60])).abs().max() < 4


def test_ten_bits_decode(tmp_path: Path) -> None:
    path = write_tagged(tmp_path / "a.mp4", (200, 30, 60), pix_fmt="yuv420p10le", colorspace=1)
    assert (decode(path, [0])[0].float().mean((0, 1)) - torch.tensor([200.0, 30, 60])).abs().max() < 4


def test_transparent_parts_turn_black(tmp_path: Path) -> None:
    import av

    pixels = np.full((48, 64, 4), 200, np.uint8)
    pixels[:, :32, 3], pixels[:, 32:, 3] = 0, 255
    path = tmp_path / "a.mov"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("png", rate=16)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "rgba"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgba")))
        container.mux(stream.encode(None))
    frame = decode(path, [0])[0]
    assert frame[:, :32].max() == 0 and (frame[:, 32:] == 200).all()


def test_aspect_is_never_distorted() -> None:
    import cv2

    for shape in ((480, 640), (640, 360), (607, 1079)):
        picture = np.zeros((*shape, 3), np.uint8)
        centre, radius = (shape[1] // 2, shape[0] // 2), min(shape) // 4
        cv2.circle(picture, centre, radius, (255, 255, 255), -1)
        for height, width in ((96, 96), (64, 160), (160, 64), (720, 480)):
            fitted = fit(picture, shape, height, width)
            assert fitted.shape == (height, width, 3)
            mask = fitted[..., 0] > 127
            rows, columns = mask[:, width // 2].sum(), mask[height // 2].sum()
            scale = max(height / shape[0], width / shape[1])
            expected = 2 * radius * scale
            assert abs(min(expected, height) - rows) <= 2 and abs(min(expected, width) - columns) <= 2


def test_scaling_down_is_antialiased() -> None:
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[:, ::2] = 255
    assert np.abs(fit(stripes, (256, 256), 32, 32).astype(int) - 127).max() <= 2


@pytest.mark.parametrize(("data", "reason"), [(b"", "empty"), (b"not a video at all" * 50, "cannot be read")])
def test_unreadable_files_say_why(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "bad.mp4"
    path.write_bytes(data)
    with pytest.raises(UnusableClip, match=reason):
        probe(path)


def test_truncated_file_is_unusable(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", 17)
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(UnusableClip):
        probe(path)


def test_stream_that_breaks_off_is_unusable(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", 17)
    clip = probe(path)
    write_clip(path, 5)
    with pytest.raises(UnusableClip, match="after frame 5 of 17"):
        everything(decode_frames(path, clip, list(range(17)), 48, 64, lambda: None))


def test_sound_does_not_lose_the_clip(tmp_path: Path) -> None:
    import av

    path = tmp_path / "sound.mkv"
    with av.open(str(path), "w") as container:
        sound = container.add_stream("pcm_s16le", rate=8000)
        video = container.add_stream("libx264", rate=16)
        video.height, video.width, video.pix_fmt = 48, 64, "yuv420p"
        for index in range(5):
            container.mux(video.encode(av.VideoFrame.from_ndarray(grey(index), format="rgb24")))
            samples = av.AudioFrame.from_ndarray(np.zeros((1, 500), np.int16), format="s16", layout="mono")
            samples.rate, samples.pts = 8000, 500 * index
            container.mux(sound.encode(samples))
        container.mux(video.encode(None))
    assert [index_of(frame) for frame in decode(path, [0, 4])] == [0, 4]


def test_only_the_needed_part_of_a_clip_is_decoded(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "long.mp4", 200)
    decoded = []
    frames = everything(decode_frames(path, probe(path), [0, 3], 48, 64, lambda: decoded.append(1)))
    assert len(frames) == 2 and len(decoded) == 4


def test_one_missing_frame_shows_the_one_before_and_more_are_a_fault(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", 17)
    clip = probe(path)
    write_clip(path, 16)
    assert index_of(everything(decode_frames(path, clip, list(range(17)), 48, 64, lambda: None))[16]) == 15
    write_clip(path, 15)
    with pytest.raises(UnusableClip, match="after frame 15 of 17"):
        everything(decode_frames(path, clip, list(range(17)), 48, 64, lambda: None))
