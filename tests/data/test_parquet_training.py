"""Training from FastVideo's Parquet: our own export trains as the clips do; a stranger's file is checked against the model."""

from dataclasses import replace

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tests.data.test_parquet import read_all, write_rows
from tests.tiny_wan import write_tiny_wan
from trainer.components import Components
from trainer.compute import Compute
from trainer.data.parquet.export import export_dataset
from trainer.data.parquet.opening import open_parquet
from trainer.data.parquet.sample import Sample, to_row
from trainer.data.parquet.write import write_samples
from trainer.data.prepare import prepare_dataset
from trainer.errors import Interrupted, UserError
from trainer.events import EventLog, Silent
from trainer.job import CaptionSettings, ComputeSettings, DatasetSettings, TrainingJob
from trainer.models import open_model
from trainer.run import Places, run

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
        dataset = DatasetSettings(folders=[{"folder": str(folder)}], buckets=[SIZE], **settings)
        return prepare_dataset(dataset, CaptionSettings(), self.family, self.cache, self.components(), EventLog(Silent()))

    def parquet(self, folder, text_encoder=True, listener=None, **settings):
        self.heard = listener or Hears()
        settings = {"encoder": str(self.family.folder), **settings}
        encoders = self.components() if text_encoder else None
        return open_parquet(str(folder), self.family, self.cache, encoders, EventLog(self.heard), **settings)


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
        assert torch.equal(torch.from_numpy(one.text_embedding), dataset.text(item.caption)["text"])
        assert (one.caption, one.width, one.height, one.num_frames, one.fps, one.duration_sec, one.media_type) == (
            item.caption, 32, 32, 3, 16.0, 9 / 16, "video",
        )  # fmt: skip
    back = opens.parquet(out)
    assert [(item.name, item.caption, item.size) for item in back.items] == [(i.name, i.caption, i.size) for i in dataset.items]
    for item, theirs in zip(dataset.items, back.items, strict=True):
        assert torch.equal(back.latents(theirs)["latents"], dataset.latents(item)["latents"])
        assert torch.equal(back.text(theirs.caption)["text"], dataset.text(item.caption)["text"])
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


def test_a_run_from_our_parquet_has_the_losses_of_the_run_from_clips(model, clips, opens, tmp_path, monkeypatch):
    """The whole of run(), with the one call that a Parquet source will make in place of prepare_dataset."""
    job = TrainingJob.parse(
        {
            "model": {"source": str(model)}, "dataset": {"folders": [{"folder": str(clips)}], "buckets": [SIZE]},
            "captions": {"dropout": 0.4}, "adapter": {"rank": 4}, "schedule": {"steps": 2, "accumulation": 2, "seed": 7},
            "samples": {"every": 2, "steps": 1, "prompts": [{"prompt": "a prompt of no clip"}]}, "compute": {"device": "cpu"},
            "output": {"name": "run"},
        }
    )  # fmt: skip
    from_clips = run(job, Places.under(tmp_path / "clips"))
    export_dataset(opens.clips(clips), tmp_path / "out", EventLog(Silent()))

    def prepare(dataset, captions, family, cache, encoders, log):
        return open_parquet(str(tmp_path / "out"), family, cache, encoders, log, encoder=str(model))

    monkeypatch.setattr("trainer.data.prepare.prepare_dataset", prepare)
    places = Places.under(tmp_path / "parquet")
    from_parquet = run(job, places)
    assert from_parquet.losses == from_clips.losses and len(from_parquet.losses) == 2
    assert len(from_parquet.samples) == 1 and from_parquet.lora.is_file()
    assert "clip0.mp4: 9 frames at 16 frames/s -> 9 at 16 -> 9x32x32" in "\n".join(
        path.read_text() for path in from_parquet.folder.glob("*.txt")
    )
    assert run(job, places).run_id == from_parquet.run_id, "the fingerprint is the same again"


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
    dataset = opens.parquet(tmp_path / "their", encoder=str(opens.family.folder))
    assert [(item.name, item.caption, str(item.size)) for item in dataset.items] == [("clip0", "", "9x32x32"), ("b.png", "b", "1x32x32")]
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

    assert told(str(opens.family.folder)) == ""
    assert "not declared" in told("")
    assert "cannot be checked" in told("someone/other-model")
    assert told(f"someone/{opens.family.folder.name}") == ""
    same = write_tiny_wan(tmp_path / "same")
    assert told(str(same)) == ""
    assert "files of vae, text_encoder in" in told(str(write_tiny_wan(tmp_path / "other", seed=1)))
    config = same / "transformer/config.json"
    config.write_text(config.read_text().replace('"text_dim": 16', '"text_dim": 32'))
    with pytest.raises(UserError, match="text width 32"):
        told(str(same))


def test_the_empty_caption_without_a_text_encoder_is_zeros(opens, tmp_path):
    write_samples([sample(0)], "t2v", tmp_path / "out", "s")
    dataset = opens.parquet(tmp_path / "out", text_encoder=False, prefix="trigger ")
    assert torch.equal(dataset.text("")["text"], torch.zeros(48, 16))
    assert any("as zeros, as FastVideo does" in text for text in opens.heard.notices)
    assert any("captions.prefix: 'trigger ' is not put before" in text for text in opens.heard.notices)
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
    for folder, text in ((" ", "is empty"), (tmp_path / "none", "does not exist"), (opens.family.folder / "vae", r"no \.parquet file")):
        with pytest.raises(UserError, match=text):
            opens.parquet(folder)


def test_a_model_of_several_text_embeddings_is_refused(opens, tmp_path):
    opens.family.spec = replace(opens.family.spec, text_width=0)
    with pytest.raises(UserError, match="this model needs several"):
        opens.parquet(tmp_path)
