"""Formats that hold the clips themselves, or come from the hub: tars, Parquet, Arrow."""

import io
import json
import tarfile
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from tests.data.footage import decoded
from tests.data.synthetic import grey, index_of
from tests.data.test_folder import touch
from tests.data.test_sources import captions, write
from trainer.data.sources import unpack
from trainer.data.sources.hub import FILES
from trainer.data.sources.record import Scan
from trainer.data.sources.scan import scan
from trainer.errors import UserError
from trainer.source_settings import HubDataset, Source, WebDataset


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    return path


def complaint(source: Source, cache: Path, may_download: bool = False) -> str:
    with pytest.raises(UserError) as caught:
        scan([source], cache, may_download)
    return str(caught.value)


def contents(found: Scan) -> dict[str, bytes]:
    return {clip.name: clip.path.read_bytes() for clip in found.clips}


SAMPLES = {
    "a/0001.mp4": b"one", "a/0001.txt": b"first\n", "a/0002.mp4": b"two", "a/0002.json": b'{"caption": ["second", "zweitens"], "fps": 16}',
    "a/0003.cam.webm": b"three", "a/0003.caption": "drittens é".encode("utf-16"), "a/.hidden.mp4": b"x",
    "a/0004.mp4": b"four", "a/0004.json": b"{",
}  # fmt: skip
FOUND = {"a/0001.mp4": ("first",), "a/0002.mp4": ("second", "zweitens"), "a/0003.cam.webm": ("drittens é",), "a/0004.mp4": ()}


@pytest.mark.parametrize(("name", "mode"), [("x.tar", "w"), ("x.tar.gz", "w:gz")])
def test_tar(tmp_path: Path, name: str, mode: str) -> None:
    tar = write_tar(tmp_path / "tars" / name, SAMPLES, mode)
    for place in (tar, tar.parent):
        found = scan([WebDataset(path=str(place))], tmp_path / "cache")
        assert captions(found) == FOUND
        assert contents(found) == {clip: SAMPLES[clip] for clip in FOUND}
        assert {clip.path.suffix for clip in found.clips} == {".mp4", ".webm"}
    assert captions(scan([WebDataset(path=str(tar), caption_key="txt")], tmp_path / "cache"))["a/0002.mp4"] == ()


def test_members_are_unpacked_once_and_kept_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.data.content._RACY_NS", -(10**12))
    tar = write_tar(tmp_path / "x.tar", SAMPLES)
    first = scan([WebDataset(path=str(tar))], tmp_path / "cache")
    unpacked, read = unpack.Archive.unpack, []

    def counted(self: unpack.Archive, member: str, *rest: object) -> Path:
        read.append(member)
        return unpacked(self, member, *rest)

    monkeypatch.setattr(unpack.Archive, "unpack", counted)
    assert scan([WebDataset(path=str(tar))], tmp_path / "cache").clips == first.clips and read == []
    write_tar(tar, SAMPLES | {"a/0001.mp4": b"new"})
    changed = scan([WebDataset(path=str(tar))], tmp_path / "cache")
    assert contents(changed)["a/0001.mp4"] == b"new" and changed.clips[1:] == first.clips[1:]
    first.clips[1].path.unlink()
    assert contents(scan([WebDataset(path=str(tar))], tmp_path / "cache"))["a/0002.mp4"] == b"two"
    assert len([file for file in (tmp_path / "cache/unpacked").rglob("*") if file.suffix in (".mp4", ".webm")]) == 5


def test_tar_that_breaks_off_gives_what_comes_before(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "x.tar", {"a.mp4": b"x" * 2000, "b.mp4": b"y" * 20000})
    tar.write_bytes(tar.read_bytes()[:9000])
    found = scan([WebDataset(path=str(tar))], tmp_path / "cache")
    assert list(captions(found)) == ["a.mp4"] and [record.name for record, _ in found.skipped] == ["b.mp4"]
    assert "archive is damaged" in found.skipped[0][1] and str(tar) in found.skipped[0][1]
    (tmp_path / "y.tar").write_bytes(b"no tar")
    broken = scan([WebDataset(path=str(tmp_path / "y.tar"))], tmp_path / "cache")
    assert broken.clips == [] and "is damaged" in str(broken.notices[0])


def test_bad_tar_settings(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    for path, told in (("", "is empty"), ("/no/such", "does not exist"), (str(tmp_path), "is no tar and holds none")):
        assert told in complaint(WebDataset(path=path), tmp_path / "cache")


def test_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(unpack.os, "fsync", full)
    assert "disk is full" in complaint(WebDataset(path=str(write_tar(tmp_path / "x.tar", SAMPLES))), tmp_path / "cache")
    assert [file for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.suffix != ".json"] == []


# rows -----------------------------------------------------------------------------------------------------------------

CELLS = {
    "struct": (
        [{"bytes": b"one", "path": "a.mp4"}, {"bytes": b"two", "path": None}, {"bytes": None, "path": "c.mp4"}],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    ),
    "bytes": ([b"one", b"two", b"three"], pa.binary()),
    "path": (["a.mp4", "sub/b.mp4", "c.mp4"], pa.string()),
}  # fmt: skip


def write_rows(folder: Path, cell: str, form: str, name: str = "train-00000-of-00001") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for clip, data in (("a.mp4", b"one"), ("sub/b.mp4", b"two"), ("c.mp4", b"three")):
        if cell != "bytes":
            write(folder / clip, data)
    table = pa.table({"video": pa.array(*CELLS[cell]), "caption": ["first", None, "third"]})
    file = folder / f"{name}.{'parquet' if form == 'parquet' else 'arrow'}"
    if form == "parquet":
        parquet.write_table(table, file, row_group_size=2)
    else:
        opened = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
        with opened(str(file), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return file


@pytest.mark.parametrize("form", ["parquet", "stream", "file"])
@pytest.mark.parametrize("cell", CELLS)
def test_rows_of_local_files(tmp_path: Path, cell: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.data.content._RACY_NS", -(10**12))
    write_rows(tmp_path / "set/data", cell, form)
    source = HubDataset(source=str(tmp_path / "set"))
    first = scan([source], tmp_path / "cache")
    assert list(contents(first).values()) == [b"one", b"two", b"three"]
    assert [clip.captions for clip in first.clips] == [("first",), (), ("third",)]
    monkeypatch.setattr(unpack.Archive, "unpack", lambda *_: pytest.fail("unpacked again"))
    again = scan([source], tmp_path / "cache")
    assert again.clips == first.clips and again.skipped == []


def test_split_is_chosen_and_an_unknown_one_names_those_there_are(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_tar(tmp_path / f"set/data/{split}-000.tar", {f"{split}.mp4": split.encode()})
    for split, names in (("train", ["train.mp4"]), ("test", ["test.mp4"]), ("", ["test.mp4", "train.mp4"])):
        assert list(captions(scan([HubDataset(source=str(tmp_path / "set"), split=split)], tmp_path / "cache"))) == names
    assert "has no split 'trian'; it has test, train" in complaint(HubDataset(source=str(tmp_path / "set"), split="trian"), tmp_path)


def test_bad_rows(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "set", "bytes", "parquet")
    told = complaint(HubDataset(source=str(tmp_path / "set"), video_column="clip"), tmp_path / "cache")
    assert "no column 'clip'; its columns are 'video', 'caption'" in told and "sources.0.video_column" in told
    file.write_bytes(file.read_bytes()[:-9])
    assert f"{file}: cannot be read" in complaint(HubDataset(source=str(tmp_path / "set")), tmp_path / "cache")


def test_results_that_datasets_keeps_beside_its_rows_are_no_rows(tmp_path: Path) -> None:
    write_rows(tmp_path / "set", "bytes", "stream", "data-00000-of-00001")
    write_rows(tmp_path / "set", "bytes", "stream", "cache-1f2e3d")
    found = scan([HubDataset(source=str(tmp_path / "set"))], tmp_path / "cache")
    assert [clip.name for clip in found.clips] == [f"data-00000-of-00001.arrow row {number}" for number in (1, 2, 3)]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_rows_that_hold_pictures_without_a_name_are_clips_of_one_frame(tmp_path: Path, form: str) -> None:
    picture = io.BytesIO()
    Image.fromarray(grey(3)).save(picture, form)
    (tmp_path / "set").mkdir()
    cells = pa.array([{"bytes": picture.getvalue(), "path": None}], pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    parquet.write_table(pa.table({"image": cells, "text": ["a still"]}), tmp_path / "set/train.parquet")
    (clip,) = scan([HubDataset(source=str(tmp_path / "set"))], tmp_path / "cache").clips
    assert clip.captions == ("a still",)
    (frame,) = decoded(clip.path)
    assert index_of(torch.from_numpy(frame)) == 3


def test_missing_pyarrow_is_told_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    write_rows(tmp_path / "set", "bytes", "parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert '-m pip install "pyarrow>=14"' in complaint(HubDataset(source=str(tmp_path / "set")), tmp_path / "cache")


# datasets -------------------------------------------------------------------------------------------------------------


def test_layouts_of_a_local_dataset(tmp_path: Path) -> None:
    def found(folder: str, **settings: str) -> dict[str, tuple[str, ...]]:
        return captions(scan([HubDataset(source=str(tmp_path / folder), **settings)], tmp_path / "cache"))

    touch(tmp_path, "table/train/a.mp4", "lists/b.mp4", "plain/train/c.mp4", "plain/test/d.mp4")
    write(tmp_path / "table/train/metadata.jsonl", json.dumps({"file_name": "a.mp4", "text": "one", "long": "two"}))
    assert found("table") == {"a.mp4": ("one",)} and found("table", caption_column="long") == {"a.mp4": ("two",)}
    write(tmp_path / "lists/videos.txt", "b.mp4")
    write(tmp_path / "lists/prompts.txt", "three")
    assert found("lists") == {"b.mp4": ("three",)}
    write(tmp_path / "plain/train/c.txt", "four")
    assert found("plain") == {"c.mp4": ("four",)} and found("plain", split="test") == {"d.mp4": ()}
    write_tar(tmp_path / "tars/train-0.tar", {"e.mp4": b"e", "e.txt": b"five"})
    assert found("tars") == {"e.mp4": ("five",)}


def test_a_dataset_cannot_name_files_outside_itself(tmp_path: Path) -> None:
    touch(tmp_path, "secret.mp4", "set/a.mp4")
    rows = "".join(json.dumps({"file_name": name}) + "\n" for name in ("../secret.mp4", str(tmp_path / "secret.mp4"), "a.mp4"))
    write(tmp_path / "set/metadata.jsonl", rows)
    found = scan([HubDataset(source=str(tmp_path / "set"))], tmp_path / "cache")
    assert list(captions(found)) == ["a.mp4"] and all("outside" in reason for _, reason in found.skipped) and len(found.skipped) == 2


def test_what_is_downloaded_of_a_dataset_has_the_endings_of_clips_in_letters_of_any_case() -> None:
    wanted = ["a.mp4", "b.MP4", "c.Mov", "d.txt", "e.CAPTION", "f.PNG", "g.webp", "h.tar", "i.tar.gz", "j.Parquet", "metadata.JSONL"]
    for name in wanted:
        assert any(fnmatchcase(name, pattern) for pattern in FILES), name
    assert not any(fnmatchcase("model.safetensors", pattern) for pattern in FILES)


def test_hub_id_obeys_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    asked = []

    def snapshot(name: str, *, repo_type: str, local_files_only: bool = False, local_dir: Path | None = None, **_: object) -> str:
        asked.append((name, repo_type, local_files_only))
        if local_dir is None:
            raise LocalEntryNotFoundError("not here")
        touch(Path(local_dir), "a.mp4")
        return str(local_dir)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    source = HubDataset(source="someone/clips")
    assert "downloads are off" in complaint(source, tmp_path / "cache") and asked == [("someone/clips", "dataset", True)]
    assert list(captions(scan([source], tmp_path / "cache", may_download=True))) == ["a.mp4"]
    assert asked[-1] == ("someone/clips", "dataset", False)
    asked.clear()
    assert list(captions(scan([source], tmp_path / "cache"))) == ["a.mp4"] and asked == []  # kept from before
    assert "does not exist" in complaint(HubDataset(source="no/such/folder"), tmp_path)
