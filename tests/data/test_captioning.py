"""Sidecar captions: what is written, what is never touched, and where."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.synthetic import Watcher, index_of, watched, write_clip
from trainer.data.captioning import caption_clips, frames_of, readable, sidecars, take_captions
from trainer.data.sources.record import UnusableClip
from trainer.data.sources.scan import scan
from trainer.dataset_settings import DatasetSettings
from trainer.errors import Interrupted, UserError
from trainer.source_settings import MetadataTable, VideoFolder

LOG = watched(Watcher())


class FakeCaptioner:
    """Says which grey frames it was shown, and remembers how often it was asked."""

    def __init__(self, says: Callable[[str], str] = lambda text: f" frames\n{text} ") -> None:
        self.asked, self.says = 0, says

    def __call__(self, frames: np.ndarray) -> str:
        self.asked += 1
        return self.says(",".join(str(index_of(torch.from_numpy(frame))) for frame in frames))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three clips of 8, 4 and 1 frames below input; the second one has a caption."""
    made = tmp_path / "input/clips"
    for name, frames in (("a.mp4", 8), ("b.mp4", 4), ("sub/c.v1.mp4", 1)):
        write_clip(made / name, frames)
    (made / "b.TXT").write_bytes("café\r\nby night".encode("utf-16"))
    return made


def dataset(folder: Path) -> DatasetSettings:
    return DatasetSettings().with_source(VideoFolder(folder=str(folder)))


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix.lower() != ".mp4" and path.is_file()
    }


def test_missing_captions_are_written_and_the_next_scan_reads_them(folder: Path) -> None:
    captioner, before = FakeCaptioner(), (folder / "b.TXT").read_bytes()
    made = caption_clips(sidecars(dataset(folder), [folder.parent]), captioner, LOG, frames=4)
    assert files(folder) == {"a.txt": b"frames 1,3,5,7\n", "b.TXT": before, "sub/c.v1.txt": b"frames 0\n"}
    assert made.captions == ["frames 1,3,5,7", "café by night", "frames 0"]
    assert (captioner.asked, made.written, made.kept, made.replaced, made.failed) == (2, 2, 1, 0, [])
    found = scan(dataset(folder).sources).clips
    assert [clip.captions for clip in found] == [(caption,) for caption in made.captions]
    assert caption_clips(sidecars(dataset(folder), [folder.parent]), captioner, LOG).kept == 3 and captioner.asked == 2


def test_an_empty_caption_file_is_a_file_that_is_kept(folder: Path) -> None:
    (folder / "a.caption").write_bytes(b"")
    made = caption_clips(sidecars(dataset(folder), [folder.parent]), FakeCaptioner(), LOG)
    assert made.captions[0] == "" and made.kept == 2 and not (folder / "a.txt").exists() and (folder / "a.caption").read_bytes() == b""


def test_overwriting_keeps_the_oldest_text_once(folder: Path) -> None:
    oldest = (folder / "b.TXT").read_bytes()
    for text in ("first", "second", "second"):
        made = caption_clips(sidecars(dataset(folder), [folder.parent]), FakeCaptioner(lambda _, text=text: text), LOG, "overwrite")
    assert (made.replaced, made.kept) == (0, 3), "the same text is not written again"
    assert files(folder) == {
        "a.txt": b"second\n", "a.txt.bak": b"first\n", "b.TXT": b"second\n", "b.TXT.bak": oldest,
        "sub/c.v1.txt": b"second\n", "sub/c.v1.txt.bak": b"first\n",
    }  # fmt: skip


def test_a_link_is_replaced_and_what_it_leads_to_is_not(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text("precious", encoding="utf-8")
    (folder / "a.txt").symlink_to(elsewhere)
    caption_clips(sidecars(dataset(folder), [folder.parent]), FakeCaptioner(lambda _: "new"), LOG, "overwrite")
    assert elsewhere.read_text(encoding="utf-8") == "precious" and not (folder / "a.txt").is_symlink()


def test_a_cancel_keeps_what_was_written(folder: Path) -> None:
    def cancels(text: str) -> str:
        watcher.cancelled = True
        return text

    watcher = Watcher()
    with pytest.raises(Interrupted):
        caption_clips(sidecars(dataset(folder), [folder.parent]), FakeCaptioner(cancels), watched(watcher), frames=1)
    assert (folder / "a.txt").read_bytes() == b"4\n" and not (folder / "sub/c.v1.txt").exists()
    assert [path.name for path in folder.rglob("*.part")] == []


def test_unreadable_clips_and_silence_are_reported_and_the_others_captioned(folder: Path) -> None:
    (folder / "a.mp4").write_bytes(b"broken")
    made = caption_clips(sidecars(dataset(folder), [folder.parent]), FakeCaptioner(lambda _: " \n"), LOG)
    assert made.captions == ["", "café by night", ""] and made.written == 0
    assert made.failed[0].startswith("a.mp4: cannot be read") and made.failed[1] == "sub/c.v1.mp4: the captioner said nothing."
    assert str(made).splitlines()[0] == "0 captions written, 0 replaced, 1 kept as they were" and made.failed[0] in str(made)


def test_clips_that_cannot_be_read_are_neither_counted_nor_captioned(folder: Path) -> None:
    (folder / "a.mp4").write_bytes(b"broken")
    good, unread = readable(sidecars(dataset(folder), [folder.parent]))
    assert [place.clip.name for place in good] == ["b.mp4", "sub/c.v1.mp4"] and unread[0].startswith("a.mp4: cannot be read")
    made = take_captions(good, ["two", "three"], LOG)
    assert made.captions == ["café by night", "three"] and not (folder / "a.txt").exists()
    for path in folder.rglob("*.mp4"):
        path.write_bytes(b"broken")
    with pytest.raises(UserError, match=r"none of the 3 clips can be read\. a\.mp4: "):
        readable(sidecars(dataset(folder), [folder.parent]))


def test_one_text_is_a_line_for_each_clip(folder: Path) -> None:
    places = sidecars(dataset(folder), [folder.parent])
    assert take_captions(places, ["one\n\ntwo \nthree\n"], LOG, "overwrite").captions == ["one", "two", "three"]
    with pytest.raises(UserError, match=r"one text with 2 lines was given for 3 clips that can be read.*a text with a line for each"):
        take_captions(places, ["one\ntwo"], LOG)
    assert take_captions(places[:1], ["all\nof it"], LOG, "overwrite").captions == ["all of it"]


def test_a_list_is_written_in_the_order_of_the_clips(folder: Path) -> None:
    made = take_captions(sidecars(dataset(folder), [folder.parent]), ["one", "two", "three\nlines"], LOG, "overwrite")
    assert made.captions == ["one", "two", "three lines"] and (made.written, made.replaced) == (2, 1)
    assert (folder / "b.TXT").read_bytes() == b"two\n"


def test_a_list_of_another_length_names_both_counts_and_writes_nothing(folder: Path) -> None:
    before = files(folder)
    with pytest.raises(UserError, match=r"captions: 2 captions were given for 3 clips that.*'a.mp4'.*'sub/c.v1.mp4'"):
        take_captions(sidecars(dataset(folder), [folder.parent]), ["one", "two"], LOG, "overwrite")
    assert files(folder) == before


def test_clips_of_one_name_share_a_caption(folder: Path) -> None:
    write_clip(folder / "a.mkv", 3)
    for existing in ("keep", "overwrite"):
        (folder / "a.txt").unlink(missing_ok=True)
        made = take_captions(sidecars(dataset(folder), [folder.parent]), ["mkv", "mp4", "b", "c"], LOG, existing)
        assert made.captions[:2] == ["mkv", "mkv"] and made.shared == ["a.mp4"] and (folder / "a.txt").read_bytes() == b"mkv\n"


def test_nothing_is_written_outside_the_allowed_folders(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "input2/clips"
    write_clip(outside / "x.mp4", 2)
    (folder / "linked").symlink_to(outside, target_is_directory=True)
    table = MetadataTable(file=str(tmp_path / "metadata.csv"))
    both = DatasetSettings(sources=[VideoFolder(folder=str(outside)), table, VideoFolder(folder=str(folder))])
    with pytest.raises(UserError) as caught:
        sidecars(both, [tmp_path / "input", tmp_path / "output"])
    text = [str(problem) for problem in caught.value.problems]
    assert [line.split(":")[0] for line in text] == ["dataset.sources.0", "dataset.sources.1", "dataset.sources.2"]
    assert "Move the folder into ComfyUI's input folder" in text[0] and "metadata.csv' is no folder" in text[1]
    assert str(folder / "linked") in text[2]
    assert not list(outside.glob("*.txt"))


def test_a_folder_without_clips_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no clip"):
        sidecars(dataset(tmp_path / "empty"), [tmp_path])


def test_a_folder_that_cannot_be_written_names_the_file(folder: Path) -> None:
    if os.geteuid() == 0:
        (folder / "a.txt.bak").mkdir()
        (folder / "a.txt").mkdir()  # a folder in the file's place: not even root can replace it
        places, existing = sidecars(dataset(folder), [folder.parent]), "overwrite"
    else:
        folder.chmod(0o555)
        places, existing = sidecars(dataset(folder), [folder.parent]), "keep"
    with pytest.raises(UserError, match=r"a\.txt: cannot be written"):
        take_captions(places, ["one", "two", "three"], LOG, existing)
    folder.chmod(0o755)


def test_frames_are_evenly_spaced_and_never_enlarged(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "a.mp4", 24)
    assert [index_of(torch.from_numpy(frame)) for frame in frames_of(clip, 1)] == [12]
    assert [index_of(torch.from_numpy(frame)) for frame in frames_of(clip, 3)] == [4, 12, 20]
    assert len(frames_of(write_clip(tmp_path / "b.mp4", 3), 8)) == 3
    assert frames_of(clip, 2).shape == (2, 48, 64, 3) and frames_of(clip, 2, longest=32).shape == (2, 24, 32, 3)
    Image.new("RGB", (40, 20), (200, 0, 0)).save(tmp_path / "c.png")
    assert frames_of(tmp_path / "c.png", 8).shape == (1, 20, 40, 3)
    (tmp_path / "d.mp4").write_bytes(b"")
    with pytest.raises(UnusableClip, match="empty"):
        frames_of(tmp_path / "d.mp4", 1)


@pytest.mark.parametrize("origin", ["one file", "file name"])
def test_clips_whose_captions_are_read_elsewhere_are_refused(folder: Path, origin: str) -> None:
    source = VideoFolder(folder=str(folder), captions_from=origin, caption_file=str(folder / "b.TXT"))
    before = files(folder)
    with pytest.raises(UserError, match=rf"sources\.0: takes the captions of .* from {origin}"):
        sidecars(DatasetSettings().with_source(source), [folder.parent])
    assert files(folder) == before
