"""FramePack: sections are packed as the facts' tables say, training feeds what the pipeline feeds, and sampling draws its videos."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.data.footage import scene
from tests.data.synthetic import Watcher, watched, write_clip
from tests.tiny.framepack import open_pipeline, sampled, write_framepack
from trainer.adapters.file import load_lora, save_lora
from trainer.adapters.weights import LoraPair, LoraWeights
from trainer.components import Components
from trainer.compute import Compute
from trainer.data.cache import TensorCache
from trainer.data.dataset import Item
from trainer.data.pictures import first_picture
from trainer.data.planning import DatasetPlan, plan_dataset
from trainer.data.prepare import prepare_dataset, trained_item
from trainer.data.sampler import Example, StepPlan
from trainer.errors import UserError
from trainer.events import Progress
from trainer.job import Bucket, CaptionSettings, ComputeSettings, DatasetSettings, ModelSettings, TrainingJob, VideoFolder, WindowSettings
from trainer.models import open_model
from trainer.models.base import ModelFamily, ModelInputs
from trainer.models.files import NoFiles
from trainer.models.framepack import Family as FramePack
from trainer.models.framepack.packing import history_of, indices_of, order_of, split_history
from trainer.objectives.base import MicroBatch
from trainer.objectives.flow_matching import FlowMatching
from trainer.run import Places, run, sample_requests
from trainer.sampling import SampleRequest, VideoSampler, start_noise
from trainer.section_prompts import section_prompts

PROMPT = "a red circle rolls over a table"


@dataclass
class Run:
    """Consecutive whole numbers, both ends included."""

    first: int
    last: int

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.last + 1))


# The tables of /work/shared/facts/trainers.md, section 2, written out.
PADDINGS = {  # sections -> paddings in the order of making, from the end of the video to its start
    1: [0],
    2: [1, 0],
    3: [2, 1, 0],
    4: [3, 2, 1, 0],
    5: [3, 2, 2, 1, 0],
    6: [3, 2, 2, 2, 1, 0],
    7: [3, 2, 2, 2, 2, 1, 0],
    8: [3, 2, 2, 2, 2, 2, 1, 0],
}
BACKWARD = {  # padding -> indices of the section, of start and post, of the history at a half and at a quarter
    0: (Run(1, 9), (0, 10), Run(11, 12), Run(13, 28)),
    1: (Run(10, 18), (0, 19), Run(20, 21), Run(22, 37)),
    2: (Run(19, 27), (0, 28), Run(29, 30), Run(31, 46)),
    3: (Run(28, 36), (0, 37), Run(38, 39), Run(40, 55)),
}
FORWARD = (Run(20, 28), (0, 19), Run(17, 18), Run(1, 16))
FUTURE = {  # sections -> for each in time the latents that come after it, nearest first; what is missing to 19 is zero
    1: [None],
    2: [Run(10, 18), None],
    3: [Run(10, 27), Run(19, 27), None],
    4: [Run(10, 28), Run(19, 36), Run(28, 36), None],
    5: [Run(10, 28), Run(19, 37), Run(28, 45), Run(37, 45), None],
    6: [Run(10, 28), Run(19, 37), Run(28, 46), Run(37, 54), Run(46, 54), None],
    7: [Run(10, 28), Run(19, 37), Run(28, 46), Run(37, 55), Run(46, 63), Run(55, 63), None],
    8: [Run(10, 28), Run(19, 37), Run(28, 46), Run(37, 55), Run(46, 64), Run(55, 72), Run(64, 72), None],
}
PAST = [  # for each section in time the latents that come before it, nearest last, behind zeros
    Run(0, 0), Run(0, 9), Run(0, 18), Run(9, 27), Run(18, 36), Run(27, 45), Run(36, 54), Run(45, 63),
]  # fmt: skip


@pytest.mark.parametrize("sections", range(1, 9))
def test_backward_indices_are_those_of_the_tables(sections: int) -> None:
    made = order_of(sections, forward=False)
    assert made == sorted(range(sections), reverse=True)
    for number, padding in zip(made, PADDINGS[sections], strict=True):
        section, clean, halved, quartered = BACKWARD[padding]
        indices = indices_of(sections, number, forward=False)
        assert (indices.section, indices.clean) == (section.numbers, clean)
        assert (indices.halved, indices.quartered) == (halved.numbers, quartered.numbers)


@pytest.mark.parametrize("sections", range(1, 9))
def test_forward_indices_are_those_of_the_table(sections: int) -> None:
    section, clean, halved, quartered = FORWARD
    assert order_of(sections, forward=True) == list(range(sections))
    for number in range(sections):
        indices = indices_of(sections, number, forward=True)
        assert (indices.section, indices.clean) == (section.numbers, clean)
        assert (indices.halved, indices.quartered) == (halved.numbers, quartered.numbers)


def numbered(sections: int) -> torch.Tensor:
    """Latents [2, T, 1, 1] that say their place in time, the start -1 so that it is not zero."""
    places = torch.arange(9 * sections + 1.0)
    places[0] = -1
    return places.view(1, -1, 1, 1).expand(2, -1, 1, 1)


@pytest.mark.parametrize("sections", range(1, 9))
def test_history_holds_the_latents_of_the_tables(sections: int) -> None:
    latents = numbered(sections)
    for number in range(sections):
        future, past = FUTURE[sections][number], PAST[number]
        after = future.numbers if future else ()
        history, made = history_of(latents, number, forward=False)
        told = [*after, *[0] * (19 - len(after))]
        assert history[0, :, 0, 0].tolist() == history[1, :, 0, 0].tolist() == told
        assert made.tolist() == [float(place > 0) for place in told]
        near, halved, quartered = split_history(history, forward=False)
        assert [part[0, :, 0, 0].tolist() for part in (near, halved, quartered)] == [told[:1], told[1:3], told[3:]]

        history, made = history_of(latents, number, forward=True)
        told = [*[0] * (19 - len(past.numbers)), *(place or -1 for place in past.numbers)]
        assert history[0, :, 0, 0].tolist() == told
        assert made.tolist() == [float(place > 0) for place in told]
        near, halved, quartered = split_history(history, forward=True)
        assert [part[0, :, 0, 0].tolist() for part in (near, halved, quartered)] == [told[18:], told[16:18], told[:16]]


def test_the_section_that_is_made_first_sees_zeros_and_the_start() -> None:
    for sections in range(1, 9):
        history, made = history_of(numbered(sections), sections - 1, forward=False)
        assert not history.any() and not made.any()
        history, made = history_of(numbered(sections), 0, forward=True)
        assert not history[:, :18].any() and (history[:, 18] == -1).all() and not made.any()


@dataclass
class World:
    """A model opened for one order, and its pipeline."""

    folder: Path
    family: ModelFamily
    order: str

    def encoded(self, frames: int, height: int = 32, width: int = 32) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        """A clip's encoding as the cache holds it, and its frames."""
        pictures = np.stack([scene(n, height, width) for n in range(frames)])
        clip, vae = torch.from_numpy(pictures), self.family.load_vae()
        own = {"first_frame": clip[0], "last_frame": clip[-1]}
        conditions = {name: own[name] for name in self.family.spec.conditions}
        seer = self.family.load_image_encoder(torch.float32)
        encoded = self.family.encode_conditions(vae, seer, conditions, (frames, height, width))
        return {**self.family.encode_video(vae, clip), **encoded}, pictures


def settings_of(folder: Path, order: str) -> ModelSettings:
    """The model with the order of sections set."""
    return ModelSettings.model_validate({"source": str(folder), "sampling_order": order})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_framepack(tmp_path_factory.mktemp("framepack") / "model")


@pytest.fixture(scope="module", params=["backward", "forward"])
def world(request: pytest.FixtureRequest, folder: Path) -> World:
    return World(folder, open_model(settings_of(folder, request.param)), request.param)


def test_training_feeds_what_the_pipeline_feeds(world: World) -> None:
    """Every argument of every call, for clips of one section to five, the pipeline made to come out with the clip's own latents."""
    family, pipeline = world.family, open_pipeline(world.folder)
    text = family.text_inputs([family.encode_text(family.load_text_encoder(torch.float32), PROMPT)])
    for sections in (1, 5):
        encoding, frames = world.encoded(36 * sections + 1)
        order = order_of(sections, world.order == "forward")
        examples = {number: family.section(encoding, number) for number in order}
        noises = [torch.randn(1, 16, 9, 4, 4, generator=torch.Generator().manual_seed(number)) for number in order]
        truth = [family.normalize(examples[number]["latents"])[None] for number in order]
        first = {"first_frame": Image.fromarray(frames[0])}
        calls, _ = sampled(pipeline, world.order, PROMPT, (36 * sections + 1, 32, 32), first, noise=noises, made=truth, guidance=4.0)
        assert len(calls) == 2 * sections
        for place, number in enumerate(order):
            batch = family.stack([examples[number]]) | {"guidance": torch.tensor([4.0])}
            at_noise = family.model_inputs(batch, text, noises[place], torch.ones(1))
            later = calls[2 * place + 1].kwargs
            at_later = family.denoiser_inputs(later["hidden_states"], later["timestep"] / 1000, text, batch)
            assert torch.equal(at_noise.target, noises[place] - truth[place])
            for fed, kwargs in ((calls[2 * place].kwargs, at_noise.kwargs), (later, at_later)):
                same_arguments(fed, kwargs)


def same_arguments(pipelines: dict[str, Any], ours: dict[str, torch.Tensor]) -> None:
    """Asserts that two calls are fed the same, but for the padding of the text and the mask that leaves it out."""
    assert ours.keys() == {name for name, value in pipelines.items() if isinstance(value, torch.Tensor)} - {"encoder_attention_mask"}
    mask = pipelines["encoder_attention_mask"].bool()
    for name, mine in ours.items():
        theirs = pipelines[name]
        if name.startswith("indices"):
            assert mine.dim() == 1 and mine.tolist() == theirs.tolist(), name
        elif name == "encoder_hidden_states":
            torch.testing.assert_close(mine[0], theirs[mask], rtol=1e-4, atol=1e-5)
        else:
            torch.testing.assert_close(mine.float(), theirs.float(), rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


def test_sections_are_seen_through_their_history_start_and_picture(world: World) -> None:
    """What the comparisons above compare is not without effect."""
    family = world.family
    encoding, _ = world.encoded(73)
    text = family.text_inputs([family.encode_text(family.load_text_encoder(torch.float32), PROMPT)])
    batch = family.stack([family.section(encoding, 0 if world.order == "backward" else 1)]) | {"guidance": torch.tensor([1.0])}
    noise, transformer = torch.randn(1, 16, 9, 4, 4, generator=torch.Generator().manual_seed(1)), family.load_transformer(torch.float32)

    def velocity(**changed: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return family.predict(transformer, family.model_inputs(batch | changed, text, noise, torch.full((1,), 0.5)))

    base = velocity()
    for name in ("history", "start", "image", "guidance"):
        assert (velocity(**{name: batch[name] + 1}) - base).norm() > 1e-2 * base.norm(), name
    for name in ("section_indices", "clean_indices", "halved_indices", "quartered_indices"):
        assert (velocity(**{name: batch[name] + 3}) - base).norm() > 1e-4 * base.norm(), name


@pytest.mark.parametrize(("order", "sections", "last", "dynamic"), [
    ("backward", 1, False, False), ("backward", 3, False, True), ("backward", 2, True, False), ("forward", 1, False, True),
    ("forward", 3, False, False),
])  # fmt: skip
def test_sampling_draws_the_pipelines_video(tmp_path: Path, order: str, sections: int, last: bool, dynamic: bool) -> None:
    folder = write_framepack(tmp_path / "model", dynamic=dynamic)
    pictures = {"first_frame": Image.fromarray(scene(3, 32, 48))} | ({"last_frame": Image.fromarray(scene(40, 32, 48))} if last else {})
    for name, picture in pictures.items():
        picture.save(tmp_path / f"{name}.png")
    files: dict[str, Any] = {name: str(tmp_path / f"{name}.png") for name in pictures}
    size = (36 * sections + 1, 32, 48)
    request = SampleRequest(PROMPT, *size, steps=3, seed=11, **files)
    sampler = VideoSampler(settings_of(folder, order), ComputeSettings(device="cpu", dtype="fp32"))
    ours = sampler(request).numpy()
    noise = start_noise(sampler.family.spec, request)
    parts = [noise[:, :, 1 + 9 * number : 10 + 9 * number] for number in order_of(sections, order == "forward")]
    _, theirs = sampled(open_pipeline(folder), order, PROMPT, size, pictures, steps=3, noise=parts, output="np")
    theirs = (theirs[0] * 255).round().astype(np.int16)
    assert ours.shape == theirs.shape == (*size, 3) and theirs.std() > 3
    assert np.abs(ours - theirs).max() <= 1


def test_a_single_latent_is_the_last_of_its_section(world: World) -> None:
    encoding, _ = world.encoded(1)
    (example,) = [world.family.section(encoding, 0)]
    told = {name: example[name].tolist() for name in example if name.endswith("indices")}
    assert told == {
        "section_indices": [9], "clean_indices": [0, 10], "halved_indices": [11, 12], "quartered_indices": list(range(13, 29)),
    }  # fmt: skip
    assert torch.equal(example["latents"], encoding["latents"]) and example["latents"].shape[1] == 1
    assert example["history"].shape[1] == 19 and not example["history"].any() and not example["made"].any()


def test_a_single_frame_is_sampled(world: World, tmp_path: Path) -> None:
    Image.fromarray(scene(3, 32, 32)).save(tmp_path / "first.png")
    sampler = VideoSampler(settings_of(world.folder, world.order), ComputeSettings(device="cpu", dtype="fp32"))
    assert sampler(SampleRequest(PROMPT, 1, 32, 32, steps=2, first_frame=str(tmp_path / "first.png"))).shape == (1, 32, 32, 3)


NAMES = {
    "FramePackI2V_HY": "backward", "FramePack_F1_I2V_HY_20250503": "forward", "framepack-f1": "forward", "FramePackF1": "forward",
    "my F1 copy": "forward", "sf1000": "backward", "f12": "backward", "framepack_f1_bf16": "forward",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_order_goes_by_the_name_unless_it_is_set(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(folder, target_is_directory=True)
    assert open_model(tmp_path / name).order == NAMES[name]
    assert open_model(settings_of(tmp_path / name, "forward")).order == "forward"
    assert open_model(settings_of(tmp_path / name, "backward")).order == "backward"


def test_only_a_video_made_backward_takes_a_last_frame(folder: Path) -> None:
    request = SampleRequest(PROMPT, 37, 32, 32, first_frame="a.png", last_frame="b.png")
    request.checked(open_model(settings_of(folder, "backward")).spec)
    with pytest.raises(UserError, match="last_frame"):
        request.checked(open_model(settings_of(folder, "forward")).spec)
    with pytest.raises(UserError, match="first_frame: is missing"):
        SampleRequest(PROMPT, 37, 32, 32).checked(open_model(folder).spec)


def plan_of(folder: Path, family: ModelFamily, lengths: dict[str, int], **settings: Any) -> DatasetPlan:
    """The plan of clips of so many frames at the model's rate."""
    for name, frames in lengths.items():
        write_clip(folder / f"clips/{name}.mp4", [scene(n, 32, 32) for n in range(frames)], rate=30)
    dataset = DatasetSettings(sources=[VideoFolder(folder=str(folder / "clips"))], **settings)
    return plan_dataset(dataset, CaptionSettings(), family.spec, TensorCache(folder / "cache"), watched(Watcher()))


def test_clips_are_cut_to_whole_sections_and_short_ones_are_told(folder: Path, tmp_path: Path) -> None:
    family = open_model(folder)
    plan = plan_of(tmp_path, family, {"a": 36, "b": 37, "c": 80, "d": 150, "e": 182}, frame_buckets=[37, 73, 109, 145, 181])
    kept = {entry.report.name: (str(entry.plan.example), entry.plan.sections, entry.plan.pieces) for entry in plan.entries}
    assert kept == {
        "b.mp4": ("37x640x640", 1, True), "c.mp4": ("73x640x640", 2, True), "d.mp4": ("145x640x640", 4, True),
        "e.mp4": ("181x640x640", 5, True),
    }  # fmt: skip
    (short,) = plan.teller.report.skipped
    assert short.name == "a.mp4" and "36 frames" in short.skipped and "least 37 frames" in short.skipped and "at least 37" in short.skipped
    assert "× 5 sections" in str(plan.entries[-1].report)
    items = [trained_item(entry, CaptionSettings(), 0) for entry in plan.entries]
    assert [(item.windows, item.sections, item.pieces) for item in items] == [(1, 1, True), (2, 2, True), (4, 4, True), (5, 5, True)]


def test_lengths_are_chosen_from_the_clips_and_rounded_to_sections(folder: Path, tmp_path: Path) -> None:
    family = open_model(folder)
    plan = plan_of(tmp_path, family, {"a": 20, "b": 80, "c": 400})
    assert [entry.plan.example.frames for entry in plan.entries] == [73, 145] and plan.teller.report.skipped[0].name == "a.mp4"
    plan = plan_of(tmp_path, family, {}, buckets=["20x32x32", "100x32x32"])
    assert [str(entry.plan.example) for entry in plan.entries] == ["73x32x32", "73x32x32"]
    assert any("20x32x32 was rounded to 37x32x32" in notice for notice in plan.teller.report.notices)
    plan = plan_of(tmp_path, family, {}, buckets=["37x32x32"], frame_sample_strategy="chunk")
    assert [(entry.plan.starts, entry.plan.sections) for entry in plan.entries] == [((0, 37), 1), (tuple(range(0, 400 - 36, 37)), 1)]


def test_windows_are_refused_with_the_reason(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset\.windows: .*sections of 36 frames by itself"):
        plan_of(tmp_path, open_model(folder), {"a": 80}, windows=WindowSettings(size=37))


def test_a_clip_and_a_still_are_trained_from_one_encoding_each(world: World, tmp_path: Path) -> None:
    """Through the cache: a clip's sections, two pieces of another in theirs, and a picture."""
    family, order = world.family, order_of(2, world.order == "forward")
    write_clip(tmp_path / "clips/a.mp4", [scene(n, 32, 32) for n in range(150)], rate=30)
    Image.fromarray(scene(5, 32, 32)).save(tmp_path / "clips/b.png")
    settings = DatasetSettings(
        sources=[VideoFolder(folder=str(tmp_path / "clips"), images=True)], buckets=[Bucket(frames=73, height=32, width=32)],
        frame_sample_strategy="chunk",
    )  # fmt: skip
    log, store = watched(Watcher()), TensorCache(tmp_path / "cache")
    components = Components(family, Compute(ComputeSettings(device="cpu", dtype="fp32")), log)
    data = prepare_dataset(settings, CaptionSettings(), family, store, components, log)
    clip, still = data.items
    assert (clip.windows, clip.sections, still.windows, still.sections) == (4, 2, 1, 1)
    for piece in (0, 1):
        whole = store.read("clips", clip.key, f"{piece:05d}.")
        assert whole["latents"].shape[1] == 19
        for number in order:
            told, example = family.section(whole, number), data.latents(clip, 2 * piece + number)
            assert example.keys() == told.keys() and all(torch.equal(example[name], told[name]) for name in told)
            assert torch.equal(example["latents"], whole["latents"][:, 1 + 9 * number : 10 + 9 * number])
            assert torch.equal(example["start"], whole["start"]) and torch.equal(example["image"], whole["image"])
        assert not data.latents(clip, 2 * piece + order[0])["history"][:, 1 if world.order == "backward" else 0 : 18].any()
    assert data.latents(still)["latents"].shape[1] == 1


def test_history_noise_touches_only_what_a_model_made(world: World) -> None:
    family, (encoding, _) = world.family, world.encoded(73)
    sampler: Any = SimpleNamespace()
    item = Item("c", Path("c.mp4"), ("",), Bucket(frames=73, height=32, width=32), 2, 1, "k", pieces=True, sections=2)
    text = {"text": torch.zeros(3, 16), "pooled": torch.zeros(8)}
    data: Any = SimpleNamespace(
        latents=lambda item, window: family.section(encoding, window), text=lambda text_of, picture: text, picture=lambda item, window: ""
    )

    def collected(noise: float, *windows: int) -> MicroBatch:
        job = TrainingJob.parse({"objective": {"history_noise": noise}})
        sampler.plan = lambda step: StepPlan(1, 0, (tuple(Example(item, window, 1.0, window, 0) for window in windows),))
        return next(iter(FlowMatching(job, family, data, sampler, torch.device("cpu")).collect(1)))

    def fed(batch: MicroBatch) -> dict[str, torch.Tensor]:
        return family.model_inputs(batch.encoded, batch.text, batch.noise, batch.sigma).kwargs

    later = 0 if world.order == "backward" else 1
    clean, noisy, first = collected(0.0, later), collected(0.4, later), collected(0.4, 1 - later)
    assert "drift" not in clean.encoded and 0 < noisy.encoded["drift_level"].item() < 0.4
    changed = [name for name, tensor in fed(clean).items() if not torch.equal(tensor, fed(noisy)[name])]
    assert changed == ["latents_clean", "latents_history_2x", "latents_history_4x"]
    assert torch.equal(fed(clean)["latents_clean"][:, :, 0], fed(noisy)["latents_clean"][:, :, 0])  # the start is never drawn by a model
    share, made = noisy.encoded["drift_level"], noisy.encoded["made"][0].bool()
    both = clean.encoded["history"], noisy.encoded["drift"]
    wanted = torch.where(made.view(1, 1, -1, 1, 1), (1 - share) * both[0] + share * both[1], both[0])
    for part, expected in zip(
        ("latents_history_2x", "latents_history_4x"), split_history(wanted, world.order == "forward")[1:], strict=True
    ):
        torch.testing.assert_close(fed(noisy)[part], expected)
    assert all(torch.equal(tensor, fed(collected(0.0, 1 - later))[name]) for name, tensor in fed(first).items())
    again = collected(0.4, later).encoded
    assert torch.equal(again["drift"], noisy.encoded["drift"]) and not torch.equal(first.encoded["drift"], again["drift"])


@pytest.mark.parametrize("alpha", [4.0, 64.0])
def test_lora_files_are_read_by_the_wrapper(tmp_path: Path, alpha: float) -> None:
    """Through diffusers' converter of HunyuanVideo LoRAs, which ComfyUI-FramePackWrapper gives every file to; it assumes full width."""
    from diffusers.loaders.lora_conversion_utils import _convert_hunyuan_video_lora_to_diffusers

    write_framepack(tmp_path / "model")
    config = json.loads((tmp_path / "model/transformer/config.json").read_text())
    config |= {"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 2, "num_single_layers": 1}
    small = open_model(tmp_path / "model")
    family = type(small)(NoFiles("wide", lambda part: config if part == "transformer" else small.files.config(part)))
    generator, pairs = torch.Generator().manual_seed(0), {}
    for name, (rows, columns) in family.layer_shapes.items():
        if re.fullmatch(family.spec.adapter_targets["all"], name) and "transformer_blocks.1.attn.to_k" not in name:  # a fused part may lack
            down, up = (torch.randn(*shape, generator=generator) for shape in ((16, columns), (rows, 16)))
            pairs[name] = LoraPair(down, up, alpha)
    assert len(pairs) == 2 * 12 - 1 + 5
    save_lora(LoraWeights(pairs), family, tmp_path / "lora.safetensors", {})
    file = load_file(tmp_path / "lora.safetensors")
    assert not any(name.endswith("alpha") for name in file)
    converted = _convert_hunyuan_video_lora_to_diffusers(file)
    modules = {name.removeprefix("transformer.").rpartition(".lora_")[0] for name in converted}
    assert modules - pairs.keys() == {"transformer_blocks.1.attn.to_k"} and pairs.keys() <= modules
    for name in modules:
        down, up = (converted[f"transformer.{name}.lora_{half}.weight"] for half in "AB")
        vector = torch.randn(down.shape[1], generator=generator)
        theirs = up @ (down @ vector)
        pair = pairs.get(name)
        ours = pair.up @ (pair.down @ vector) * pair.scale if pair else torch.zeros_like(theirs)
        torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-3 * float(ours.abs().max()))
    back = load_lora(tmp_path / "lora.safetensors", family)
    assert back.pairs.keys() == pairs.keys()


@pytest.mark.parametrize(("change", "said"), [
    ({"has_image_proj": False}, "does not see the first frame"), ({"has_clean_x_embedder": False}, "does not see the sections made before"),
])  # fmt: skip
def test_transformers_that_cannot_be_trained_are_told(tmp_path: Path, change: dict[str, bool], said: str) -> None:
    file = write_framepack(tmp_path / "model") / "transformer/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=said):
        open_model(tmp_path / "model")


def test_missing_parts_are_told_at_once(tmp_path: Path) -> None:
    folder = write_framepack(tmp_path / "model")
    (folder / "image_encoder/model.safetensors").unlink()
    shutil.rmtree(folder / "feature_extractor")
    with pytest.raises(UserError) as told:
        open_model(folder)
    assert [problem.where.rpartition(", ")[2] for problem in told.value.problems] == ["image_encoder", "feature_extractor"]


def test_a_run_trains_and_draws_from_the_clips_own_first_frame(folder: Path, tmp_path: Path) -> None:
    write_clip(tmp_path / "clips/a.mp4", [scene(n, 32, 32) for n in range(80)], rate=30)
    (tmp_path / "clips/a.txt").write_text(PROMPT, encoding="utf-8")
    job = TrainingJob.parse({
        "model": {"source": str(folder), "sampling_order": "forward"}, "compute": {"device": "cpu", "dtype": "fp32"},
        "dataset": {"sources": [{"kind": "folder", "folder": str(tmp_path / "clips")}], "buckets": ["73x32x32"]},
        "schedule": {"steps": 2}, "adapter": {"rank": 2}, "samples": {"every": 2, "steps": 2}, "objective": {"history_noise": 0.3},
    })  # fmt: skip
    heard: list[Any] = []
    result = run(job, Places.under(tmp_path / "output"), SimpleNamespace(emit=heard.append, request=lambda: None))  # type: ignore[arg-type]
    assert result.steps == 2 and len(result.samples) == 1 and result.lora_user
    drawn = [event for event in heard if isinstance(event, Progress) and event.unit == "sampling steps"]
    assert {event.total for event in drawn} == {2 * 2 + 1}  # of both sections, and decoding
    frames = [frame.to_ndarray(format="rgb24") for frame in av.open(str(result.samples[0])).decode(video=0)]
    assert len(frames) == 73


def test_default_samples_begin_with_their_clips(folder: Path, tmp_path: Path) -> None:
    names, family = {"a": "one", "b": "two", "c": "one", "d": "three"}, open_model(folder)
    items = [SimpleNamespace(captions=(caption,), path=tmp_path / f"{name}.mp4") for name, caption in names.items()]
    for item in items:
        item.path.touch()
    data: Any = SimpleNamespace(items=items, sample_size=Bucket(frames=37, height=32, width=32))
    told = [
        (request.prompt, Path(request.first_frame).name, request.last_frame) for request in sample_requests(TrainingJob(), family, data)
    ]
    assert told == [("one", "a.mp4", ""), ("two", "b.mp4", "")]


@pytest.mark.parametrize(("last", "number"), [(False, 0), (True, 8)])
def test_a_clip_gives_its_first_or_last_frame(tmp_path: Path, last: bool, number: int) -> None:
    frames = [scene(20 * n, 32, 48) for n in range(9)]
    found = first_picture(write_clip(tmp_path / "a.mp4", frames), 32, 48, "first_frame", last)
    assert np.abs(found.astype(int) - frames[number]).mean() < 6 < np.abs(found.astype(int) - frames[4]).mean()
    with pytest.raises(UserError, match=r"first_frame: .*gone\.mp4"):
        first_picture(tmp_path / "gone.mp4", 32, 48, "first_frame")


class Fed:
    """What the transformer is fed in training, by section: its number in time, by where its indices begin, and its text."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[dict[str, torch.Tensor]] = []
        predict = FramePack.predict

        def heard(family: FramePack, transformer: Any, inputs: ModelInputs) -> torch.Tensor:
            self.calls.append(inputs.kwargs)
            return predict(family, transformer, inputs)

        monkeypatch.setattr(FramePack, "predict", heard)

    def texts(self) -> list[tuple[int, torch.Tensor]]:
        """For each example the first of its section's indices, and its text without padding."""
        found = []
        for call in self.calls:
            texts = call["encoder_hidden_states"]
            masks = call.get("encoder_attention_mask", torch.ones(texts.shape[:2]))  # none where nothing is padded
            found += [(int(call["indices_latents"][0]), text[mask.bool()]) for text, mask in zip(texts, masks, strict=True)]
        return found


def trained(folder: Path, output: Path, clips: Path, bucket: str, steps: int, name: str, **captions: Any) -> list[float]:
    """Trains on a folder of clips without samples; the losses of all steps."""
    job = TrainingJob.parse({
        "model": {"source": str(folder), "sampling_order": "backward"}, "compute": {"device": "cpu", "dtype": "fp32"},
        "dataset": {"sources": [{"kind": "folder", "folder": str(clips), "images": True}], "buckets": [bucket]},
        "schedule": {"steps": steps}, "adapter": {"rank": 2}, "samples": {"every": 0}, "output": {"name": name},
        "captions": {"dropout": 0.0, "prefix": "zorp"} | captions,
    })  # fmt: skip
    return run(job, Places.under(output)).losses


def test_each_section_is_trained_with_the_caption_of_its_time(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_clip(tmp_path / "clips/a.mp4", [scene(n, 32, 32) for n in range(110)], rate=30)
    (tmp_path / "clips/a.txt").write_text("a ball\n[0-1.3s] it rolls left\n[1.3-2.4s] it stops", encoding="utf-8")
    fed, family = Fed(monkeypatch), open_model(settings_of(folder, "backward"))
    losses = trained(folder, tmp_path / "output", tmp_path / "clips", "109x32x32", 6, "whole")
    encoder = family.load_text_encoder(torch.float32)
    texts = {text: family.encode_text(encoder, text)["text"] for text in ("zorp a ball", "zorp it rolls left", "zorp it stops")}
    wanted: dict[int, str] = {1: "zorp it rolls left", 10: "zorp it stops", 19: "zorp a ball"}  # by the section's first index
    seen = fed.texts()
    assert sorted(first for first, _ in seen) == [1, 1, 10, 10, 19, 19]
    for first, text in seen:
        torch.testing.assert_close(text, texts[wanted[first]], rtol=1e-4, atol=1e-5)
        assert not any(text.shape == other.shape and torch.allclose(text, other) for name, other in texts.items() if name != wanted[first])
    assert trained(folder, tmp_path / "output", tmp_path / "clips", "109x32x32", 3, "resumed") == losses[:3]
    assert trained(folder, tmp_path / "output", tmp_path / "clips", "109x32x32", 6, "resumed") == losses


def test_a_bucket_of_one_frame_trains_on_clips_and_stills(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_clip(tmp_path / "clips/a.mp4", [scene(n, 32, 32) for n in range(12)], rate=30)  # shorter than a section
    Image.fromarray(scene(5, 32, 32)).save(tmp_path / "clips/b.png")
    (tmp_path / "clips/a.txt").write_text("a ball [0-0.2s] at the left", encoding="utf-8")
    fed = Fed(monkeypatch)
    assert len(trained(folder, tmp_path / "output", tmp_path / "clips", "1x32x32", 2, "single")) == 2
    assert [(call["hidden_states"].shape, call["indices_latents"].tolist()) for call in fed.calls] == [((1, 16, 1, 4, 4), [9])] * 2
    assert all(call["indices_latents_clean"].tolist() == [0, 10] for call in fed.calls)
    assert not any(call[f"latents_history_{size}"].any() for call in fed.calls for size in ("2x", "4x"))
    assert len({len(text) for _, text in fed.texts()}) == 2  # that of the span, and the trigger alone


@pytest.mark.parametrize("prompt", ["a ball [0-1.2s] it rolls left [1.2-2.5s] it stops", "a ball"])
def test_each_section_is_drawn_with_the_prompt_of_its_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: str
) -> None:
    Image.fromarray(scene(3, 32, 32)).save(tmp_path / "first.png")
    fed, sampler = Fed(monkeypatch), VideoSampler(settings_of(folder, "backward"), ComputeSettings(device="cpu", dtype="fp32"))
    sampler(SampleRequest(prompt, 109, 32, 32, steps=1, first_frame=str(tmp_path / "first.png")))
    told = ("it rolls left", "it stops", "a ball") if "[" in prompt else ("a ball",) * 3
    wanted: dict[int, str] = dict(zip((1, 10, 19), told, strict=True))
    assert [first for first, _ in fed.texts()] == [19, 10, 1]
    for first, text in fed.texts():
        torch.testing.assert_close(text, sampler.text(wanted[first])["text"])


def test_a_prompt_of_spans_is_one_where_a_model_has_no_sections(folder: Path) -> None:
    spec = open_model(folder).spec
    request = SampleRequest("a ball [0-1.2s] left [1.2-2.5s] stops", 73, 32, 32)
    assert section_prompts(request, spec) == ("left", "stops")
    assert section_prompts(request, replace(spec, section_frames=0)) == ("a ball",)
    assert section_prompts(replace(request, prompt="a cat [on a mat]"), spec) == ("a cat [on a mat]",)
