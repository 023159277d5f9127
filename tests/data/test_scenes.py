"""Scene cuts: found, remembered, and never crossed."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.test_prepare import Setup
from trainer.data import scenes
from trainer.errors import UserError
from trainer.job import Bucket, WindowSettings

LOOKS = ((200, 40, 30), (30, 60, 210), (240, 240, 60))


def film(*lengths: int) -> list[np.ndarray]:
    """Scenes of plain colours over which a bright bar moves."""
    frames = []
    for scene, length in enumerate(lengths):
        for n in range(length):
            frame = np.full((48, 64, 3), LOOKS[scene], np.uint8)
            frame[:, (3 * n) % 60 : (3 * n) % 60 + 4] = 255
            frames.append(frame)
    return frames


def scene_of(frame: np.ndarray) -> int:
    """Which scene a frame is of, by its commonest colour."""
    return int(np.argmin([np.abs(np.median(frame.reshape(-1, 3), 0) - look).sum() for look in LOOKS]))


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    pytest.importorskip("scenedetect")
    setup = Setup(tmp_path)
    setup.settings = {"scene_cuts": "split", "buckets": [Bucket(frames=9, height=48, width=64)]}
    return setup


def seen_scenes(setup: Setup) -> list[set[int]]:
    return [{scene_of(frame.numpy()) for frame in encoded} for encoded in setup.family.encoded]


def test_cuts_are_found_at_their_frame_and_stand_in_the_report(setup: Setup) -> None:
    setup.clip("a.mp4", film(7, 12, 10))
    report = setup.prepare().report
    assert report.kept[0].scene_cuts == (7, 19) and seen_scenes(setup) == [{1}]  # the first scene that holds nine frames
    assert "scene cuts at 7, 19" in report.lines()[-1]


@pytest.mark.parametrize(
    ("settings", "examples"),
    [
        ({"windows": WindowSettings(size=5)}, 3 + 8),
        ({"frame_sample_strategy": "chunk"}, 1),
        ({"frame_sample_strategy": "random", "variants": 8}, 4),
        ({"frame_sample_strategy": "uniform"}, 1),
        ({"frame_sample_strategy": "slide", "frame_stride": 1, "fps": 32.0}, 6 + 16),
    ],
    ids=lambda value: str(value),
)
def test_no_example_crosses_a_cut(setup: Setup, settings: dict, examples: int) -> None:
    setup.clip("a.mp4", film(7, 12))
    setup.settings |= {"windows": None, "buckets": [Bucket(frames=19 if "windows" in settings else 9, height=48, width=64)], **settings}
    setup.prepare()
    assert all(len(found) == 1 for found in seen_scenes(setup))
    count = len(setup.family.encoded)
    assert 1 < count <= examples if "variants" in settings else count == examples


def test_without_splitting_they_are_crossed(setup: Setup) -> None:
    setup.clip("a.mp4", film(7, 12))
    setup.settings["scene_cuts"] = "off"
    setup.prepare()
    assert seen_scenes(setup) == [{0, 1}]


def test_scenes_too_short_are_reported_with_what_fits(setup: Setup) -> None:
    setup.clip("a.mp4", film(7, 8))
    setup.clip("b.mp4", film(9))
    (clip,) = setup.prepare().report.skipped
    assert "at most 8 of them without a scene cut" in clip.skipped and "5 is the largest that fits" in clip.skipped and clip.cure


def test_a_clip_is_searched_once(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.clip("a.mp4", film(7, 12))
    first = setup.prepare().report
    monkeypatch.setattr(scenes, "decode_frames", lambda *_: pytest.fail("searched again"))
    assert setup.prepare().report.kept[0].scene_cuts == first.kept[0].scene_cuts == (7,)
    for path in setup.cache.glob("scenes/*"):
        path.write_text("{", encoding="utf-8")
    monkeypatch.undo()
    assert setup.prepare().report.kept[0].scene_cuts == (7,)  # damage is no trouble


def test_the_package_is_asked_for(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    setup.clip("a.mp4", film(9))
    monkeypatch.setitem(sys.modules, "scenedetect", None)
    with pytest.raises(UserError, match=r'pip install "scenedetect>=0.6.4"'):
        setup.prepare()
