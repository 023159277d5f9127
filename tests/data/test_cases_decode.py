"""One test for each public bug report on decoding that is kept as a case (rows D and W4), named by its row."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from tests.data.footage import by_ffmpeg, decoded, encode, scene, within
from tests.data.synthetic import FakeFamily, grey, index_of, turn_by_display_matrix, write_clip, write_model
from trainer.data.plan import shaper
from trainer.data.probe import probe
from trainer.data.retime import retime
from trainer.data.sources.record import ClipRecord, UnusableClip
from trainer.job import DatasetSettings, WindowSettings

QUICK = {"crf": "20", "preset": "ultrafast"}


def test_d1_a_clip_shorter_than_its_estimate_is_skipped_with_the_reason(tmp_path: Path) -> None:
    """vfr.mp4: 3 s at a nominal 30 frames/s, of which 50 frames are there; a window of the estimated 90 at 30 frames/s."""
    kept = [n for n in range(90) if n % 3 == 0 or n % 17 < 5]
    path = write_clip(
        tmp_path / "vfr.mp4", [scene(n, 48, 64) for n in range(len(kept))], rate=30, pts_ms=[round(n * 1000 / 30) for n in kept]
    )
    clip = probe(path)
    assert len(clip.times) == len(kept) < 60 and float(clip.end) == pytest.approx(3.0, abs=0.1)
    wanted = retime(clip.times, clip.end, Fraction(30))
    assert len(wanted) in (89, 90, 91) and set(wanted) == set(range(len(kept)))  # held frames repeat: as long as the clip
    assert len(decoded(path, wanted)) == len(wanted)
    write_model(tmp_path / "model")
    window = WindowSettings(size=len(wanted) + 8, stride=1)
    with pytest.raises(UnusableClip, match=f"{len(wanted)} frames at 30 frames/s .* is the largest that fits"):
        shaper(DatasetSettings(fps=30, windows=window), FakeFamily(tmp_path / "model").spec)[0].plan(ClipRecord(path, "vfr.mp4"), clip)


@pytest.mark.parametrize(("count", "retimed"), [(101, 67), (113, 75)])
def test_d2_ntsc_film_says_its_frames_and_rates(tmp_path: Path, count: int, retimed: int) -> None:
    """ntsc101.mp4 at 24000/1001 frames/s for a model of 16."""
    path = write_clip(tmp_path / "ntsc.mp4", [grey(index % 20) for index in range(count)], rate=Fraction(24000, 1001))
    clip = probe(path)
    assert (len(clip.times), clip.fps) == (count, pytest.approx(24000 / 1001))
    wanted = retime(clip.times, clip.end, Fraction(16))
    assert len(wanted) == retimed
    assert [index_of(torch.from_numpy(frame)) for frame in decoded(path, wanted)] == [index % 20 for index in wanted]
    write_model(tmp_path / "model")
    windowed = DatasetSettings(fps=16, windows=WindowSettings(size=101, stride=1))
    with pytest.raises(UnusableClip, match=rf"{retimed} frames at 16 frames/s \({count} at 23.976 in the file\)"):
        shaper(windowed, FakeFamily(tmp_path / "model").spec)[0].plan(ClipRecord(path, "ntsc.mp4"), clip)


def test_d4_av1_decodes(tmp_path: Path) -> None:
    frames = [grey(index, 64, 96) for index in range(9)]
    path = encode(tmp_path / "av1.mp4", frames, "libsvtav1", "yuv420p", options={"preset": "12", "svtav1-params": "lp=1"})
    assert [index_of(torch.from_numpy(frame)) for frame in decoded(path)] == list(range(9))


def test_d4_a_stream_without_frames_names_its_codec(tmp_path: Path) -> None:
    path = encode(tmp_path / "a.mkv", [scene(0)] * 3, "libx264", "yuv420p", options=QUICK)
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    data = path.read_bytes()
    for packet in packets:
        data = data.replace(packet, bytes(len(packet)))
    path.write_bytes(data)
    with pytest.raises(UnusableClip, match="'h264' gave no frame; convert it"):
        probe(path)


def test_d5_a_turned_phone_recording_is_upright(tmp_path: Path) -> None:
    """rot.mp4: width and height swap, and the pixels are those that ffmpeg shows."""
    path = encode(
        tmp_path / "rot.mp4", [scene(index) for index in range(3)], "libx265", "yuv444p", options={"x265-params": "log-level=error"}
    )
    turn_by_display_matrix(path)
    clip = probe(path)
    assert (clip.height, clip.width) == (128, 96)
    assert within(decoded(path), by_ffmpeg(path, clip, "bt601")) >= 0.999


def test_d6_hlg_of_ten_bits_gives_bt709_of_eight(tmp_path: Path) -> None:
    """hevc10_hlg.mp4: a bright, a middle and a dark grey and a pure BT.2020 red come out as SDR shows them."""
    path = tmp_path / "hevc10_hlg.mp4"
    tags = {"color_trc": 18, "color_primaries": 9, "colorspace": 9}
    columns = np.repeat(np.array([[191, 191, 191], [128, 128, 128], [40, 40, 40], [128, 0, 0]], np.uint8), 32, axis=0)
    picture = np.tile(columns, (96, 1, 1))
    options = {"x265-params": "log-level=error:pools=1", "crf": "4"}
    encode(path, [picture] * 3, "libx265", "yuv420p10le", options=options, tags=tags)
    clip = probe(path)
    assert (clip.colour.hdr, clip.colour.matrix) == ("HLG", 9)
    shown = decoded(path)[1][48, 16::32]
    assert shown.dtype.kind == "i" and shown.shape == (4, 3)
    assert np.ptp(shown[:3], axis=1).max() <= 2  # greys stay grey
    assert shown[0, 0] > 210 > shown[1, 0] > 120 > shown[2, 0] > 20
    assert shown[3, 0] > 100 and shown[3, 1:].max() < 30


def test_d9_sound_of_any_kind_does_not_lose_the_picture(tmp_path: Path) -> None:
    """audio.mp4 beside a silent clip: the same frames."""
    loud, silent = tmp_path / "audio.mp4", write_clip(tmp_path / "silent.mp4", 9)
    with av.open(str(loud), "w") as container:
        sound = container.add_stream("aac", rate=16000)
        video = container.add_stream("libx264", rate=16, options={"crf": "4", "preset": "ultrafast"})
        video.height, video.width, video.pix_fmt = 48, 64, "yuv420p"
        for index in range(9):
            frame = av.VideoFrame.from_ndarray(grey(index), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 16)
            container.mux(video.encode(frame))
            samples = av.AudioFrame.from_ndarray(np.zeros((1, 1000), np.float32), format="fltp", layout="mono")
            samples.rate, samples.pts = 16000, 1000 * index
            container.mux(sound.encode(samples))
        container.mux(video.encode(None))
        container.mux(sound.encode(None))
    for path in (loud, silent):
        assert [index_of(torch.from_numpy(frame)) for frame in decoded(path)] == list(range(9))
    data = loud.read_bytes().replace(b"mp4a", b"xxxx")  # sound that nothing can read
    loud.write_bytes(data)
    assert [index_of(torch.from_numpy(frame)) for frame in decoded(loud)] == list(range(9))


def test_d11_system_files_taken_for_clips_are_refused_with_a_reason(tmp_path: Path) -> None:
    for name, data in (
        ("._a.mp4", b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        " + bytes(200)),
        ("a.mp4", b"PK\x03\x04" + bytes(500)),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UnusableClip, match="cannot be read"):
            probe(tmp_path / name)
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(UnusableClip):
        probe(tmp_path / "folder.mp4")


@pytest.mark.parametrize(
    "name", ["Alber F/clip.mp4", "ключ é 猫/ünï [1] (final) 100%d #&;'.mp4", "-i/-clip:1.mp4", "/".join(["x" * 60] * 5) + "/clip.mp4"]
)
def test_w4_spaces_accents_and_long_paths(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_bytes(write_clip(tmp_path / "source.mp4", 5).read_bytes())
    assert len(str(path)) > 260 or "x" * 60 not in name
    assert [index_of(torch.from_numpy(frame)) for frame in decoded(path)] == list(range(5))
    picture = path.with_suffix(".png")
    from PIL import Image

    Image.fromarray(grey(3)).save(picture)
    assert index_of(torch.from_numpy(decoded(picture)[0])) == 3
