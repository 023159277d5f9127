"""Pruning takes out of the cache what nothing used for so long, never anything else, and what is needed again is made again."""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.data.synthetic import Watcher, watched, write_clip
from tests.data.test_archives import write_tar
from tests.data.test_prepare import Setup
from trainer.data import cache as cache_module
from trainer.data.cache_use import users, working_from
from trainer.data.kept import keep, kept
from trainer.data.prepare import prepare_dataset
from trainer.data.pruning import KINDS, CacheReport, prune, survey
from trainer.errors import Interrupted, UserError
from trainer.job import CaptionSettings, DatasetSettings
from trainer.source_settings import WebDataset


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    monkeypatch.setattr("trainer.data.content._RACY_NS", -(10**12))  # files are remembered at once
    return Setup(tmp_path)


def age(cache: Path, days: int) -> None:
    """All that is known of the cache's files happened so many days earlier."""
    for path in cache.rglob("*"):
        os.utime(path, times=(path.stat().st_mtime - 86400 * days,) * 2)
    marks = cache / "used.json"
    keep(marks, {name: (date.fromisoformat(day) - timedelta(days)).isoformat() for name, day in (kept(marks) or {}).items()})


def kinds(report: CacheReport) -> dict[str, int]:
    """How many unused files of each kind."""
    return {kind: count for kind in KINDS if (count := sum(file.kind == kind for file in report.unused))}


def test_what_lies_there_is_counted_and_nothing_else_is_touched(setup: Setup) -> None:
    setup.clip("a.mp4", caption="one")
    setup.prepare()
    entries = list(setup.cache.rglob("*.safetensors"))
    others = [
        "clips/notes.txt",
        "clips/ab/12.safetensors",
        "mine/a.mp4",
        "unpacked/ab/film.mp4",
        "downloads/me/clips/a.mp4",
        "scenes/x.json",
    ]
    for name in others:
        (setup.cache / name).parent.mkdir(parents=True, exist_ok=True)
        (setup.cache / name).write_bytes(b"kept")
    before = survey(setup.cache, 0)
    size = sum(path.stat().st_size for path in entries)
    assert kinds(before) == {"encoded clips": 1, "encoded captions": 2} and sum(file.size for file in before.unused) == size
    assert sum(file.size for file in before.files) == size + 4  # the downloaded clip
    assert "stays" in before.lines()[-3] and before.lines()[-1].startswith("can be removed: 3 files, ")
    assert all(path.is_file() for path in entries)
    done = prune(setup.cache, 0)
    assert {file.path for file in done.unused} == set(entries) and done.removed
    assert not any(path.exists() for path in entries) and all((setup.cache / name).is_file() for name in others)
    assert kept(setup.cache / "used.json") == {} and not (setup.cache / "probes.json").exists()
    assert not any(str(path) in (setup.cache / "index.json").read_text(encoding="utf-8") for path in entries)
    setup.prepare()
    assert setup.work == (1, 2)
    assert survey(setup.cache.parent / "none", 0).lines() == [f"cache: {setup.cache.parent / 'none'} is empty"]


def test_what_a_preparation_used_stays_and_is_not_checksummed_again(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.clip("a.mp4", 9, caption="one")
    setup.clip("b.mp4", 13, caption="two")
    setup.prepare()
    (setup.clips / "b.mp4").rename(setup.clips.parent / "b.mp4")
    age(setup.cache, 31)
    setup.prepare()  # checksums once, as the test touched the files
    checked = []
    monkeypatch.setattr(cache_module, "_is_whole", lambda path: checked.append(path) or True)
    setup.prepare()
    assert kinds(survey(setup.cache, 32)) == {}
    assert kinds(prune(setup.cache, 31)) == {"encoded clips": 1, "encoded captions": 1}
    (setup.clips.parent / "b.mp4").rename(setup.clips / "b.mp4")
    setup.prepare()
    assert setup.work == (1, 1) and setup.family.texts == ["two"] and checked == []


@pytest.mark.parametrize("content", [b"{", b'{"clips": 5, "x": "someday"}', b"[" * 100_000])
def test_damaged_marks_count_as_absent(setup: Setup, content: bytes) -> None:
    setup.clip("a.mp4")
    setup.prepare()
    age(setup.cache, 5)
    (setup.cache / "used.json").write_bytes(content)
    assert kinds(survey(setup.cache, 5)) == {"encoded clips": 1, "encoded captions": 2} and kinds(survey(setup.cache, 6)) == {}
    setup.prepare()
    assert kinds(survey(setup.cache, 1)) == {}


def test_all_kinds_are_marked(setup: Setup) -> None:
    """Cuts and members of archives too: a preparation from the cache alone leaves nothing unused."""
    pytest.importorskip("scenedetect")
    tar = setup.clips / "x.tar"
    write_tar(tar, {"1.mp4": write_clip(setup.clips / "1.mp4", 9).read_bytes(), "1.txt": b"one"})
    settings = DatasetSettings(sources=[WebDataset(path=str(tar))], scene_cuts="split")
    setup.prepare()  # for the fakes

    def prepare() -> None:
        prepare_dataset(
            settings, CaptionSettings(), setup.family, cache_module.TensorCache(setup.cache), setup.encoders, watched(Watcher())
        )

    prune(setup.cache, 0)
    prepare()
    age(setup.cache, 40)
    prepare()
    assert kinds(survey(setup.cache, 1)) == {}
    age(setup.cache, 40)
    removed = {"encoded clips": 1, "encoded captions": 2, "scene cuts": 1, "clips of archives": 1, "lists of archives": 1}
    assert kinds(prune(setup.cache, 30)) == removed
    prepare()
    assert kinds(survey(setup.cache, 0)) == removed


def test_a_run_that_is_going_on_keeps_all_that_it_works_from(setup: Setup) -> None:
    setup.clip("a.mp4")
    setup.prepare()
    with working_from(setup.cache):
        with pytest.raises(UserError, match="is in use"):
            prune(setup.cache, 0)
        assert survey(setup.cache, 0).unused
        age(setup.cache, 3)
        (lock,) = (setup.cache / "users").iterdir()
        since = lock.with_name(lock.name.replace(date.today().isoformat(), (date.today() - timedelta(3)).isoformat()))
        lock.rename(since)  # it has been going on for three days
        assert kinds(survey(setup.cache, 2)) != {} and kinds(prune(setup.cache, 2)) == {}
        age(setup.cache, 1)  # last used before it began
        assert kinds(prune(setup.cache, 2)) == {"encoded clips": 1, "encoded captions": 2}
    assert since.exists() and users(setup.cache) == [] and not since.exists()  # as one that was killed leaves it


def test_what_killed_processes_left_half_written_goes_and_what_a_living_one_writes_stays(setup: Setup) -> None:
    setup.clip("a.mp4")
    setup.prepare()
    (entry,) = (setup.cache / "clips").rglob("*.safetensors")
    dead, living = (entry.with_name(f".{entry.name}.{process}.part") for process in (2**22 + 1, os.getpid()))
    for file in (dead, living):
        file.write_bytes(b"x")
    age(setup.cache, 2)
    assert kinds(prune(setup.cache, 1))["half-written files"] == 1
    assert living.exists() and not dead.exists()


def test_cancel_stops_between_files_and_the_index_knows(setup: Setup) -> None:
    setup.clip("a.mp4")
    setup.prepare()
    asked = []

    def check() -> None:
        asked.append(True)
        if len(asked) == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        prune(setup.cache, 0, check)
    assert len(list(setup.cache.rglob("*.safetensors"))) == 2
    assert len(kept(setup.cache / "used.json")) == 2
