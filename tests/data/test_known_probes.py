"""Probes that are kept: the same as those made anew, and made once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.synthetic import turn_by_display_matrix, write_clip
from trainer.data import known_probes
from trainer.data.cache import TensorCache
from trainer.data.content import file_digest
from trainer.data.known_probes import KnownProbes
from trainer.data.probe import probe
from trainer.data.sources.record import UnusableClip


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One of each kind: constant and variable rate, milliseconds, GIF, AVI, turned, a still and a moving picture."""
    folder = tmp_path_factory.mktemp("clips")
    made = [
        write_clip(folder / "constant.mp4", 9),
        write_clip(folder / "one.mp4", 1),
        write_clip(folder / "milliseconds.mkv", 9, rate=24),
        write_clip(folder / "variable.mkv", 6, pts_ms=(0, 40, 200, 240, 500, 540)),
        write_clip(folder / "moving.gif", 5, rate=10, codec="gif"),
        write_clip(folder / "old.avi", 9, codec="mpeg4"),
        write_clip(folder / "turned.mp4", 5),
    ]
    turn_by_display_matrix(made[-1])
    stills = [Image.fromarray(np.full((20, 30, 3), level, np.uint8)) for level in (0, 90, 200)]
    stills[0].save(folder / "still.png")
    stills[0].save(folder / "moving.webp", save_all=True, append_images=stills[1:], duration=[40, 70, 130])
    return [*made, folder / "still.png", folder / "moving.webp"]


def test_a_kept_probe_is_the_one_made_anew(clips: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = KnownProbes(TensorCache(tmp_path))
    made = {path.name: first(path, file_digest(path)) for path in clips}
    assert made == {path.name: probe(path) for path in clips}
    first.save()
    monkeypatch.setattr(known_probes, "probe", lambda path: pytest.fail(f"{path} was opened again"))
    again = KnownProbes(TensorCache(tmp_path))
    assert {path.name: again(path, file_digest(path)) for path in clips} == made


def test_other_bytes_and_another_extension_are_probed(clips: list[Path], tmp_path: Path) -> None:
    known = KnownProbes(TensorCache(tmp_path))
    known(clips[0], "a")
    assert known(clips[2], "b") == probe(clips[2])
    assert known(clips[7], "a") == probe(clips[7])  # a PNG of the same hash name


def test_what_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    known, bad = KnownProbes(TensorCache(tmp_path)), tmp_path / "bad.mp4"
    bad.write_bytes(b"no clip")
    for _ in range(2):
        with pytest.raises(UnusableClip):
            known(bad, "a")


@pytest.mark.parametrize("damage", ["", "[]", '{"format": 0, "probes": {}}', '{"format": 1, "probes": 3}', "entry"])
def test_a_damaged_or_older_file_is_remade(clips: list[Path], tmp_path: Path, damage: str) -> None:
    file = tmp_path / "probes.json"
    file.write_text(json.dumps({"format": 1, "probes": {"a.mp4": {"ticks": {}}}}) if damage == "entry" else damage, encoding="utf-8")
    known = KnownProbes(TensorCache(tmp_path))
    assert known(clips[0], "a") == probe(clips[0])
    known.save()
    assert "a.mp4" in json.loads(file.read_text(encoding="utf-8"))["probes"]
