"""Probes that are kept: the same as those made anew, and made once."""

from __future__ import annotations

import json
import shutil
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.synthetic import turn_by_display_matrix, write_clip
from trainer.data import known_probes
from trainer.data.content import Content, file_digest, signature
from trainer.data.kept import keep, kept
from trainer.data.known_probes import KnownProbes
from trainer.data.probe import PROBE_FORMAT, probe
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


def of(path: Path) -> Content:
    return Content(file_digest(path), tuple(signature(path)), True)


def test_a_kept_probe_is_the_one_made_anew(clips: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = KnownProbes(tmp_path)
    made = {path.name: first(path, of(path)) for path in clips}
    assert made == {path.name: probe(path) for path in clips}
    first.save()
    monkeypatch.setattr(known_probes, "probe", lambda path: pytest.fail(f"{path} was opened again"))
    again = KnownProbes(tmp_path)
    assert {path.name: again(path, of(path)) for path in clips} == made


def test_other_bytes_and_another_extension_are_probed(clips: list[Path], tmp_path: Path) -> None:
    known = KnownProbes(tmp_path)
    known(clips[0], of(clips[0]))
    assert known(clips[2], of(clips[2])) == probe(clips[2])
    picture = shutil.copy(clips[7], tmp_path / "picture.bmp")  # the same bytes by another extension
    assert known(clips[7], of(clips[7])).picture and known(picture, of(picture)) == probe(picture)
    known.save()
    assert len(kept(known.path)["probes"]) == 4


def test_what_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    known, bad = KnownProbes(tmp_path), tmp_path / "bad.mp4"
    bad.write_bytes(b"no clip")
    for _ in range(2):
        with pytest.raises(UnusableClip):
            known(bad, of(bad))


@pytest.mark.parametrize(("field", "value"), [("end", "-1"), ("height", -1), ("ticks", None), ("interlaced", "x"), ("codec", 3)])
def test_an_entry_that_was_changed_is_probed_again(clips: list[Path], tmp_path: Path, field: str, value: object) -> None:
    known = KnownProbes(tmp_path)
    known(clips[0], of(clips[0]))
    known.save()
    text = json.loads(known.path.read_text(encoding="utf-8"))
    for _, entry in text["data"]["probes"].values():
        entry[field] = value
    known.path.write_text(json.dumps(text), encoding="utf-8")
    again = KnownProbes(tmp_path)
    assert again(clips[0], of(clips[0])) == probe(clips[0])
    again.save()
    assert KnownProbes(tmp_path)(clips[0], of(clips[0])) == probe(clips[0])


def test_probes_of_another_format_are_made_anew(clips: list[Path], tmp_path: Path) -> None:
    name = f"{file_digest(clips[0])}.mp4"
    keep(tmp_path / "probes.json", {"format": PROBE_FORMAT - 1, "probes": {name: [date.today().isoformat(), {}]}})
    assert KnownProbes(tmp_path)(clips[0], of(clips[0])) == probe(clips[0])


def test_probes_unused_since_a_day_are_forgotten(clips: list[Path], tmp_path: Path) -> None:
    known = KnownProbes(tmp_path)
    for path in clips[:2]:
        known(path, of(path))
    known.save()
    data = kept(known.path)
    first, second = data["probes"]
    data["probes"][first][0] = (date.today() - timedelta(3)).isoformat()
    keep(known.path, data)
    for limit, left in ((4, {first, second}), (3, {second})):
        again = KnownProbes(tmp_path)
        again.forget(date.today() - timedelta(limit))
        again.save()
        assert set(kept(known.path)["probes"]) == left
