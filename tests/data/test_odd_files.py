"""What lies where a clip or caption should: pipes, devices, links to nothing, lists of other files, names that no file can have."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.footage import ffmpeg
from tests.data.synthetic import write_clip
from tests.data.test_archives import write_tar
from tests.data.test_prepare import Setup
from tests.data.test_sources import captions, write
from trainer.data import stream
from trainer.data.captioning import frames_of
from trainer.data.content import signature
from trainer.data.probe import probe
from trainer.data.sources.inspect import complaint, state
from trainer.data.sources.record import UnusableClip
from trainer.data.sources.scan import scan
from trainer.data.sources.sidecar import current_caption, write_caption
from trainer.errors import UserError
from trainer.files import kind_of, no_file, read_file
from trainer.importers import import_config
from trainer.source_settings import (
    CaptionJson,
    HubDataset,
    MetadataTable,
    PairedFolders,
    ParquetFolder,
    Source,
    VideoFolder,
    VideoList,
    WebDataset,
)

unix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A pipe that nobody writes to, a socket, a device without end, and links to them, to nothing and to itself."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "nothing").symlink_to("gone")
    (tmp_path / "itself").symlink_to("itself")
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(tmp_path)  # a socket's path may be 100 bytes long
        listening.bind("socket")
        os.chdir(before)
        yield {name: tmp_path / name for name in ("pipe", "link", "endless", "nothing", "itself", "socket")}


REASONS = {
    "pipe": "is a named pipe, not a file", "link": "is a named pipe, not a file", "socket": "is a socket, not a file",
    "endless": "is a device, not a file", "nothing": "is a link that leads to no file", "itself": "Too many levels of symbolic links",
}  # fmt: skip


@unix
def test_only_regular_files_are_opened(odd: dict[str, Path], tmp_path: Path) -> None:
    for name, path in odd.items():
        assert kind_of(path) == "" and no_file(path) == REASONS[name]
        with pytest.raises(OSError):
            read_file(path)
        with pytest.raises(OSError):
            signature(path)
        for ending in (".mp4", ".png", ".webp"):
            clip = tmp_path / f"{name}{ending}"
            clip.symlink_to(path)
            with pytest.raises(UnusableClip, match="cannot be read"):
                probe(clip)
            with pytest.raises(UnusableClip):
                frames_of(clip, 1)
        with pytest.raises(UserError, match="cannot be read"):
            import_config([path])
    assert no_file(tmp_path / "gone") == "there is no such file" and no_file(tmp_path) == "is a folder, not a file"
    write(tmp_path / "a.txt", "a")
    assert no_file(tmp_path / "a.txt") == "" and read_file(tmp_path / "a.txt") == b"a"


@unix
def test_a_folder_takes_its_files_and_reports_the_rest(odd: dict[str, Path], tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.clip("good.mp4", 5)
    write_clip(setup.clips / "silent.mp4", 5)
    (setup.clips / "silent.txt").symlink_to(odd["pipe"])
    for name, path in odd.items():
        (setup.clips / f"{name}.mp4").symlink_to(path)
    (setup.clips / "still.webp").symlink_to(odd["pipe"])
    dataset = setup.prepare()
    assert {item.name: item.captions for item in dataset.items} == {"good.mp4": ("a thing",), "silent.mp4": ("",)}
    reasons = {f"{name}.mp4": why for name, why in REASONS.items()} | {"still.webp": REASONS["pipe"]}
    assert {clip.name: clip.skipped for clip in dataset.report.skipped} == reasons
    assert any("silent.txt: is a named pipe, not a file" in notice for notice in setup.watcher.notices)


@unix
def test_lists_tables_and_archives_name_files_only(odd: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "videos.txt", f"{odd['pipe']}\n{odd['endless']}\n")
    write(tmp_path / "metadata.csv", "file_name,caption\npipe,x\n")
    write(tmp_path / "pairs/videos/a.mp4", b"x")
    (tmp_path / "pairs/captions").mkdir()
    (tmp_path / "pairs/captions/a.txt").symlink_to(odd["pipe"])
    (tmp_path / "tars").mkdir()
    (tmp_path / "tars/a.tar").symlink_to(odd["pipe"])
    write_tar(tmp_path / "tars/b.tar", {"b.mp4": b"x"})
    (tmp_path / "set").mkdir()
    (tmp_path / "set/train.parquet").symlink_to(odd["pipe"])
    write(tmp_path / "set/c.mp4", b"x")
    listed = scan([VideoList(folder=str(tmp_path)), MetadataTable(file=str(tmp_path))])
    assert [why.partition(" (")[0] for _, why in listed.skipped] == [REASONS["pipe"], REASONS["endless"], REASONS["pipe"]]
    paired = scan([PairedFolders(folder=str(tmp_path / "pairs"))])
    assert captions(paired) == {"a.mp4": ()} and REASONS["pipe"] in paired.notices[0].found
    sources: list[Source] = [WebDataset(path=str(tmp_path / "tars")), HubDataset(source=str(tmp_path / "set"))]
    assert list(captions(scan(sources, tmp_path / "cache"))) == ["b.mp4", "c.mp4"]
    for source in (WebDataset(path=str(odd["pipe"])), MetadataTable(file=str(odd["pipe"])), CaptionJson(file=str(odd["endless"]))):
        with pytest.raises(UserError, match="does not exist"):
            scan([source])
    with pytest.raises(UserError, match="does not exist"):
        scan([VideoFolder(folder=str(tmp_path), captions_from="one file", caption_file=str(odd["pipe"]))])


@unix
def test_a_caption_is_not_written_over_a_pipe(odd: dict[str, Path]) -> None:
    assert current_caption(odd["pipe"]) == ""
    with pytest.raises(OSError, match="named pipe"):
        write_caption(odd["pipe"], "text")
    assert odd["pipe"].is_fifo()


LONG = "a" * 5000


@pytest.mark.parametrize("name", [LONG, f"{LONG}/x", "a\0b", "a\0b/x", "\ud800", "\ud800/x"])
def test_names_that_no_file_can_have_are_told(tmp_path: Path, name: str) -> None:
    sources = [
        VideoFolder(folder=f"/tmp/{name}"), VideoFolder(folder=str(tmp_path), captions_from="one file", caption_file=name),
        PairedFolders(folder=str(tmp_path), videos=name), VideoList(folder=str(tmp_path), videos=name), MetadataTable(file=name),
        CaptionJson(file=name), WebDataset(path=name), WebDataset(path=f"/tmp/{name}"), HubDataset(source=f"/{name}"),
    ]  # fmt: skip
    for source in sources:
        with pytest.raises(UserError, match="does not exist"):
            scan([source], tmp_path / "cache")
        assert complaint(source, tmp_path / "cache", False) and state(source) == []
    write(tmp_path / "set/a.mp4", b"x")
    assert len(scan([HubDataset(source=str(tmp_path / "set"), split=name)]).clips) == 1
    write(tmp_path / "metadata.json", json.dumps([{"file_name": name}]))
    found = scan([MetadataTable(file=str(tmp_path))])
    assert found.clips == [] and len(found.skipped) == 1
    with pytest.raises(UserError, match="cannot be read"):
        import_config([name])
    from trainer.data.parquet.read import parquet_files

    with pytest.raises(UserError, match="does not exist"):
        parquet_files(Path(ParquetFolder(folder=name).folder))


@pytest.mark.parametrize("download", [False, True])
def test_a_hub_id_that_is_too_long_is_told(tmp_path: Path, download: bool) -> None:
    with pytest.raises(UserError, match="is no hub id"):
        scan([HubDataset(source=f"owner/{'a' * 300}")], tmp_path / "cache", may_download=download)


PLAYLISTS = {
    "concat": "ffconcat version 1.0\nfile '{inner}'\n",
    "HLS": "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{inner}\n#EXT-X-ENDLIST\n",
    "DASH": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT1S">'
    '<Period><AdaptationSet mimeType="video/mp4"><Representation id="1" bandwidth="1"><BaseURL>{inner}</BaseURL>'
    "</Representation></AdaptationSet></Period></MPD>",
    "SDP": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
}


@pytest.mark.parametrize("kind", PLAYLISTS)
@pytest.mark.parametrize("ending", [".mp4", ".m3u8.mov", ".gif"])
def test_lists_of_other_files_are_no_clips(tmp_path: Path, kind: str, ending: str) -> None:
    inner = write_clip(tmp_path / "inner.mp4", 5)
    playlist = write(tmp_path / f"clip{ending}", PLAYLISTS[kind].replace("{inner}", str(inner)))
    with pytest.raises(UnusableClip, match="cannot be read") as caught:
        probe(playlist)
    if kind == "concat":
        assert "list of other files" in str(caught.value)


def test_a_clip_that_becomes_a_list_after_probing_is_not_followed(tmp_path: Path) -> None:
    clip, inner = write_clip(tmp_path / "clip.mp4", 5), write_clip(tmp_path / "inner.mp4", 5)
    probed = probe(clip)
    write(clip, PLAYLISTS["concat"].replace("{inner}", inner.name))
    with pytest.raises(UnusableClip, match="list of other files"):
        list(stream.decoded(clip, probed, [0]))


def test_names_are_no_patterns_and_no_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x%03d.mp4", "file:y.mp4", "concat:a|b.mp4", "-i.mp4", "a b?c#d.mp4"):
        clip = Path(write_clip(tmp_path / "plain.mp4", 3).rename(tmp_path / name).name)
        assert len(probe(clip).times) == 3


@pytest.mark.parametrize("kind", ["mpegts", "flv", "ogg", "nut", "mpeg"])
def test_clips_of_other_containers_are_read_whatever_their_ending(tmp_path: Path, kind: str) -> None:
    codec = {"ogg": "libtheora", "flv": "flv", "mpeg": "mpeg1video"}.get(kind, "mpeg4")
    ffmpeg("-f", "lavfi", "-i", "testsrc=s=64x48:r=25:d=0.4", "-c:v", codec, "-f", kind, tmp_path / "a.mp4")
    assert len(probe(tmp_path / "a.mp4").times) == 10


def test_programs_are_no_pictures(tmp_path: Path) -> None:
    """Pillow hands PostScript to an interpreter."""
    write(tmp_path / "a.png", "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(UnusableClip, match="cannot identify"):
        probe(tmp_path / "a.png")
