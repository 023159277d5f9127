"""Training from FastVideo's Parquet: our own export trains as the clips do; a stranger's file is checked against the model."""

import shutil
from dataclasses import replace

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.data.test_parquet import read_all, write_rows
from tests.tiny.wan import write_tiny_wan
from trainer.components import Components
from trainer.compute import Compute
from trainer.data.cache import TensorCache
from trainer.data.opening import open_dataset
from trainer.data.parquet.export import export_dataset
from trainer.data.parquet.opening import open_parquet
from trainer.data.parquet.sample import Sample, to_row
from trainer.data.parquet.write import write_samples
from trainer.data.prepare import prepare_dataset
from trainer.data.sources.inspect import complaint, state
from trainer.errors import Interrupted, UserError
from trainer.events import EventLog, Silent
from trainer.job import CaptionEdit, CaptionSettings, ComputeSettings, DatasetSettings, ModelSettings, TrainingJob
from trainer.models import open_model
from trainer.parquet_export import save_parquet
from trainer.run import Places, run
from trainer.source_settings import ParquetFolder

SIZE = {"frames": 9, "height": 32, "width": 32}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_wan(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    for number, frames in enumerate((9, 11)):
        with av.open(str(folder / f"clip{number}.mp4"), "w") as container:
            stream = container.add_stream("libx264", rate=16, options={"crf": "10"})
            stream.width = stream.height = 64
            for shade in np.linspace(0, 255, frames):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((64, 64, 3), shade, np.uint8), format="rgb24")))
            container.mux(stream.encode())
        (folder / f"clip{number}.txt").write_text(f"a clip number {number}", encoding="utf-8")
    return folder


class Hears(Silent):
    """Keeps notices, and cancels at one of a type."""

    def __init__(self, cancel=""):
        self.notices, self.cancel, self.cancelled = [], cancel, False

    def emit(self, event):
        if event.type == "notice":
            self.notices.append(f"{event.where}: {event.text}")
        self.cancelled |= event.type == self.cancel

    def request(self):
        return "cancel" if self.cancelled else None


class Opens:
    """Opens datasets for one model, all in one cache, and remembers what was told."""

    def __init__(self, model, cache):
        self.family, self.cache, self.heard = open_model(model), cache, Hears()

    def components(self, listener=None):
        return Components(self.family, Compute(ComputeSettings(device="cpu")), EventLog(listener or Silent()))

    def clips(self, folder, **settings):
        dataset = DatasetSettings(sources=[{"kind": "folder", "folder": str(folder)}], buckets=[SIZE], **settings)
        return prepare_dataset(dataset, CaptionSettings(), self.family, TensorCache(self.cache), self.components(), EventLog(Silent()))

    def parquet(self, folder, text_encoder=True, listener=None, captions=None, **settings):
        self.heard = listener or Hears()
        source = ParquetFolder(**{"folder": str(folder), "encoder": str(self.family.files.root), **settings})
        encoders = self.components() if text_encoder else None
        return open_parquet(source, self.family, TensorCache(self.cache), encoders, EventLog(self.heard), captions=captions)


@pytest.fixture
def opens(model, tmp_path):
    return Opens(model, tmp_path / "cache")


def sample(number=0, latent=(16, 3, 4, 4), text=(6, 16), caption="a", **parts):
    source = np.random.default_rng(number)
    return Sample(f"clip{number}", caption, source.standard_normal(text), source.standard_normal(latent), **parts)


def test_an_export_holds_latents_and_texts_as_they_are_cached(opens, clips, tmp_path):
    dataset = opens.clips(clips)
    out = tmp_path / "out"
    export_dataset(dataset, out, EventLog(Silent()))
    samples, _ = read_all(out)
    assert [one.id for one in samples] == ["clip0.mp4", "clip1.mp4"]
    for item, one in zip(dataset.items, samples, strict=True):
        assert torch.equal(torch.from_numpy(one.vae_latent), dataset.latents(item)["latents"])
        assert torch.equal(torch.from_numpy(one.text_embedding), dataset.text(item.captions[0])["text"])
        assert (one.caption, one.width, one.height, one.num_frames, one.fps, one.duration_sec, one.media_type) == (
            item.captions[0], 32, 32, 3, 16.0, 9 / 16, "video",
        )  # fmt: skip
    back = opens.parquet(out)
    assert [(item.name, item.captions, item.size) for item in back.items] == [(i.name, i.captions, i.size) for i in dataset.items]
    for item, theirs in zip(dataset.items, back.items, strict=True):
        assert torch.equal(back.latents(theirs)["latents"], dataset.latents(item)["latents"])
        assert torch.equal(back.text(theirs.captions[0])["text"], dataset.text(item.captions[0])["text"])
    assert torch.equal(back.text("")["text"], dataset.text("")["text"])
    assert opens.heard.notices == []


def test_windows_become_samples_and_captions_are_written_once(opens, clips, tmp_path):
    dataset = opens.clips(clips, windows={"size": 5})
    export_dataset(dataset, tmp_path / "windows", EventLog(Silent()))
    samples, _ = read_all(tmp_path / "windows")
    assert [one.id for one in samples] == [f"clip{clip}.mp4#{window}" for clip in range(2) for window in range(5)]
    assert torch.equal(torch.from_numpy(samples[7].vae_latent), dataset.latents(dataset.items[1], 2)["latents"])
    export_dataset(dataset, tmp_path / "texts", EventLog(Silent()), "text_only")
    texts, _ = read_all(tmp_path / "texts")
    assert [(one.caption, one.vae_latent) for one in texts] == [("a clip number 0", None), ("a clip number 1", None)]
    with pytest.raises(UserError, match="has text only, no latents, and 1 more"):
        opens.parquet(tmp_path / "texts")


def test_a_cancelled_export_goes_on(opens, clips, tmp_path):
    dataset, out = opens.clips(clips, windows={"size": 5}), tmp_path / "out"
    with pytest.raises(Interrupted):
        export_dataset(dataset, out, EventLog(Hears("progress")))
    assert not list(out.rglob("*.parquet"))
    (file,) = export_dataset(dataset, out, EventLog(Silent()))
    (whole,) = export_dataset(dataset, tmp_path / "whole", EventLog(Silent()))
    assert file.read_bytes() == whole.read_bytes()


def job(model, *sources, **parts):
    return TrainingJob.parse(
        {
            "model": {"source": str(model)}, "dataset": {"sources": list(sources), "buckets": [SIZE]},
            "captions": {"dropout": 0.4}, "adapter": {"rank": 4}, "schedule": {"steps": 2, "accumulation": 2, "seed": 7},
            "samples": {"every": 2, "steps": 1, "prompts": [{"prompt": "a prompt of no clip"}]}, "compute": {"device": "cpu"},
            "output": {"name": "run"}, **parts,
        }
    )  # fmt: skip


def folder(clips, **settings):
    return {"kind": "folder", "folder": str(clips), **settings}


def parquet(out, **settings):
    return {"kind": "parquet", "folder": str(out), **settings}


def test_a_run_from_our_parquet_has_the_losses_of_the_run_from_clips(model, clips, opens, tmp_path):
    from_clips = run(job(model, folder(clips)), Places.under(tmp_path / "clips"))
    export_dataset(opens.clips(clips), tmp_path / "out", EventLog(Silent()))
    parquet_job, places, heard = job(model, parquet(tmp_path / "out", encoder=str(model))), Places.under(tmp_path / "parquet"), Hears()
    from_parquet = run(parquet_job, places, heard)
    assert from_parquet.losses == from_clips.losses and len(from_parquet.losses) == 2
    assert len(from_parquet.samples) == 1 and from_parquet.lora.is_file()
    assert "dataset.buckets: is not used: the clips in Parquet files are cut and encoded already." in heard.notices
    assert "clip0.mp4: 9 frames at 16 frames/s -> 9 at 16 -> 9x32x32" in "\n".join(
        path.read_text() for path in from_parquet.folder.glob("*.txt")
    )
    assert run(parquet_job, places).run_id == from_parquet.run_id, "the fingerprint is the same again"


def test_a_run_from_clips_and_parquet_trains_on_both(model, clips, opens, tmp_path):
    """Half of the clips as Parquet, the other half as files, in one run."""
    first, second = tmp_path / "first", tmp_path / "second"
    for number, place in enumerate((first, second)):
        place.mkdir()
        for end in ("mp4", "txt"):
            shutil.copy(clips / f"clip{number}.{end}", place)
    export_dataset(opens.clips(first), tmp_path / "out", EventLog(Silent()))
    mixed = job(model, parquet(tmp_path / "out", repeats=2, weight=3), folder(second), samples={"every": 0})
    result = run(mixed, Places.under(tmp_path / "mixed"))
    (report,) = result.folder.glob("dataset.txt")
    assert "2 clips kept" in report.read_text() and "is not used" not in report.read_text()
    log = EventLog(Silent())
    data = open_dataset(mixed.dataset, mixed.captions, opens.family, TensorCache(opens.cache), opens.components(), log)
    assert [(item.name, item.repeats, item.weight) for item in data.items] == [("clip1.mp4", 1, 1), ("clip0.mp4", 2, 3)]
    whole = opens.clips(clips)
    for item, same in zip(data.items, reversed(whole.items), strict=True):
        assert torch.equal(data.latents(item)["latents"], whole.latents(same)["latents"])
        assert torch.equal(data.text(item.captions[0])["text"], whole.text(same.captions[0])["text"])
    data.add_text("a prompt")
    assert data.text("a prompt")["text"].shape[1] == 16 and data.sample_size == whole.sample_size
    with pytest.raises(KeyError):
        data.text("a text that was not added")
    rest = job(model, folder(second)).dataset
    alone = open_dataset(rest, mixed.captions, opens.family, TensorCache(opens.cache), opens.components(), log)
    assert len({data.fingerprint, alone.fingerprint, whole.fingerprint}) == 3


def test_save_parquet_encodes_what_is_missing_and_writes(model, clips, tmp_path):
    def save(out, **settings):
        heard = Hears()
        data = DatasetSettings(sources=[folder(clips, **settings)], buckets=[SIZE])
        files = save_parquet(
            ModelSettings(source=str(model)), data, out, Places.under(tmp_path), ComputeSettings(device="cpu"), "t2v", heard
        )
        return files, heard.notices

    (file,), notices = save(tmp_path / "out")
    assert pq.read_metadata(file).num_rows == 2 and notices == []
    edit = {"shuffle_tags": True, "variants": 3, "prefix": "one, two, three"}
    (file,), notices = save(tmp_path / "variants", repeats=2, caption_edits=[{"template": "{caption}, b, c"}, edit])
    assert pq.read_metadata(file).num_rows == 2 and "2 clips have several captions" in notices[1] and "Repeats are not" in notices[0]
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").touch()
    with pytest.raises(UserError, match="is not empty"):
        save_parquet(ModelSettings(), DatasetSettings(), tmp_path / "full", Places.under(tmp_path), ComputeSettings())


def test_what_rows_cannot_say_is_told(opens, clips, tmp_path):
    def told(kind, heavier=0.0):
        heard = Hears()
        dataset = opens.clips(clips, temporal_augmentation="reverse", variants=4)
        items = [replace(item, weight=1 + number * heavier) for number, item in enumerate(dataset.items)]
        export_dataset(replace(dataset, items=tuple(items)), tmp_path / f"{kind}{heavier}", EventLog(heard), kind)
        return [text.partition(": ")[2] for text in heard.notices]

    variants = "2 clips have several variants of their frames; a row holds one, which is the first."
    assert told("t2v") == [variants]
    assert told("t2v", heavier=0.5) == ["Loss weights are not written (1, 1.5): every row counts the same.", variants]
    assert told("text_only", heavier=0.5) == []


def test_every_bad_source_of_a_mixed_dataset_is_named_by_its_place(model, clips, opens, tmp_path):
    def problems(*sources):
        with pytest.raises(UserError) as caught:
            run(job(model, *sources), Places.under(tmp_path))
        return [problem.where for problem in caught.value.problems]

    assert problems(parquet(" "), folder(clips), parquet("")) == ["dataset.sources.0.folder", "dataset.sources.2.folder"]
    export_dataset(opens.clips(clips), tmp_path / "out", EventLog(Silent()))
    assert problems(parquet(tmp_path / "out"), folder("gone")) == ["dataset.sources.1.folder"]


def test_captions_of_parquet_are_not_edited_but_may_be_demanded(opens, tmp_path):
    write_samples([sample(0, caption=""), sample(1, caption="b")], "t2v", tmp_path / "out", "s")
    kept = opens.parquet(tmp_path / "out", text_encoder=False, captions=CaptionSettings(uncaptioned="skip"))
    assert [item.name for item in kept.items] == ["clip1"]
    assert [clip.skipped for clip in kept.report.skipped] == ["has no caption, and such clips are to be skipped"]
    with pytest.raises(UserError, match=r"dataset\.sources\.0: the captions in '.*' are encoded already"):
        DatasetSettings(sources=[parquet(tmp_path / "out")]).with_caption_edit(CaptionEdit(prefix="zz"))


def test_what_a_parquet_node_complains_of(opens, tmp_path):
    write_samples([sample(0)], "t2v", tmp_path / "out", "s")
    pq.write_table(pa.table({"video": [b"x"], "caption": ["a"]}), tmp_path / "videos.parquet")
    for place, told in (
        ("out", ""), ("none", "does not exist"), ("videos.parquet", "its columns are video, caption. Hub Dataset reads"),
    ):  # fmt: skip
        found = complaint(ParquetFolder(folder=str(tmp_path / place)), tmp_path / "cache", False)
        assert told in found and bool(found) == bool(told)
    before = state(ParquetFolder(folder=str(tmp_path / "out")))
    write_samples([sample(1)], "t2v", tmp_path / "out/more", "s")
    assert state(ParquetFolder(folder=str(tmp_path / "out"))) != before


def test_rows_that_do_not_fit_are_told_and_the_others_trained(opens, tmp_path):
    wrong = {
        "latents have 4 channels, and this model's have 16": sample(1, latent=(4, 3, 4, 4)),
        "latents are of 40x32 px, and this model takes multiples of 16": sample(2, latent=(16, 3, 5, 4)),
        "the text embedding has 8 channels, and this model's have 16": sample(3, text=(6, 8)),
        "the text embedding has 99 tokens, and this model reads 48": sample(4, text=(99, 16)),
        "latents of shape [16, 600, 4, 4] are of no size that can be trained": sample(5, latent=(16, 600, 4, 4)),
    }
    rows = [to_row(one, "t2v") for one in [sample(0), *wrong.values()]]
    rows[0]["caption"] = None
    image = to_row(sample(6, latent=(16, 1, 4, 4), text=(6, 16), caption="b", file_name="b.png"), "t2v")
    image["vae_latent_shape"], image["text_embedding_shape"] = [16, 4, 4], [1, 6, 16]  # as [C, H, W] and [1, L, D]
    poisoned = to_row(sample(7), "t2v")
    poisoned["vae_latent_bytes"] = b"\xff" * len(poisoned["vae_latent_bytes"])
    file = write_rows(tmp_path / "their/combined_parquet_dataset/worker_0/data_chunk_0.parquet", [*rows, image, poisoned])
    dataset = opens.parquet(tmp_path / "their", encoder=str(opens.family.files.root))
    assert [(item.name, item.captions, str(item.size)) for item in dataset.items] == [
        ("clip0", ("",), "9x32x32"),
        ("b.png", ("b",), "1x32x32"),
    ]
    assert dataset.latents(dataset.items[1])["latents"].shape == (16, 1, 4, 4) and dataset.text("b")["text"].shape == (6, 16)
    reasons = {clip.name: clip.skipped for clip in dataset.report.skipped}
    expected = [*wrong, "holds values that are not finite"]
    assert sorted(reasons.values()) == sorted(expected)
    assert reasons["data_chunk_0.parquet row 3"] == "the text embedding has 8 channels, and this model's have 16"
    assert f"{file}, row 7: skipped: holds values that are not finite" in opens.heard.notices
    with pytest.raises(UserError, match=r"row 0: latents have 4 channels, and this model's have 16, and 1 more") as raised:
        opens.parquet(write_rows(tmp_path / "bad.parquet", [rows[1], rows[1]]))
    assert len(raised.value.problems) == 2


def test_texts_of_another_encoder_are_noticed(opens, tmp_path):
    write_samples([sample(0, caption="a"), sample(1, caption="a")], "t2v", tmp_path / "out", "s")
    opens.parquet(tmp_path / "out")
    told = "\n".join(opens.heard.notices)
    assert "another embedding than the file holds" in told and "1 rows have the caption of another row" in told


def test_the_declared_encoder_is_compared_with_the_model(opens, tmp_path):
    write_samples([sample(0, caption="")], "t2v", tmp_path / "out", "s")

    def told(encoder):
        opens.parquet(tmp_path / "out", encoder=encoder)
        return "\n".join(opens.heard.notices)

    assert told(str(opens.family.files.root)) == ""
    assert "not declared" in told("")
    assert "cannot be checked" in told("someone/other-model")
    assert told(f"someone/{opens.family.files.root.name}") == ""
    same = write_tiny_wan(tmp_path / "same")
    assert told(str(same)) == ""
    assert "files of vae, text_encoder in" in told(str(write_tiny_wan(tmp_path / "other", seed=1)))
    with pytest.raises(UserError, match="text width 32"):
        told(str(write_tiny_wan(tmp_path / "wide", text_dim=32)))


def test_the_empty_caption_without_a_text_encoder_is_zeros(opens, tmp_path):
    write_samples([sample(0)], "t2v", tmp_path / "out", "s")
    dataset = opens.parquet(tmp_path / "out", text_encoder=False, captions=CaptionSettings(prefix="trigger", suffix="."))
    assert torch.equal(dataset.text("")["text"], torch.zeros(48, 16))
    assert any("as zeros, as FastVideo does" in text for text in opens.heard.notices)
    assert [text.partition(": ")[0] for text in opens.heard.notices if "is not applied" in text] == ["captions.prefix", "captions.suffix"]
    dataset.add_text("")
    dataset.add_text("a")
    with pytest.raises(UserError, match="no text encoder"):
        dataset.add_text("a prompt")
    with pytest.raises(KeyError):
        dataset.text("a prompt")
    assert dataset.fingerprint != opens.parquet(tmp_path / "out").fingerprint, "the empty caption is another one"


def test_the_fingerprint_follows_contents_only(opens, tmp_path):
    samples = [sample(number, caption=f"{number}") for number in range(3)]
    write_samples(samples, "t2v", tmp_path / "out", "s")
    first = opens.parquet(tmp_path / "out", text_encoder=False).fingerprint
    moved = tmp_path / "moved" / "deep"
    for number, one in enumerate(samples):
        write_rows(moved / f"{number}.parquet", [to_row(one, "t2v")])
    assert opens.parquet(tmp_path / "moved", text_encoder=False).fingerprint == first
    assert opens.parquet(tmp_path / "moved", text_encoder=False, repeats=2).fingerprint != first
    write_rows(moved / "2.parquet", [to_row(sample(2, caption="other"), "t2v")])
    assert opens.parquet(tmp_path / "moved", text_encoder=False).fingerprint != first


def test_files_are_read_once_and_a_changed_file_is_an_error(opens, tmp_path, monkeypatch):
    (file,) = write_samples([sample(0)], "t2v", tmp_path / "out", "s")
    dataset = opens.parquet(tmp_path / "out", text_encoder=False)
    monkeypatch.setattr("trainer.data.parquet.scan.file_samples", None)
    assert opens.parquet(tmp_path / "out", text_encoder=False).fingerprint == dataset.fingerprint
    monkeypatch.undo()
    write_rows(file, [to_row(sample(0, latent=(16, 1, 4, 4)), "t2v")])
    with pytest.raises(UserError, match=r"data_chunk_0.parquet: changed since the run began"):
        dataset.latents(dataset.items[0])
    file.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        dataset.text("a")


def test_a_file_of_one_large_row_group_is_read_row_by_row_and_told(opens, tmp_path, monkeypatch):
    samples = [sample(number, caption=f"{number}") for number in range(5)]
    write_rows(tmp_path / "big.parquet", [to_row(one, "t2v") for one in samples])
    assert pq.read_metadata(tmp_path / "big.parquet").num_row_groups == 1
    monkeypatch.setattr("trainer.data.parquet.opening._DEAR", 4 * 16 * 3 * 16 * 5 - 1)
    dataset = opens.parquet(tmp_path / "big.parquet", text_encoder=False)
    for number in (4, 0, 2):
        latents = dataset.latents(dataset.items[number])["latents"]
        assert np.array_equal(latents.numpy(), samples[number].vae_latent.astype(np.float32))
    assert any("many rows in a row group" in text for text in opens.heard.notices)


def test_opening_stops_on_cancel_and_names_what_is_missing(opens, tmp_path):
    write_samples([sample(0)], "t2v", tmp_path / "out", "s")
    with pytest.raises(Interrupted):
        opens.parquet(tmp_path / "out", listener=Hears("phase"))
    for folder, text in ((" ", "is empty"), (tmp_path / "none", "does not exist"), (opens.family.files.root / "vae", r"no \.parquet file")):
        with pytest.raises(UserError, match=text):
            opens.parquet(folder)


def test_a_model_of_several_text_embeddings_is_refused(opens, tmp_path):
    opens.family.spec = replace(opens.family.spec, text_width=0)
    with pytest.raises(UserError, match="this model needs several"):
        opens.parquet(tmp_path)
