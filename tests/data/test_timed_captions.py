"""Captions of spans of time: how they are read, which window is trained with which, and that others stay as they were."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.data import test_seen_texts
from tests.data.synthetic import SPEC, FakeFamily, Watcher, watched
from tests.data.test_prepare import Setup
from trainer.caption_settings import CaptionEdit, CaptionSettings
from trainer.data.captions import training_texts, whole_texts
from trainer.data.content import key_of
from trainer.data.dataset import Item
from trainer.data.preview import preview_dataset
from trainer.data.sampler import Example, Sampler
from trainer.data.sources.record import ClipRecord
from trainer.data.timed_captions import timed
from trainer.job import Bucket, DatasetSettings, TrainingJob, VideoFolder, WindowSettings
from trainer.objectives.flow_matching import FlowMatching
from trainer.preview_settings import PreviewSettings

TIMED = "a man in a room\n[0-1s] he stands up\n[1-2s] he walks off"
PLAIN = [
    "a red, big  house", "", "a cat [on a mat]", "photo [3], [1, 2] and [16:9]", "[a-b] and [s]", "a [2-3 people] crowd",
    "from 0-2.5s he runs", "(0-2s) a man", "[2024] a year", "an array x[0] - y[1]s",
]  # fmt: skip
FAULTS = {  # what seems to be a span -> the fault
    "[2-1s]": "does not end after it begins", "[1-1s]": "does not end after it begins", "[0-2.5]": "no span", "[1-3]": "no span",
    "[0:00-0:03]": "no span", "[0-2,5s]": "no span", "[0-30 frames]": "no span", "[2.5s-]": "no span", "[1s-end]": "no span",
    "[0-2 sec]": "no span", "[0-2s a man": "no span",
}  # fmt: skip


# reading --------------------------------------------------------------------------------------------------------------


def spans_of(caption: str) -> list[tuple[float, float, str]]:
    return [(float(span.start), float(span.end), span.text) for span in timed(caption).spans]


@pytest.mark.parametrize("caption", [TIMED, TIMED.replace("\n", " "), "a man in a room[0s - 1.0 S]he stands up [ 1–2 s ]  he walks\noff"])
def test_marks_part_the_text_whatever_stands_around_them(caption: str) -> None:
    found = timed(caption)
    assert found.text == "a man in a room" and not found.faults
    assert spans_of(caption) == [(0, 1, "he stands up"), (1, 2, "he walks off")]
    assert spans_of("[0.25-2.5s] a [1-12s] b") == [(0.25, 2.5, "a"), (1, 12, "b")] and timed("[0.25-2.5s] a").text == ""


@pytest.mark.parametrize("dash", ["\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2212"])
def test_every_dash_parts_the_times(dash: str) -> None:
    assert spans_of(f"[0.5{dash}2s] a") == [(0.5, 2, "a")]


@pytest.mark.parametrize("mark", ["[.5-2s]", "[0-.5s]", "[-2.5s]", "[\u22122.5s]", f"[0-{'9' * 5000}s]", f"[0.{'1' * 5000}-2s]"])
def test_times_that_are_no_plain_numbers_stay_text_and_are_told(mark: str) -> None:
    found = timed(f"a man {mark} runs")
    assert found.text == f"a man {mark} runs" and not found.spans
    assert found.faults == (f"'{mark}' is no span of time, and stays in the caption as text: spans are in seconds, such as [0-2.5s]",)


@pytest.mark.parametrize("caption", PLAIN)
def test_captions_that_merely_hold_brackets_are_themselves(caption: str) -> None:
    found = timed(caption)
    assert (found.text, found.spans, found.faults, found.texts, found.whole) == (caption, (), (), [caption], caption)


@pytest.mark.parametrize("mark", FAULTS)
def test_what_was_perhaps_meant_as_a_span_stays_text_and_is_told(mark: str) -> None:
    found = timed(f"a man {mark} runs [3-4s] he falls")
    assert found.text == f"a man {mark} runs" and [span.text for span in found.spans] == ["he falls"]
    (fault,) = found.faults
    assert mark.removesuffix(" a man") in fault and FAULTS[mark] in fault and "stays in the caption as text" in fault


def test_a_span_without_text_is_told_and_leaves_its_time_to_the_clip() -> None:
    found = timed("all [0-1s] [1-2s] one")
    assert [span.text for span in found.spans] == ["one"] and found.text == "all"
    assert found.faults == ("'[0-1s]' has no text behind it, and captions nothing",)


# which span -----------------------------------------------------------------------------------------------------------


def said(caption: str, first: int, last: int, end: float = 4.0) -> str:
    """The text for frames `first` to `last` of a clip at 10 frames/s."""
    found = timed(caption)
    span = found.at([Fraction(n, 10) for n in range(first, last + 1)], Fraction(end))
    return span.text if span else found.text


def test_the_span_that_covers_most_is_taken() -> None:
    caption = "all [0-1s] a [1-2s] b [2-4s] c"
    assert [said(caption, first, first + 9) for first in (0, 4, 6, 10, 14, 16, 30)] == ["a", "a", "b", "b", "b", "c", "c"]
    assert said(caption, 5, 14) == "a", "of equals the one written first"
    assert said("all [1-2s] b [0-1s] a", 5, 14) == "b"
    assert said("[0-3s] long [1-2s] short", 10, 19) == "long" and said("[1-2s] short [0-3s] long", 10, 19) == "short"
    assert said("all [0-0.4s] a [0.4-0.7s] b [0.7-1s] c [1-4s] d", 0, 9) == "a", "several may share a section"


def test_time_that_no_span_covers_is_the_clips() -> None:
    caption = "all [1-2s] b"
    assert [said(caption, first, first + 9) for first in (0, 4, 5, 10, 15, 16, 20)] == ["all", "all", "b", "b", "b", "all", "all"]
    assert said("[1-2s] b", 20, 29) == ""
    assert said(caption, 10, 10) == "b" and said(caption, 20, 20) == "all", "a span ends just before its second time"


def test_who_sees_all_spans_is_told_of_the_clip() -> None:
    caption = "all [0-2s] a [2-3.9s] b [7-9s] never"
    assert said(caption, 0, 39, 4.0) == said(caption, 0, 32) == "all" and said(caption, 0, 28) == "a" and said(caption, 12, 39) == "b"
    assert said("[0-2s] a [2-4s] b", 0, 39) == "a", "unless nothing is said of it"
    assert said("all [0-4s] a", 0, 39) == "a" and said("all [0-1s] a [1-4s] b", 12, 39) == "b"


# texts ----------------------------------------------------------------------------------------------------------------


def record(*captions: str, **edit: object) -> ClipRecord:
    return ClipRecord(Path("a"), "a", captions, edits=(CaptionEdit.model_validate(edit),))


def test_each_text_is_edited_by_itself() -> None:
    clip, settings = record("a room [0-1s] The video shows a, b, c", remove_openings=True), CaptionSettings(prefix="zorp", suffix=", 4k")
    assert training_texts(clip, settings, 0) == ("zorp a room, 4k", "zorp A, b, c, 4k")
    assert whole_texts(clip, settings, 0) == ("zorp a room, 4k",)
    assert whole_texts(record("[0-1s] one [1-2s] two"), CaptionSettings(), 0) == ("one two",)
    shuffled = training_texts(record("[0-1s] a, b, c, d"), CaptionSettings(shuffle_tags=True, variants=4), 0)
    assert len(shuffled) > 1 and {tuple(sorted(text.split(", "))) for text in shuffled} == {("a", "b", "c", "d")}


def captioned(setup: Setup) -> dict[str, list[tuple[str, ...]]]:
    """What each window of each clip is trained with."""
    return {item.name: [item.captions_of(window) for window in range(item.windows)] for item in setup.prepare().items}


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """A clip of 33 frames in two seconds and a bit, with captions of two spans, and one without."""
    made = Setup(tmp_path)
    made.clip("a.mp4", 33, caption=TIMED)
    made.clip("b.mp4", 33, caption="a cat [on a mat]")
    made.captions = {"prefix": "zorp"}
    return made


ALL, UP, OFF = ("zorp a man in a room",), ("zorp he stands up",), ("zorp he walks off",)


def test_a_clip_trained_as_one_has_the_text_of_the_whole(setup: Setup) -> None:
    assert captioned(setup) == {"a.mp4": [UP], "b.mp4": [("zorp a cat [on a mat]",)]}  # 17 frames of the default size
    setup.settings = {"buckets": ["29x48x64"]}
    dataset = setup.prepare()
    assert [item.captions_of(0) for item in dataset.items] == [ALL, ("zorp a cat [on a mat]",)]
    assert sorted(setup.family.texts) == sorted([*ALL]), "others were encoded before"


def test_each_window_has_the_text_of_its_time(setup: Setup) -> None:
    setup.settings = {"windows": WindowSettings(size=9, stride=4)}
    windows = captioned(setup)
    assert windows["b.mp4"] == [("zorp a cat [on a mat]",)] * 7
    assert windows["a.mp4"] == [UP, UP, UP, OFF, OFF, OFF, OFF]  # from frame 0, 4, 8 …; that from 12 has 4 frames of one, 5 of the other
    assert set(setup.family.texts) == {"", *UP, *OFF, "zorp a cat [on a mat]"}
    again = setup.prepare()
    assert setup.work == (0, 0)
    setup.clip("a.mp4", 33, caption=TIMED.replace("walks", "runs"))
    changed = setup.prepare()
    assert setup.work == (0, 1) and setup.family.texts == ["zorp he runs off"] and changed.fingerprint != again.fingerprint


def test_moved_spans_are_another_dataset_of_the_same_texts(setup: Setup) -> None:
    setup.settings = {"windows": WindowSettings(size=9, stride=4)}
    before = setup.prepare().fingerprint
    setup.clip("a.mp4", 33, caption=TIMED.replace("1s]", "1.5s]").replace("[1-", "[1.5-"))
    assert setup.prepare().fingerprint != before and setup.work == (0, 0)


def test_lines_are_captions_of_which_those_with_a_word_on_the_window_are_drawn(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.clip("a.mp4", 33, caption="[0-1s] up\na man [1-2s] off\nalways")
    settings = DatasetSettings(
        sources=[VideoFolder(folder=str(setup.clips), captions_from="sidecar lines")], windows=WindowSettings(size=9, stride=8)
    )
    family: Any = FakeFamily(setup.model)
    preview = preview_dataset(settings, CaptionSettings(), family, setup.cache, watched(Watcher()), PreviewSettings())
    (item,) = preview.items
    assert [item.captions_of(window) for window in range(item.windows)] == [
        ("up", "a man", "always"), ("up", "a man", "always"), ("off", "always"), ("off", "always"),
    ]  # fmt: skip
    assert set(preview.clips[0].texts) == {"up", "a man", "off", "always"}


def test_random_variants_have_the_texts_of_the_times_they_show(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.clip("a.mp4", 25, caption="[0-0.8s] early [0.8-3s] late")  # frames 0 to 12, and the others
    setup.settings = {"buckets": ["5x48x64"], "frame_sample_strategy": "random", "variants": 12, "temporal_augmentation": "reverse"}
    dataset = setup.prepare()
    (item,) = dataset.items
    texts = {key: item.variant(number).captions_of(0) for number, key in enumerate(item.keys)}
    assert set(texts.values()) == {("early",), ("late",)} and len(texts) > 6
    for key, (text,) in texts.items():
        levels = dataset.cache.read("clips", key, "00000.")["latents"][0, :, 0, 0]
        middle = (levels.mean().item() - 30) / 8  # the frame in the middle of the five, by its grey
        assert text == ("early" if middle < 12.5 else "late"), (key, middle)
    plan = Sampler(dataset, 1, 1, 0).plan
    seen = {(example.item.key, example.item.captions_of(0)) for step in range(1, 60) for example in plan(step).examples}
    assert len(seen) > 6 and all(texts[key] == told for key, told in seen)


def test_texts_that_see_pictures_are_encoded_with_those_of_their_windows(tmp_path: Path) -> None:
    setup = test_seen_texts.Setup(tmp_path)
    setup.clip("a.mp4", 33, caption=TIMED)
    setup.settings = {"windows": WindowSettings(size=9, stride=24)}
    dataset = setup.prepare()
    (item,) = dataset.items
    assert setup.family.texts == ["", "he stands up", "", "he walks off"] and len(setup.firsts) == 2
    for window in range(2):
        dataset.text(item.captions_of(window)[0], dataset.picture(item, window))
    with pytest.raises(KeyError):
        dataset.text(item.captions_of(1)[0], dataset.picture(item, 0))


# unaffected -----------------------------------------------------------------------------------------------------------


def test_other_captions_leave_items_and_fingerprint_as_they_were(setup: Setup) -> None:
    setup.clip("a.mp4", 33, caption="a [2-1s] thing")
    dataset = setup.prepare()
    assert all(item.timed == () and item.captions == item.texts for item in dataset.items)
    told = [[item.key, [dataset.texts.key(text) for text in item.captions], 1, 1.0] for item in dataset.items]
    assert dataset.fingerprint == key_of(items=told)


def test_a_step_draws_from_the_texts_of_its_window_and_still_drops_them() -> None:
    job = TrainingJob.parse({"captions": {"dropout": 0.3}, "schedule": {"seed": 3}})
    objective = FlowMatching(job, SimpleNamespace(spec=SPEC), None, None, None)  # type: ignore[arg-type]
    item = Item("c", Path("c"), ("all",), Bucket(), 2, 1, "k", timed=((("a", "b"), ("c",)),))
    drawn = [{objective._caption(Example(item, window, 1.0, 5, epoch)) for epoch in range(60)} for window in (0, 1)]
    assert drawn == [{"", "a", "b"}, {"", "c"}]


# report ---------------------------------------------------------------------------------------------------------------


def test_spans_are_counted_and_what_cannot_be_used_is_told(setup: Setup) -> None:
    setup.clip("c.mp4", 33, caption="a thing [0-1s] one [9-12s] late [0-2.5] x [4-3s] y")
    setup.settings = {"windows": WindowSettings(size=9, stride=8)}
    report = setup.prepare().report
    assert {clip.name: (clip.spans, clip.unused_spans) for clip in report.kept} == {
        "a.mp4": (2, ()), "b.mp4": (0, ()), "c.mp4": (2, ("[9-12s]",)),
    }  # fmt: skip
    assert "captions of spans of time: 4 in 2 clips, 1 of them in no example" in report.totals()
    assert any("2 captioned spans, of which no example has [9-12s]" in line for line in report.lines())
    told = [notice for notice in setup.watcher.notices if "'[0-2.5]'" in notice]
    assert len(told) == 1 and told[0].startswith(str(setup.clips / "c.mp4")) and "'[4-3s]' does not end after it begins" in told[0]
    assert any("1 captioned spans of 1 clips caption no example, such as [9-12s] of c.mp4" in notice for notice in setup.watcher.notices)
    assert json.loads(json.dumps(report.as_dict()))["clips"][2]["spans"] == 2
    assert report.texts.texts == 2 + 1 + 2 and report.texts.most_variants == 2
