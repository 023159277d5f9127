"""What text a clip is trained with: encodings, edits in their order, variants, and clips without a caption."""

import os
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.data.synthetic import SPEC, FakeEncoders, FakeFamily, watched
from tests.data.test_archives import write_tar
from tests.data.test_folder import touch
from tests.data.test_prepare import Setup
from trainer.caption_settings import CaptionEdit, CaptionSettings
from trainer.data.cache import TensorCache
from trainer.data.captions import is_left_out, shuffled, training_texts, without_opening
from trainer.data.dataset import Item
from trainer.data.prepare import prepare_dataset
from trainer.data.sampler import Example
from trainer.data.sources.record import ClipRecord
from trainer.data.sources.scan import scan
from trainer.errors import UserError
from trainer.job import Bucket, DatasetSettings, TrainingJob
from trainer.objectives.flow_matching import FlowMatching
from trainer.source_settings import HubDataset, MetadataTable, Source, VideoFolder, WebDataset


def texts(*captions: str, seed: int = 0, **edit: object) -> list[str]:
    return list(training_texts(ClipRecord(Path("a"), "a", captions), CaptionEdit(**edit), seed))


# rows C of the cases --------------------------------------------------------------------------------------------------


def scanned(folder: Path, data: bytes | None) -> tuple[ClipRecord, list[str]]:
    touch(folder, "a.mp4")
    if data is not None:
        (folder / "a.txt").write_bytes(data)
    found = scan([VideoFolder(folder=str(folder))])
    return found.clips[0], [str(notice) for notice in found.notices]


def test_c1_windows_1252_is_read_before_step_0_and_the_file_is_named(tmp_path: Path) -> None:
    record, notices = scanned(tmp_path, b"a cat\x92s house")
    assert record.captions == ("a cat’s house",) and len(notices) == 1
    assert str(tmp_path / "a.txt") in notices[0] and "Windows-1252" in notices[0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_c2_byte_order_marks_never_reach_the_caption(tmp_path: Path, encoding: str) -> None:
    assert scanned(tmp_path, "It’s a café".encode(encoding)) == (ClipRecord(tmp_path / "a.mp4", "a.mp4", ("It’s a café",), "file"), [])


@pytest.mark.parametrize("data", [None, b"", b"  \r\n \t", b"\xef\xbb\xbf \r\n"])
def test_c3_missing_empty_and_blank_captions_obey_one_rule_and_are_counted(tmp_path: Path, data: bytes | None) -> None:
    setup = Setup(tmp_path)
    setup.clip("full.mp4", 9, caption="a thing")
    path = setup.clip("none.mp4", 5, caption=None)
    if data is not None:
        path.with_suffix(".txt").write_bytes(data)
    trained = setup.prepare()
    assert [item.captions for item in trained.items] == [("a thing",), ("",)]
    assert trained.report.captions == {"file": 1, "setting": 0, "none": 1}
    assert any("1 of 2 clips have no caption" in notice for notice in setup.watcher.notices)
    setup.captions = {"uncaptioned": "skip"}
    skipped = setup.prepare()
    assert [item.name for item in skipped.items] == ["full.mp4"] and "has no caption" in skipped.report.skipped[0].skipped


# edits ----------------------------------------------------------------------------------------------------------------


def test_without_edits_a_caption_is_itself() -> None:
    assert texts("a red, big  house") == ["a red, big house"] and texts() == [""]


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        ({"prefix": " zorp "}, "zorp a house"),
        ({"prefix": "zorp,"}, "zorp, a house"),
        ({"suffix": "in fog"}, "a house in fog"),
        ({"suffix": ", in fog"}, "a house, in fog"),
        ({"prefix": "zorp", "template": "{trigger}, a film of {caption}"}, "zorp, a film of a house"),
        ({"prefix": "zorp", "template": "film of {caption}", "suffix": "."}, "zorp film of a house."),
        ({"template": "{trigger} {caption}"}, "a house"),
        ({"template": "{caption} and {caption}"}, "a house and a house"),
    ],
)
def test_trigger_template_and_suffix(edit: dict, text: str) -> None:
    assert texts("a house", **edit) == [text]


def test_a_clip_without_caption_gets_trigger_and_suffix_alone() -> None:
    assert texts(prefix="zorp", suffix="film", template="{trigger}, a film of {caption}") == ["zorp film"]
    assert texts(template="a film of {caption}") == [""] and texts(suffix=".") == ["."]


@pytest.mark.parametrize("template", ["a film", "{caption} {other}", "{caption} {", "{caption:>10}", "{trigger}", "{}{caption}"])
def test_a_template_that_cannot_be_filled_is_an_error(template: str) -> None:
    with pytest.raises(UserError, match=r"captions\.template"):
        TrainingJob.parse({"captions": {"template": template}})


@pytest.mark.parametrize(
    ("caption", "rest"),
    [
        ("The video shows a dog.", "A dog."),
        ("the clip features waves", "waves"),
        ("In this short clip, we can see a red car", "A red car"),
        ("In the video, a man walks", "A man walks"),
        ("In this footage there is a cat", "A cat"),
        ("This is a video of cats", "Cats"),
        ("A video showing that waves break", "Waves break"),
        ("The scene opens with rain", "Rain"),
        ("We see a house", "A house"),
    ],
)
def test_openings_are_removed_only_if_asked_for(caption: str, rest: str) -> None:
    assert without_opening(caption) == rest
    assert texts(caption) == [caption] and texts(caption, remove_openings=True, prefix="zorp") == [f"zorp {rest}"]


@pytest.mark.parametrize(
    "caption", ["The video", "The video shows", "A dog shows its teeth", "A close-up shot of a bee", "The videographer shows a lens", ""]
)
def test_what_is_no_opening_stays(caption: str) -> None:
    assert without_opening(caption) == caption


def test_shuffled_tags_are_the_same_tags_and_the_first_stay() -> None:
    caption = "one,two , three,, four, five,six"
    made = texts(caption, shuffle_tags=True, keep_tags=2, variants=8)
    assert len(made) > 4 and all(text.startswith("one, two, ") for text in made)
    assert {tuple(sorted(text.split(", "))) for text in made} == {("five", "four", "one", "six", "three", "two")}
    assert made == texts(caption, shuffle_tags=True, keep_tags=2, variants=8)
    assert made != texts(caption, shuffle_tags=True, keep_tags=2, variants=8, seed=1)
    assert made[:3] == [shuffled(caption, 2, 0, variant) for variant in range(3)]
    assert texts("one", shuffle_tags=True, variants=8) == ["one"] and texts(shuffle_tags=True, variants=8) == [""]


def test_several_captions_all_become_texts_and_the_source_comes_first() -> None:
    record = ClipRecord(Path("a"), "a", ("one", "The video shows two", "one"), edits=(CaptionEdit(prefix="x", remove_openings=True),))
    assert training_texts(record, CaptionSettings(prefix="zorp", template="{trigger}: {caption}"), 0) == ("zorp: x one", "zorp: x Two")


def test_skipping_may_be_asked_for_by_the_source_or_the_job() -> None:
    skip, train = CaptionEdit(uncaptioned="skip"), CaptionEdit()
    bare, told = ClipRecord(Path("a"), "a", edits=(skip,)), ClipRecord(Path("a"), "a", ("x",), edits=(skip,))
    assert is_left_out(bare, train) and not is_left_out(told, skip)
    assert is_left_out(ClipRecord(Path("a"), "a"), skip) and not is_left_out(ClipRecord(Path("a"), "a"), train)


# in a run -------------------------------------------------------------------------------------------------------------


def test_every_variant_is_encoded_ahead_and_a_new_seed_encodes_new_ones_only(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.clip("a.mp4", caption="a, b, c, d, e")
    setup.captions = {"shuffle_tags": True, "variants": 3}
    first = setup.prepare()
    (item,) = first.items
    assert len(item.captions) == 3 and setup.work == (1, 4)
    assert all(bytes(first.text(text)["embeds"].byte().tolist()).decode() == text for text in item.captions)
    assert setup.prepare().fingerprint == first.fingerprint and setup.work == (0, 0)
    setup.seed = 1
    other = setup.prepare()
    assert other.fingerprint != first.fingerprint
    assert setup.family.texts == [text for text in other.items[0].captions if text not in item.captions]


def drawn(captions: tuple[str, ...], dropout: float, visits: int) -> list[str]:
    """The caption of each visit of one clip."""
    job = TrainingJob.parse({"captions": {"dropout": dropout}, "schedule": {"seed": 3}})
    family = SimpleNamespace(spec=SPEC)
    objective = FlowMatching(job, family, None, None, None)  # type: ignore[arg-type]
    item = Item("c", Path("c.mp4"), captions, Bucket(), 1, 1, "k")
    return [objective._caption(Example(item, 0, 1.0, 5, epoch)) for epoch in range(visits)]


def test_a_visit_draws_one_of_the_captions_by_key() -> None:
    seen = drawn(("one", "two", "three"), 0.0, 300)
    assert seen == drawn(("one", "two", "three"), 0.0, 300)
    assert all(60 < count < 140 for count in Counter(seen).values()) and len(set(seen)) == 3
    dropped = drawn(("one", "two", "three"), 0.5, 300)
    assert 100 < dropped.count("") < 200
    assert all(text in ("", before) for text, before in zip(dropped, seen, strict=True)), "dropout moves no other draw"


# halves of characters -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are characters here")
def test_a_name_that_is_not_utf_8_is_a_caption_of_whole_characters(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.clip("plain.mp4", 5, caption=None).rename(setup.clips / os.fsdecode(b"caf\xe9.mp4"))
    store, fake = TensorCache(setup.cache), FakeFamily(setup.model)
    settings = DatasetSettings(sources=[VideoFolder(folder=str(setup.clips), captions_from="file name")])
    dataset = prepare_dataset(settings, CaptionSettings(), fake, store, FakeEncoders(), watched(setup.watcher))
    (item,) = dataset.items
    assert (item.name, item.captions) == ("caf?.mp4", ("caf?",)) and fake.texts == ["", "caf?"] and item.path.is_file()
    assert any("1 captions hold what is no character" in notice for notice in setup.watcher.notices)


@pytest.mark.parametrize("kind", ["jsonl", "tar", "arrow"])
def test_captions_of_lists_and_archives_are_of_whole_characters(tmp_path: Path, kind: str) -> None:
    touch(tmp_path, "a.mp4")
    source: Source = MetadataTable(file=str(tmp_path / "metadata.jsonl"))
    expected = "half ? of one"
    if kind == "jsonl":
        (tmp_path / "metadata.jsonl").write_bytes(rb'{"file_name": "a.mp4", "caption": ["half \ud83d of one", "whole \ud83d\ude00"]}')
    elif kind == "tar":
        source = WebDataset(path=str(write_tar(tmp_path / "x.tar", {"a.mp4": b"x", "a.json": rb'{"text": "half \udc00 of one"}'})))
    else:
        pa = pytest.importorskip("pyarrow")
        texts = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())  # which Arrow does not check
        with pa.ipc.new_file(str(tmp_path / "data.arrow"), (table := pa.table({"video": ["a.mp4"], "caption": texts})).schema) as writer:
            writer.write_table(table)
        source, expected = HubDataset(source=str(tmp_path)), "café"  # bytes are read as those of a caption file
    found = scan([source], tmp_path / "cache")
    assert found.clips[0].captions == ((expected, "whole 😀") if kind == "jsonl" else (expected,))
    assert any("1 captions hold what is no character" in notice.found for notice in found.notices) == (kind != "arrow")


@pytest.mark.parametrize("where", ["captions.prefix", "captions.suffix", "samples.prompts.0.prompt", "dataset.sources.0.caption"])
def test_a_setting_with_half_a_character_is_refused(where: str) -> None:
    part, _, name = where.partition(".")
    *_, name = name.rpartition(".")
    value = {name: "\ud800"}
    data = {"captions": value, "samples": {"prompts": [value]}, "dataset": {"sources": [{"kind": "folder", **value}]}}[part]
    with pytest.raises(UserError, match=f"{where}: .*half of a character"):
        TrainingJob.parse({part: data})
    job = TrainingJob.parse({"dataset": {"sources": [{"kind": "folder", "folder": "/caf\udce9"}]}})  # a path may be any bytes
    assert job.dataset.sources[0].location == "/caf\udce9"
