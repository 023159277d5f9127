"""What the cache keeps as JSON is read as it was written, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data.test_prepare import Setup
from trainer.data.kept import keep, kept

DATA = {"a": [1, None, "é\udce9", {"b": 1.5}], "c": True}


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    keep(tmp_path / "x.json", DATA)
    assert kept(tmp_path / "x.json") == DATA and kept(tmp_path / "y.json") is None
    json.loads((tmp_path / "x.json").read_bytes())


def test_no_changed_byte_changes_what_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    keep(file, DATA)
    good = file.read_bytes()
    for place in range(len(good)):
        for data in (good[:place], good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]):
            file.write_bytes(data)
            assert kept(file) in (None, DATA)
    file.write_bytes(good)
    file.rename(tmp_path / "y.json")
    assert kept(tmp_path / "y.json") is None


@pytest.mark.parametrize("name", ["probes.json", "index.json", "used.json"])
@pytest.mark.parametrize("damage", [b"[" * 200_000, b"\0" * 99, b"\xff\xfe", b"[1]", b"1", b"1" * 6000, b'{"checksum": 1}', b"null", None])
def test_damaged_files_of_the_cache_count_as_absent(
    tmp_path: Path, name: str, damage: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.data.content._RACY_NS", -(10**12))
    setup = Setup(tmp_path)
    setup.clip("a.avi", 5, codec="rawvideo")
    setup.prepare()
    file = setup.cache / name
    if damage is None:
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(damage)
    assert len(setup.prepare().items) == 1 and setup.work == (0, 0)
    assert damage is None or kept(file)
