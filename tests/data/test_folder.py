"""Folders of clips: what counts as a clip, how captions are found and read."""

import os
from pathlib import Path

import pytest

from trainer.data.sources.paths import folder_path
from trainer.data.sources.scan import scan
from trainer.data.sources.text_file import read_caption
from trainer.errors import UserError
from trainer.job import VideoFolder


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def names(folder: Path, **settings: object) -> list[str]:
    return [clip.name for clip in scan([VideoFolder(folder=str(folder), **settings)]).clips]


def test_only_clips_are_taken_whatever_lies_beside_them(tmp_path: Path) -> None:
    clips = ["a.mp4", "B.MP4", "c.mov", "d.mkv", "e.webm", "f.avi", "g.m4v", "h.gif", "sub/deep/i.mp4", "ключ [1] é 猫.mp4"]
    touch(tmp_path, *clips)
    touch(tmp_path, "Thumbs.db", "._a.mp4", ".DS_Store", "desktop.ini", "a.mp4.part", "z.zip", ".hidden/j.mp4", "__MACOSX/k.mp4", "l.png")
    assert names(tmp_path) == sorted(clips)
    assert names(tmp_path, subfolders=False) == sorted(clip for clip in clips if "/" not in clip)


def test_captions_in_every_encoding(tmp_path: Path) -> None:
    text = "It’s a café\r\nby night "
    cases = {
        "utf-8": text.encode("utf-8"),
        "utf-8-sig": text.encode("utf-8-sig"),
        "utf-16": text.encode("utf-16"),
        "utf-16-be": b"\xfe\xff" + text.encode("utf-16-be"),
        "utf-16-le": text.encode("utf-16-le"),
        "utf-16-be without a mark": text.encode("utf-16-be"),
        "cp1252": text.encode("cp1252"),
    }
    for name, data in cases.items():
        (tmp_path / f"{name}.txt").write_bytes(data)
        assert read_caption(tmp_path / f"{name}.txt")[0] == "It’s a café by night", name
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9 \x81")  # 0x81 is nothing in Windows-1252
    assert read_caption(tmp_path / "bad.txt")[0].startswith("café")


def test_caption_beside_the_clip_whatever_the_case_of_its_extension(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "b.MP4", "c.mp4", "d.mp4", "sub/a.mp4", "v1.2.mp4")
    (tmp_path / "a.TXT").write_text("first", encoding="utf-8")
    (tmp_path / "b.Caption").write_text("second", encoding="utf-8")
    (tmp_path / "c.txt").write_bytes(b"  \r\n")
    (tmp_path / "v1.2.txt").write_text("dotted", encoding="utf-8")
    found = scan([VideoFolder(folder=str(tmp_path), caption=" a house ")])
    assert {clip.name: (*clip.captions, clip.origin) for clip in found.clips} == {
        "a.mp4": ("first", "file"),
        "b.MP4": ("second", "file"),
        "c.mp4": ("a house", "setting"),
        "d.mp4": ("a house", "setting"),
        "sub/a.mp4": ("a house", "setting"),
        "v1.2.mp4": ("dotted", "file"),
    }
    bare = scan([VideoFolder(folder=str(tmp_path))])
    assert [clip.origin for clip in bare.clips].count("none") == 3


def test_cp1252_caption_is_named_in_a_notice(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    (tmp_path / "a.txt").write_bytes(b"it\x92s")
    notices = scan([VideoFolder(folder=str(tmp_path))]).notices
    assert [notice.where for notice in notices] == [str(tmp_path / "a.txt")]


@pytest.mark.parametrize("pasted", ['"{}"', "  {} ", "'{}'", ' "{}" ', "“{}”", "{}"])
def test_pasted_paths_lose_quotes_and_spaces(tmp_path: Path, pasted: str) -> None:
    touch(tmp_path / "my clips", "a.mp4")
    assert folder_path(pasted.format(tmp_path / "my clips")) == tmp_path / "my clips"
    assert scan([VideoFolder(folder=pasted.format(tmp_path / "my clips"))]).clips[0].name == "a.mp4"


def test_windows_path_keeps_its_backslashes() -> None:
    assert str(folder_path('"C:\\new\\users"')) == "C:\\new\\users"


def test_every_missing_folder_is_named_at_once(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    folders = [VideoFolder(folder=text) for text in (str(tmp_path / "no"), str(tmp_path / "a.mp4"), " ", str(tmp_path))]
    with pytest.raises(UserError) as caught:
        scan(folders)
    assert [problem.where for problem in caught.value.problems] == [f"dataset.sources.{n}.folder" for n in range(3)]
    assert str(tmp_path / "no") in str(caught.value)


def test_a_clip_listed_twice_is_taken_once(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "sub/b.mp4")
    found = scan([VideoFolder(folder=str(tmp_path)), VideoFolder(folder=str(tmp_path / "sub")), VideoFolder(folder=f"{tmp_path}/")])
    assert [clip.name for clip in found.clips] == ["a.mp4", "sub/b.mp4"]
    assert [notice.found.split()[0] for notice in found.notices] == ["1", "2"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_folder_linked_into_itself_ends(tmp_path: Path) -> None:
    touch(tmp_path, "sub/a.mp4")
    (tmp_path / "sub" / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert names(tmp_path) == ["sub/a.mp4"]


def test_relative_folder_gives_absolute_clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "x/a.mp4")
    monkeypatch.chdir(tmp_path)
    assert scan([VideoFolder(folder="x")]).clips[0].path == tmp_path / "x" / "a.mp4"


def test_unreadable_caption_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a.mp4", "a.txt")
    monkeypatch.setattr(Path, "read_bytes", lambda self: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    found = scan([VideoFolder(folder=str(tmp_path))])
    assert found.clips[0].origin == "none" and "Permission denied" in str(found.notices[0])


def test_captions_from_lines_one_file_or_the_name(tmp_path: Path) -> None:
    touch(tmp_path, "a red_fox.mp4", "sub/b.mp4")
    (tmp_path / "a red_fox.txt").write_bytes(b"first\r\n\r\n  second  one\r\nfirst\n")
    (tmp_path / "shared.list").write_text("of all\n\n or  of all \n", encoding="utf-8")

    def found(**settings: str) -> dict[str, tuple[str, ...]]:
        clips = scan([VideoFolder(folder=str(tmp_path), caption="fallback", **settings)]).clips
        return {clip.name: clip.captions for clip in clips}

    assert found() == {"a red_fox.mp4": ("first second one first",), "sub/b.mp4": ("fallback",)}
    assert found(captions_from="sidecar lines") == {"a red_fox.mp4": ("first", "second one", "first"), "sub/b.mp4": ("fallback",)}
    assert found(captions_from="file name") == {"a red_fox.mp4": ("a red_fox",), "sub/b.mp4": ("b",)}
    shared = found(captions_from="one file", caption_file=str(tmp_path / "shared.list"))
    assert shared == dict.fromkeys(("a red_fox.mp4", "sub/b.mp4"), ("of all", "or of all"))


def test_a_caption_file_of_all_clips_must_be_there_and_an_empty_one_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    for file, said in (("", "no caption file is given"), (str(tmp_path / "gone.txt"), "the caption file .* does not exist")):
        with pytest.raises(UserError, match=rf"sources\.0\.caption_file.*{said}"):
            scan([VideoFolder(folder=str(tmp_path), captions_from="one file", caption_file=file)])
    (tmp_path / "empty.txt").write_text(" \n\n", encoding="utf-8")
    found = scan([VideoFolder(folder=str(tmp_path), captions_from="one file", caption_file=str(tmp_path / "empty.txt"))])
    assert found.clips[0].origin == "none" and "holds no caption" in found.notices[0].found


def test_only_captions_with_a_file_of_their_own_name_it(tmp_path: Path) -> None:
    """Where a caption is edited or written: never into a file that holds the captions of all clips."""
    touch(tmp_path, "a.mp4", "all.txt")
    for origin, own in (("sidecar", True), ("sidecar lines", True), ("one file", False), ("file name", False)):
        source = VideoFolder(folder=str(tmp_path), captions_from=origin, caption_file=str(tmp_path / "all.txt"))
        assert scan([source]).clips[0].sidecar == (tmp_path / "a.txt" if own else None)
