"""What counts in a WebDataset tar: the rule of a folder for each file, one video or pictures for a sample, every member accounted for."""

import gzip
import io
import re
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from tests.data.synthetic import FakeFamily, grey, write_model
from tests.data.test_archives import write_tar
from tests.data.test_folder import touch
from tests.data.test_sources import captions, webp, write
from trainer.data.plan import shaper
from trainer.data.probe import probe
from trainer.data.sources.record import Scan
from trainer.data.sources.scan import scan
from trainer.errors import UserError
from trainer.job import Bucket, DatasetSettings
from trainer.source_settings import HubDataset, PairedFolders, VideoFolder, WebDataset

MEDIA = {
    "a.mp4": b"x", "b.MOV": b"x", "c.gif": b"x", "d.png": b"x", "e.JPG": b"x", "f.psd": b"x", "g.mp4.part": b"x",
    "moving.webp": webp(True), "still.webp": webp(False), "sub/h.webm": b"x", "sub/.hidden/i.mp4": b"x", "__MACOSX/j.mp4": b"x",
}  # fmt: skip


def told(found: Scan) -> list[str]:
    """What the notices say of members, without their names."""
    return [notice.found.partition(" (")[0] for notice in found.notices]


@pytest.mark.parametrize("images", [False, True])
def test_a_tar_takes_what_a_folder_takes(tmp_path: Path, images: bool) -> None:
    for name, data in MEDIA.items():
        write(tmp_path / "folder" / name, data)
    tar = write_tar(tmp_path / "x.tar", MEDIA)
    of_folder = scan([VideoFolder(folder=str(tmp_path / "folder"), images=images)])
    of_tar = scan([WebDataset(path=str(tar), images=images)], tmp_path / "cache")
    assert sorted(captions(of_tar)) == sorted(captions(of_folder))
    assert ("still.webp" in captions(of_tar)) == images and "moving.webp" in captions(of_tar)


SAMPLES = {
    "./0001.jpg": b"thumbnail", "./0001.mp4": b"one", "./0001.txt": "eins é".encode("cp1252"),
    "./0002.json": b'{"caption": "two"}', "./0002.png": b"two", "./0003.cls": b"7", "./0003.webm": b"three", "./0003.json": b"[1]",
    "./0004.txt": b"no clip", "./0005.webp": webp(True), "./0005.webp.json": b"{}", "./0005.still.webp": webp(False),
    "./._0001.mp4": b"mac", "./0006.mp4": b"old", "./0006.txt": b"x" * ((1 << 20) + 1), "./0007": b"nameless",
}  # fmt: skip


def packed(path: Path) -> Path:
    """The samples, a link, a folder, and a member that is there twice."""
    write_tar(path, SAMPLES)
    with tarfile.open(path, "a") as tar:
        for name, kind in (("./0008.mp4", tarfile.SYMTYPE), ("./folder.mp4", tarfile.DIRTYPE)):
            about = tarfile.TarInfo(name)
            about.type, about.linkname = kind, "0001.mp4"
            tar.addfile(about)
        about = tarfile.TarInfo("./0006.mp4")
        about.size = 3
        tar.addfile(about, io.BytesIO(b"new"))
    return path


@pytest.mark.parametrize("images", [False, True])
def test_every_member_is_a_clip_a_caption_or_told_as_left_out(tmp_path: Path, images: bool) -> None:
    tar = packed(tmp_path / "x.tar")
    found = scan([WebDataset(path=str(tar), images=images)], tmp_path / "cache")
    expected = {"./0001.mp4": ("eins é",), "./0003.webm": (), "./0005.webp": (), "./0006.mp4": ()}
    assert captions(found) == expected | ({"./0002.png": ("two",)} if images else {})
    assert next(clip.path for clip in found.clips if clip.name == "./0006.mp4").read_bytes() == b"new"
    said = {
        "1 members are left out: a later member has the same name",
        "1 members are left out: hidden or system files",
        "1 members are left out: links or devices",
        "2 members are left out: pictures beside a video of their sample, which is the clip",
        "1 members are left out: longer than 1 MiB, which no caption is",
        "3 members are left out: neither clips nor captions",
        "1 members are not UTF-8 and were read as Windows-1252",
        "1 members are not JSON objects and give no caption",
    }
    stills = {"1 members are left out: captions of no clip"} if images else {
        "2 members are left out: captions of no clip", "1 members are left out: still images",
    }  # fmt: skip
    assert set(told(found)) == said | stills
    left_out = sum(int(text.split()[0]) for text in told(found) if "left out" in text)
    read = 2 + images  # captions of clips: 0001.txt, 0003.json and 0002.json
    assert len(found.clips) + read + left_out == len(SAMPLES) + 2 == sum(found.seen.values())
    assert all(re.search(r"\(\./\S+", notice.found) for notice in found.notices)


def test_what_is_told_names_a_few_members_of_all_tars_together(tmp_path: Path) -> None:
    for number in range(3):
        write_tar(
            tmp_path / f"{number}.tar",
            {f"{number}{letter}.{ending}": f"{number}{letter}".encode() for letter in "ab" for ending in ("jpg", "mp4")},
        )
    found = scan([WebDataset(path=str(tmp_path))], tmp_path / "cache")
    (notice,) = found.notices
    assert notice.where == str(tmp_path) and "6 members are left out" in notice.found and "(0a.jpg, 0b.jpg, 1a.jpg, …)" in notice.found
    write_tar(tmp_path / "plain/0.tar", {"a.mp4": b"x", "a.txt": b"one", "a.json": b'{"fps": 16}'})
    assert scan([WebDataset(path=str(tmp_path / "plain"))], tmp_path / "cache").notices == []


def test_a_picture_of_a_tar_is_trained_as_one_frame(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.fromarray(grey(3)).save(picture, "png")
    tar = write_tar(tmp_path / "x.tar", {"a.png": picture.getvalue(), "a.txt": b"a still"})
    (clip,) = scan([WebDataset(path=str(tar), images=True)], tmp_path / "cache").clips
    write_model(tmp_path / "model")
    settings = DatasetSettings(buckets=[Bucket(frames=17, height=48, width=64)])
    plan = shaper(settings, FakeFamily(tmp_path / "model").spec)[0].plan(clip, probe(clip.path))
    assert str(plan.example) == "1x48x64" and clip.captions == ("a still",)


@pytest.mark.parametrize(
    ("kept", "clips", "skipped", "said"),
    [
        (1024, ["a.mp4"], [], "its end is missing): 1 clips"),  # between two members
        (1024 + 100, ["a.mp4"], [], "its end is missing): 1 clips"),  # inside the header of the second
        (1024 + 512 + 10, ["a.mp4"], ["b.webp"], "unexpected end of data): 2 clips"),  # inside its data
        (2048 + 1024, ["a.mp4", "b.webp"], [], ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_a_tar_that_breaks_off_anywhere_says_so(
    tmp_path: Path, name: str, kept: int, clips: list[str], skipped: list[str], said: str
) -> None:
    whole = write_tar(tmp_path / "whole.tar", {"a.mp4": b"x" * 20, "b.webp": webp(True)}).read_bytes()
    data = whole[:kept]
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found = scan([WebDataset(path=str(tmp_path / name))], tmp_path / "cache")
    assert list(captions(found)) == clips and [record.name for record, _ in found.skipped] == skipped
    assert [said in notice.found for notice in found.notices] == [True] * bool(said)


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "x.tar", {name: name.encode() for name in ("a.mp4", "b.mp4", "c.mp4")})
    data = bytearray(tar.read_bytes())
    data[1024 + 148 : 1024 + 156] = b"x" * 8  # its checksum
    tar.write_bytes(data)
    found = scan([WebDataset(path=str(tar))], tmp_path / "cache")
    assert list(captions(found)) == ["a.mp4"] and "its end is missing" in found.notices[0].found


def test_images_of_other_sources_follow_the_same_setting(tmp_path: Path) -> None:
    touch(tmp_path, "pair/videos/a.png", "pair/videos/b.mp4", "pair/captions/x", "plain/c.jpg", "plain/d.mp4")
    write(tmp_path / "pair/captions/a.txt", "a still")
    write_tar(tmp_path / "tars/x.tar", {"e.bmp": b"x", "f.mp4": b"x"})
    for images in (False, True):
        sources = [
            PairedFolders(folder=str(tmp_path / "pair"), images=images),
            HubDataset(source=str(tmp_path / "plain"), images=images),
            HubDataset(source=str(tmp_path / "tars"), images=images),
        ]
        stills = {"a.png": ("a still",), "c.jpg": (), "e.bmp": ()} if images else {}
        assert captions(scan(sources, tmp_path / "cache")) == {"b.mp4": (), "d.mp4": (), "f.mp4": ()} | stills


def with_header(path: Path, **pax: str) -> Path:
    """A tar of one whole clip and one whose extended header holds these values."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, headers in (("a.mp4", {}), ("b.mp4", {key.replace("_", "."): value for key, value in pax.items()})):
            about = tarfile.TarInfo(name)
            about.size, about.pax_headers = 3, headers
            tar.addfile(about, io.BytesIO(b"one"))
    return path


@pytest.mark.parametrize(
    "pax",
    [
        {"GNU_sparse_map": "abc"},
        {"GNU_sparse_major": "1", "GNU_sparse_minor": "0"},
        {"GNU_sparse_size": "x"},
        {"size": "9" * 23},
    ],
)
def test_a_tar_with_a_damaged_header_gives_the_clips_before_it(tmp_path: Path, pax: dict[str, str]) -> None:
    found = scan([WebDataset(path=str(with_header(tmp_path / "x.tar", **pax)))], tmp_path / "cache")
    assert "a.mp4" in captions(found) and "b.mp4" not in captions(found)
    assert "breaks off or is damaged" in found.notices[0].found


def test_headers_without_end_are_a_damaged_tar(tmp_path: Path) -> None:
    header = tarfile.TarInfo("a.mp4")
    header.pax_headers = {"comment": "x"}
    (tmp_path / "x.tar").write_bytes(header.tobuf(tarfile.PAX_FORMAT)[:1024] * 3000)
    found = scan([WebDataset(path=str(tmp_path / "x.tar"))], tmp_path / "cache")
    assert found.clips == [] and "breaks off or is damaged" in found.notices[0].found


def test_a_full_disk_is_not_taken_for_a_damaged_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trainer.data.sources.unpack.os.fsync", full)
    with pytest.raises(UserError, match="disk is full"):
        scan([WebDataset(path=str(write_tar(tmp_path / "x.tar", {"a.mp4": b"x"})))], tmp_path / "cache")
