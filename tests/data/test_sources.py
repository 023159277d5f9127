"""Formats that name their clips: pairs of folders, lists, tables, videos2caption.json; and what all sources share."""

import json
from pathlib import Path

import pytest

from tests.data.test_folder import touch
from trainer.data.pictures import is_picture
from trainer.data.sources.endings import CLIP_EXTENSIONS, PICTURE_EXTENSIONS, VIDEO_EXTENSIONS
from trainer.data.sources.record import ClipRecord, Scan
from trainer.data.sources.scan import SCANNERS, scan
from trainer.errors import UserError
from trainer.job import DatasetSettings, TrainingJob
from trainer.source_settings import SOURCES, CaptionJson, MetadataTable, PairedFolders, Source, VideoFolder, VideoList


def captions(found: Scan) -> dict[str, tuple[str, ...]]:
    return {clip.name: clip.captions for clip in found.clips}


def complaint(source: Source) -> str:
    with pytest.raises(UserError) as caught:
        scan([source])
    return str(caught.value)


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def test_every_kind_of_settings_has_its_scan() -> None:
    assert {*SCANNERS, "parquet"} == SOURCES.keys()


def test_settings_of_a_source_reach_its_records(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    source = VideoFolder(folder=str(tmp_path), caption=" a  house\n", repeats=3, weight=0.5)
    assert scan([source]).clips == [ClipRecord(tmp_path / "a.mp4", "a.mp4", ("a house",), "setting", 3, 0.5)]


def test_every_bad_source_is_named_at_once_with_its_place(tmp_path: Path) -> None:
    sources = [PairedFolders(folder=""), MetadataTable(file=str(tmp_path)), VideoList(folder=str(tmp_path)), CaptionJson(file="gone.json")]
    with pytest.raises(UserError) as caught:
        scan(sources)
    places = ["dataset.sources.0.folder", "dataset.sources.1.file", "dataset.sources.2.videos", "dataset.sources.3.file"]
    assert [problem.where for problem in caught.value.problems] == places
    assert all(problem.cure for problem in caught.value.problems)


def test_a_clip_of_two_sources_is_taken_once(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    write(tmp_path / "videos.txt", "a.mp4")
    found = scan([VideoList(folder=str(tmp_path)), VideoFolder(folder=str(tmp_path))])
    assert len(found.clips) == 1 and any("1 clips are listed twice" in str(notice) for notice in found.notices)


def test_a_clip_listed_twice_in_one_source_keeps_all_its_captions(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "b.mp4")
    rows = [("a.mp4", "one"), ("b.mp4", ""), ("a.mp4", "two"), ("a.mp4", ""), ("b.mp4", "three"), ("a.mp4", "one")]
    write(tmp_path / "metadata.jsonl", "\n".join(json.dumps({"file_name": name, "text": text}) for name, text in rows))
    found = scan([MetadataTable(file=str(tmp_path), caption="fallback")])
    assert captions(found) == {"a.mp4": ("one", "two"), "b.mp4": ("three",)}
    assert [clip.origin for clip in found.clips] == ["file", "file"] and "4 clips are listed twice" in str(found.notices[0])


def test_job_file_with_every_kind_reads_back(tmp_path: Path) -> None:
    job = TrainingJob.parse({"dataset": {"sources": [{"kind": kind} for kind in SOURCES]}})
    write(tmp_path / "job.json", json.dumps(job.model_dump(mode="json")))
    assert TrainingJob.load(tmp_path / "job.json") == job
    assert isinstance(job.dataset, DatasetSettings) and [source.kind for source in job.dataset.sources] == list(SOURCES)


# folders --------------------------------------------------------------------------------------------------------------


def webp(animated: bool) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00" + (b"\x02" if animated else b"\x00") + b"\x00" * 9


def test_images_are_taken_only_if_asked_for_and_a_webp_counts_as_video_if_it_moves(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "b.png", "c.JPG", "d.jpeg", "e.psd")
    write(tmp_path / "moving.webp", webp(True))
    write(tmp_path / "still.webp", webp(False))
    assert list(captions(scan([VideoFolder(folder=str(tmp_path))]))) == ["a.mp4", "moving.webp"]
    with_images = scan([VideoFolder(folder=str(tmp_path), images=True)])
    assert list(captions(with_images)) == ["a.mp4", "b.png", "c.JPG", "d.jpeg", "moving.webp", "still.webp"]


def test_images_of_a_folder_are_all_that_pillow_decodes_and_a_clip_is_decoded_by_one_of_the_two(tmp_path: Path) -> None:
    touch(tmp_path, *(f"a{ending}" for ending in (*PICTURE_EXTENSIONS, *VIDEO_EXTENSIONS)))
    taken = {clip.path.suffix for clip in scan([VideoFolder(folder=str(tmp_path), images=True)]).clips}
    assert taken == {*PICTURE_EXTENSIONS, *VIDEO_EXTENSIONS}
    assert {ending for ending in taken if is_picture(Path(f"a{ending}"))} == set(PICTURE_EXTENSIONS)
    assert set(PICTURE_EXTENSIONS).isdisjoint(VIDEO_EXTENSIONS) and set(CLIP_EXTENSIONS) - set(VIDEO_EXTENSIONS) == {".webp"}


def test_sidecar_of_another_case_is_found_and_the_exact_one_wins(tmp_path: Path) -> None:
    touch(tmp_path, "sub/Clip.MP4", "x.mp4", "X.mp4")
    write(tmp_path / "sub/clip.TXT", "found")
    write(tmp_path / "x.txt", "small")
    write(tmp_path / "X.txt", "large")
    assert captions(scan([VideoFolder(folder=str(tmp_path))])) == {"X.mp4": ("large",), "sub/Clip.MP4": ("found",), "x.mp4": ("small",)}


def test_paired_folders(tmp_path: Path) -> None:
    touch(tmp_path, "videos/a.mp4", "videos/sub/b.mp4", "videos/c.mp4")
    write(tmp_path / "captions/a.txt", "first")
    write(tmp_path / "captions/sub/b.caption", "second")
    write(tmp_path / "videos/c.txt", "not here")
    found = scan([PairedFolders(folder=str(tmp_path))])
    assert captions(found) == {"a.mp4": ("first",), "c.mp4": (), "sub/b.mp4": ("second",)}
    other = PairedFolders(folder=str(tmp_path), videos=str(tmp_path / "videos/sub"), captions="captions/sub")
    assert captions(scan([other])) == {"b.mp4": ("second",)}
    assert "captions" in complaint(PairedFolders(folder=str(tmp_path), captions="texts"))


def test_usual_names_are_found_in_letters_of_any_case(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "b.Mp4", "lists/c.MKV")
    write(tmp_path / "Metadata.CSV", "file_name,text\na.mp4,one\nb.Mp4,two\n")
    assert captions(scan([MetadataTable(file=str(tmp_path))])) == {"a.mp4": ("one",), "b.Mp4": ("two",)}
    write(tmp_path / "lists/Videos.txt", "c.MKV")
    write(tmp_path / "lists/PROMPTS.TXT", "three")
    assert captions(scan([VideoList(folder=str(tmp_path / "lists"))])) == {"c.MKV": ("three",)}
    write(tmp_path / "Videos2Caption.json", '[{"path": "a.mp4", "cap": "four"}]')
    assert captions(scan([CaptionJson(file=str(tmp_path))])) == {"a.mp4": ("four",)}
    assert list(captions(scan([VideoFolder(folder=str(tmp_path))]))) == ["a.mp4", "b.Mp4", "lists/c.MKV"]


# lists ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("videos", "prompts"), [("videos.txt", "prompts.txt"), ("video.txt", "caption.txt"), ("video.txt", "captions.txt")]
)
def test_lists_pair_line_by_line(tmp_path: Path, videos: str, prompts: str) -> None:
    touch(tmp_path, "v/a.mp4", "v/b.mp4", "c.mp4")
    write(tmp_path / videos, "v/a.mp4\r\nv\\b.mp4\r\n" + str(tmp_path / "c.mp4") + "\r\n\r\n")
    write(tmp_path / prompts, "first\r\n\r\n third  one ")
    found = scan([VideoList(folder=str(tmp_path))])
    assert [(clip.path, clip.captions) for clip in found.clips] == [
        (tmp_path / "v/a.mp4", ("first",)),
        (tmp_path / "v/b.mp4", ()),
        (tmp_path / "c.mp4", ("third one",)),
    ]


def test_lists_of_other_names_and_encodings(tmp_path: Path) -> None:
    touch(tmp_path, "é.mp4")
    write(tmp_path / "clips.lst", "é.mp4".encode("utf-16"))
    write(tmp_path / "texts.lst", b"it\x92s")
    found = scan([VideoList(folder=str(tmp_path), videos="clips.lst", captions="texts.lst")])
    assert captions(found) == {"é.mp4": ("it’s",)}
    assert [notice.where for notice in found.notices] == [str(tmp_path / "texts.lst")]
    assert "nothing.txt' does not exist" in complaint(VideoList(folder=str(tmp_path), videos="nothing.txt"))


def test_lists_of_different_length_are_an_error_with_both_counts(tmp_path: Path) -> None:
    write(tmp_path / "videos.txt", "a.mp4\nb.mp4\n")
    write(tmp_path / "prompts.txt", "one\ntwo\nthree\n")
    assert "videos.txt: has 2 lines and prompts.txt has 3" in complaint(VideoList(folder=str(tmp_path)))


def test_listed_file_that_is_missing_is_skipped_with_list_and_line(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    write(tmp_path / "videos.txt", "a.mp4\ngone.mp4\nhttps://example.org/c.mp4\n" + "x" * 5000)
    found = scan([VideoList(folder=str(tmp_path))])
    assert list(captions(found)) == ["a.mp4"] and any("no captions beside it" in str(notice) for notice in found.notices)
    reasons = [reason for _, reason in found.skipped]
    assert reasons[0] == f"there is no such file (line 2 of {tmp_path / 'videos.txt'})"
    assert "is an address" in reasons[1] and "line 3 of" in reasons[1]
    assert "is not a file name" in reasons[2] or "no such file" in reasons[2]


# tables ---------------------------------------------------------------------------------------------------------------

CSV = 'file_name,text\na.mp4,"a red, round\nthing"\nb.mp4,\n'
JSONL = '{"file_name": "a.mp4", "text": "a red, round thing"}\n\n{"file_name": "b.mp4", "text": null}\n'
JSON = '[{"file_name": "a.mp4", "text": "a red, round thing"}, {"file_name": "b.mp4"}]'


@pytest.mark.parametrize(("name", "text"), [("metadata.csv", CSV), ("metadata.jsonl", JSONL), ("metadata.json", JSON)])
def test_tables(tmp_path: Path, name: str, text: str) -> None:
    touch(tmp_path, "a.mp4", "b.mp4")
    write(tmp_path / name, text)
    for place in (tmp_path, tmp_path / name):
        assert captions(scan([MetadataTable(file=str(place))])) == {"a.mp4": ("a red, round thing",), "b.mp4": ()}


def test_table_with_a_bom_and_semicolons_and_columns_by_name(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    file = write(tmp_path / "clips.csv", "clip;beschreibung;n\na.mp4;x, y;1\n".encode("utf-8-sig"))
    found = scan([MetadataTable(file=str(file), video_column="clip", caption_column="beschreibung")])
    assert captions(found) == {"a.mp4": ("x, y",)}


def test_table_without_captions_is_told_and_one_without_clips_is_an_error(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    file = write(tmp_path / "metadata.csv", "path,length\na.mp4,3\n")
    assert "its columns are 'path', 'length'" in str(scan([MetadataTable(file=str(file))]).notices[0])
    for column in ("clip", "Path"):
        told = complaint(MetadataTable(file=str(file), video_column=column))
        assert f"no column '{column}'" in told and "'path', 'length'" in told and "sources.0.video_column" in told
    assert "no column 'cap'" in complaint(MetadataTable(file=str(file), caption_column="cap"))
    other = write(tmp_path / "other.csv", "clip,length\na.mp4,3\n")
    assert "'clip', 'length'" in complaint(MetadataTable(file=str(other)))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", '[{"file_name": "a.mp4"},\n {"file_name": "b.mp4",}]', "line 2 is not JSON"),
        ("a.jsonl", '{"file_name": "a.mp4"}\n{"file_name": \n', "line 2 is not JSON"),
        ("a.json", '{"file_name": "a.mp4"}', "holds an object where a list"),
        ("a.json", '["a.mp4"]', "entry 1 is 'a.mp4', not an object"),
        ("a.jsonl", "3\n", "line 1 is 3, not an object"),
        ("a.csv", 'file_name,text\na.mp4,"open\n', "the row after line 1 cannot be read"),
        ("a.xlsx", "x", "is no table"),
        ("a.json", "[" * 100_000, "line 1 is not JSON"),
    ],
)
def test_table_that_cannot_be_read_names_file_and_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    complained = complaint(MetadataTable(file=str(write(tmp_path / name, text))))
    assert told in complained and name in complained


def test_odd_cells_cost_one_clip_each(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "b.mp4", "c.mp4", "d.mp4")
    rows = [
        {"video": "a.mp4", "caption": 7},
        {"video": None},
        {"video": "b.mp4", "caption": {"x": 1}},
        {"video": "d.mp4", "caption": float("nan")},
    ]
    file = write(tmp_path / "x.json", json.dumps([*rows, {"video": "c.mp4", "caption": ["one", " ", "two"]}]))
    found = scan([MetadataTable(file=str(file))])
    assert captions(found) == {"a.mp4": ("7",), "d.mp4": (), "c.mp4": ("one", "two")}
    assert [reason for _, reason in found.skipped] == [
        f"no clip is named (entry 2 of {file})",
        f"its caption is not text but dict (entry 3 of {file})",
    ]


def test_empty_table_holds_nothing(tmp_path: Path) -> None:
    for name, text in (("a.csv", "file_name,text\n"), ("b.json", "[]"), ("c.jsonl", "\n")):
        assert scan([MetadataTable(file=str(write(tmp_path / name, text)))]).clips == []


def test_videos2caption_in_both_forms(tmp_path: Path) -> None:
    touch(tmp_path, "videos/a.mp4", "b.mp4")
    full = {"path": "a.mp4", "cap": ["one", "two"], "resolution": {"width": 64, "height": 48}, "fps": 16, "num_frames": 9, "duration": 0.6}
    write(tmp_path / "videos2caption.json", json.dumps([full, {"path": "b.mp4", "cap": "three"}, {"path": "c.mp4", "cap": "four"}]))
    found = scan([CaptionJson(file=str(tmp_path))])
    assert captions(found) == {"a.mp4": ("one", "two"), "b.mp4": ("three",)} and len(found.skipped) == 1
    assert found.clips[0].path == tmp_path / "videos/a.mp4"
    write(tmp_path / "videos2caption.json", '[{"video": "a.mp4", "cap": "x"}]')
    assert "'video', 'cap'" in complaint(CaptionJson(file=str(tmp_path)))
