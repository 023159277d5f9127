"""Reading streams: transparency, interlacing, odd timestamps, damage; and that skipped work changes no pixel."""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from tests.data.footage import damaged, decoded, encode, ffmpeg, frame_of, scene
from tests.data.synthetic import grey, index_of, turn_by_display_matrix, write_clip
from trainer.data import stream
from trainer.data.probe import Probe, probe
from trainer.data.sources.record import UnusableClip

QUICK = {"crf": "20", "preset": "ultrafast"}


def digests(path: Path, wanted: Sequence[int]) -> list[str]:
    return [hashlib.sha1(frame.tobytes()).hexdigest() for frame in decoded(path, wanted).astype(np.uint8)]


@pytest.mark.parametrize(("codec", "options"), [("libvpx-vp9", {}), ("libvpx", {"auto-alt-ref": "0"})])
def test_transparency_of_webm_is_laid_over_black(tmp_path: Path, codec: str, options: dict[str, str]) -> None:
    plain = [np.full((96, 128), level) for level in (180, 110, 150)]
    half = np.where(np.arange(128) < 64, 255, 0) * np.ones((96, 1), int)
    frames = [frame_of([*plain, half], "yuva420p") for _ in range(3)]

    def mark(video: av.VideoStream) -> None:
        video.metadata["alpha_mode"] = "1"

    path = encode(tmp_path / "a.webm", frames, codec, "yuva420p", options={**options, "crf": "10", "b": "2000000"}, prepare=mark)
    shown = decoded(path)
    assert shown.shape == (3, 96, 128, 3)
    assert shown[..., :56, :].min() > 150 and shown[..., 72:, :].max() < 10


def test_transparency_of_quicktime_animation(tmp_path: Path) -> None:
    """rgba.mov: red of half opacity over black is half as bright."""
    path = tmp_path / "rgba.mov"
    with av.open(str(path), "w") as container:
        video = container.add_stream("qtrle", rate=30)
        video.height, video.width, video.pix_fmt = 48, 64, "argb"
        pixels = np.full((48, 64, 4), (128, 255, 0, 0), np.uint8)
        container.mux(video.encode(av.VideoFrame.from_ndarray(pixels, format="argb")))
        container.mux(video.encode(None))
    assert (decoded(path)[0] == (128, 0, 0)).all()


def combed(index: int) -> np.ndarray:
    """A bright bar whose even and odd lines show two moments, as interlaced cameras give."""
    picture = np.full((96, 128, 3), 40, np.uint8)
    for parity in (0, 1):
        left = 10 + 8 * (2 * index + parity)
        picture[parity::2, left : left + 24] = 210
    return picture


def between_lines(frames: np.ndarray) -> float:
    return float(np.abs(np.diff(frames[..., 0], axis=1)).mean())


def test_interlaced_video_is_told_and_made_whole(tmp_path: Path) -> None:
    options = {"crf": "1", "preset": "ultrafast", "x264-params": "tff=1", "flags": "+ildct+ilme"}
    path = encode(tmp_path / "a.mp4", [combed(index) for index in range(6)], "libx264", "yuv420p", options=options)
    clip = probe(path)
    assert clip.interlaced and clip.keys == ()
    frames = decoded(path)
    assert len(frames) == 6
    assert between_lines(combed(1)[None].astype(int)) > 10 > 3 > between_lines(frames[1:5])
    assert (decoded(path, [3])[0] == frames[3]).all()


def test_progressive_video_is_not_interlaced(tmp_path: Path) -> None:
    assert not probe(write_clip(tmp_path / "a.mp4", 3)).interlaced


KEYED = [
    ("a.mp4", "libx264", {"g": "40", "preset": "fast", "crf": "20", "x264-params": "keyint=40:bframes=3:b-pyramid=normal:ref=4"}),
    ("open.mkv", "libx264", {"g": "40", "preset": "fast", "crf": "20", "x264-params": "keyint=40:bframes=3:open-gop=1"}),
    ("refresh.mp4", "libx264", {"g": "40", "preset": "fast", "crf": "20", "x264-params": "keyint=40:intra-refresh=1"}),
    ("a.mov", "libx265", {"preset": "ultrafast", "x265-params": "keyint=40:min-keyint=40:open-gop=1:bframes=3:log-level=error:pools=1"}),
    ("a.webm", "libvpx-vp9", {"g": "40", "deadline": "realtime", "cpu-used": "8", "lag-in-frames": "16", "auto-alt-ref": "1"}),
    ("av1.mkv", "libsvtav1", {"g": "40", "preset": "12", "svtav1-params": "lp=1"}),
]


@pytest.mark.parametrize(("name", "codec", "options"), KEYED, ids=[name for name, _, _ in KEYED])
def test_skipping_changes_no_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, codec: str, options: dict[str, str]) -> None:
    """Late frames, scattered frames, every other frame: the same whether decoding skips or reads all there is."""
    path = encode(tmp_path / name, [scene(index, 64, 96) for index in range(130)], codec, "yuv420p", options=options)
    clip = probe(path)
    assert len(clip.times) == 130 and clip.keys[0] == 0
    assert name == "refresh.mp4" or len(clip.keys) >= 3
    choices = ([125, 127], [3, 60, 61, 126], list(range(0, 130, 2)), [39, 40, 41, 79, 80, 81, 119], [5, 5, 100, 100], [129])
    skipped = [digests(path, wanted) for wanted in choices]
    monkeypatch.setattr(stream, "_LEAP", 10_000)
    monkeypatch.setattr(stream, "_skips", lambda clip: False)
    whole = digests(path, range(130))
    assert skipped == [[whole[index] for index in wanted] for wanted in choices]


def test_late_frames_need_few_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = encode(tmp_path / "a.mp4", [scene(index, 64, 96) for index in range(130)], "libx264", "yuv420p", options={**QUICK, "g": "20"})
    passed = []
    inner = stream.frames_of
    monkeypatch.setattr(stream, "frames_of", lambda *given: (passed.append(frame) or frame for frame in inner(*given)))
    decoded(path, [125])
    assert len(passed) <= 7


def test_a_keyframe_that_leads_astray_is_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = encode(tmp_path / "a.mp4", [scene(index, 64, 96) for index in range(130)], "libx264", "yuv420p", options={**QUICK, "g": "20"})
    expected = digests(path, [2, 65, 118])
    monkeypatch.setattr(stream, "_key_before", lambda keys, index: max(0, index - 1) if keys else -1)  # claims what is no keyframe
    inner = stream._placed

    def without_65(frames: Iterator[av.VideoFrame], clip: Probe, last: int) -> Iterator[tuple[int, av.VideoFrame]]:
        return (pair for pair in inner(frames, clip, last) if pair[0] != 65 or last < 0)

    monkeypatch.setattr(stream, "_placed", without_65)
    assert digests(path, [2, 65, 118]) == expected


def test_several_frames_with_one_time(tmp_path: Path) -> None:
    """They keep their order, and the frames after them their places."""
    clip = replace(probe(write_clip(tmp_path / "a.mkv", 6, rate=25)), ticks=(0, 40, 40, 120, 160, 200))
    frames = [av.VideoFrame(16, 16) for _ in range(6)]
    for frame, pts in zip(frames, (0, 40, 40, 120, 120, 160), strict=True):
        frame.pts = pts
    assert [(index, frame.pts) for index, frame in stream._placed(frames, clip, -1)] == [(0, 0), (1, 40), (2, 40), (3, 120), (4, 160)]
    assert [index for index, _ in stream._placed(frames, clip, 2)] == [3, 4]  # what comes before a place gone to is passed over


def test_times_that_run_backwards_give_way_to_the_order(tmp_path: Path) -> None:
    """Two recordings joined without new times: every frame counts, at the stream's rate."""
    source, path = tmp_path / "a.mkv", tmp_path / "joined.mkv"
    encode(source, [grey(index) for index in range(20)], "libx264", "yuv420p", rate=25, options={**QUICK, "crf": "4", "g": "10"})
    with av.open(str(source)) as old, av.open(str(path), "w") as new:
        video = old.streams.video[0]
        copy = new.add_stream_from_template(video)
        for number, packet in enumerate(packet for packet in old.demux(video) if packet.size):
            packet.stream, packet.dts = copy, number * 40
            packet.pts = 1000 + 40 * (number % 10)
            new.mux(packet)
    clip = probe(path)
    assert clip.by_order and len(clip.times) == 20
    assert [index_of(torch.from_numpy(frame)) for frame in decoded(path)] == list(range(20))


def test_a_file_cut_off_keeps_what_is_whole(tmp_path: Path) -> None:
    """A recording whose end is missing: the index at the front promises more frames than there are."""
    source, path = tmp_path / "a.mp4", tmp_path / "cut.mp4"
    encode(source, [scene(index) for index in range(40)], "libx264", "yuv420p", options={**QUICK, "g": "5"})
    ffmpeg("-i", source, "-c", "copy", "-movflags", "+faststart", path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.6)])
    clip = probe(path)
    assert 10 < len(clip.times) < 36
    assert np.abs(decoded(path) - decoded(source, range(len(clip.times)))).max() == 0


def test_damage_inside_is_refused_not_trained_on(tmp_path: Path) -> None:
    path = encode(tmp_path / "a.mp4", [scene(index, 192, 256) for index in range(30)], "libx264", "yuv420p", options=QUICK)
    clip, data = probe(path), path.read_bytes()
    path.write_bytes(damaged(data, len(data) // 3, 2000))
    with pytest.raises(UnusableClip, match=r"frame \d+ of 30 and others are damaged"):
        decoded(path)
    assert len(clip.times) == 30


def test_a_mirrored_recording_is_shown_as_players_do(tmp_path: Path) -> None:
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:24, :32] = 200  # bright top left corner
    path = encode(tmp_path / "selfie.mp4", [picture] * 2, "libx264", "yuv420p", options=QUICK)
    plain = path.read_bytes()
    for (a, b, c, d), expected in {
        (-1, 0, 0, 1): picture[:, ::-1],
        (1, 0, 0, -1): picture[::-1],
        (0, 1, 1, 0): picture.transpose(1, 0, 2),
        (0, -1, -1, 0): np.rot90(picture, 2).transpose(1, 0, 2),
    }.items():
        path.write_bytes(plain)
        turn_by_display_matrix(path)
        data = bytearray(path.read_bytes())
        at = data.index(b"tkhd") + 44
        data[at : at + 36] = struct.pack(">9i", a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
        path.write_bytes(data)
        assert np.abs(decoded(path)[0] - expected).mean() < 6, (a, b, c, d)


def test_dolby_vision_without_a_plain_picture_is_refused(tmp_path: Path) -> None:
    path = encode(tmp_path / "a.mp4", [grey(0)] * 2, "libx265", "yuv420p10le", options={"x265-params": "log-level=error:pools=1"})
    path.write_bytes(path.read_bytes().replace(b"hev1", b"dvh1").replace(b"hvc1", b"dvh1"))
    with pytest.raises(UnusableClip, match="Dolby Vision"):
        probe(path)


def test_a_matrix_without_conversion_is_refused(tmp_path: Path) -> None:
    path = encode(tmp_path / "a.mkv", [frame_of([np.full((48, 64), 128)] * 3, "yuv444p")], "ffv1", "yuv444p", tags={"colorspace": 8})
    with pytest.raises(UnusableClip, match="matrix 8"):
        probe(path)


def test_a_still_of_one_packet_and_its_length(tmp_path: Path) -> None:
    clip = probe(write_clip(tmp_path / "three.mp4", 3, rate=30))
    assert (len(clip.times), clip.end) == (3, Fraction(1, 10))
