"""HunyuanVideo beside what all families are tested for: its texts, its samples, its conditions and its refusals."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.data.footage import scene
from tests.data.synthetic import write_clip
from tests.tiny.hunyuan_video import load_pipeline, write_i2v_concat, write_i2v_replace, write_t2v
from trainer.errors import UserError
from trainer.events import read_events
from trainer.job import ComputeSettings, TrainingJob
from trainer.models import open_model
from trainer.run import Places, run
from trainer.sampling import SampleRequest, VideoSampler

WRITERS = {"t2v": write_t2v, "i2v-concat": write_i2v_concat, "i2v-replace": write_i2v_replace}
TEXTS = {"none": "", "short": "a red {circle} on a table", "long": "circles, " * 60, "cut inside the answer's header": "x" * 253}


@pytest.fixture(scope="module", params=WRITERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WRITERS[request.param](tmp_path_factory.mktemp(request.param))


def picture_file(folder: Path, number: int = 7) -> Path:
    Image.fromarray(scene(number, 32, 48)).save(folder / f"{number}.png")
    return folder / f"{number}.png"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_texts_are_those_of_the_pipeline(folder: Path, text: str) -> None:
    """The pipeline pads and masks; ours has no padding before it is batched."""
    family, pipeline, frame = open_model(folder), load_pipeline(folder), scene(3, 32, 48)
    given, more = {}, {}
    if family.spec.text_sees_image:
        stride = {"i2v-concat": 2, "i2v-replace": 4}[family.spec.variant]
        given, more = {"image": torch.from_numpy(frame)}, {"image": Image.fromarray(frame), "image_embed_interleave": stride}
    with torch.no_grad():
        embeds, pooled, mask = pipeline.encode_prompt(prompt=text, **more)
    encoder = family.load_text_encoder(torch.float32)
    ours = family.encode_text(encoder, text, **given)
    kept = embeds[0][mask[0].bool()]
    assert ours["text"].shape == kept.shape and (ours["text"] - kept).norm() / kept.norm() < 1e-5
    assert (ours["pooled"] - pooled[0]).norm() / pooled.norm() < 1e-5
    assert encoder.truncated == ([text] if len(text) > (250 if given else 256) else [])
    assert family.spec.text_length == embeds.shape[1]
    both = [ours, family.encode_text(encoder, "another", **given)]
    batched, lengths = family.text_inputs(both), [len(text["text"]) for text in both]
    assert batched["encoder_hidden_states"].shape[1] == max(lengths) and batched["encoder_attention_mask"].sum(1).tolist() == lengths
    assert "encoder_attention_mask" not in family.text_inputs([ours])


def test_samples_are_those_of_the_pipeline(folder: Path, tmp_path: Path) -> None:
    """From the same noise through the same steps to the same pixels; with guidance, latent concat's negative prompt sees black.

    Of latent concat the pipeline leaves out the first four frames.
    """
    family, picture = open_model(folder), picture_file(tmp_path)
    request = SampleRequest("a red circle", frames=9, height=32, width=48, negative="blue", steps=3, seed=5)
    more = {}
    if family.spec.conditions:
        request, more = replace(request, first_frame=str(picture)), {"image": Image.open(picture)}
    if family.spec.guidance_input is None:
        request, more = replace(request, guidance=3.0), {**more, "negative_prompt": "blue", "true_cfg_scale": 3.0}
    ours = VideoSampler(folder, ComputeSettings(device="cpu"))(request)
    theirs = load_pipeline(folder)(
        prompt="a red circle", height=32, width=48, num_frames=9, num_inference_steps=3, guidance_scale=6.0,
        generator=torch.Generator().manual_seed(5), output_type="pt", **more,
    ).frames[0]  # fmt: skip
    assert len(ours) == 9 and len(theirs) >= 5
    assert (ours[-len(theirs) :].float() - (theirs.permute(0, 2, 3, 1) * 255).round()).abs().max() <= 1


@pytest.mark.parametrize("form", ["i2v-concat", "i2v-replace"])
def test_samples_begin_with_a_little_of_the_picture_as_the_pipelines_do(form: str, tmp_path: Path) -> None:
    family, pipeline = open_model(WRITERS[form](tmp_path)), load_pipeline(tmp_path)
    frame, noise = torch.from_numpy(scene(3, 32, 48)), torch.randn(1, 16, 3, 4, 6)
    image = (frame.permute(2, 0, 1)[None] / 127.5 - 1).float()
    with torch.no_grad():
        theirs, _ = pipeline.prepare_latents(image, 1, 16, 32, 48, 9, torch.float32, "cpu", None, noise, family.form)
        given = family.encode_conditions(family.load_vae(), None, {"first_frame": frame}, (9, 32, 48))
        ours = family.generate(lambda noise, given, section=0: noise, noise, {name: tensor[None] for name, tensor in given.items()})
    assert (ours - theirs).norm() / (noise - theirs).norm() < 1e-3


def test_guidance_is_fed_in_unless_the_model_has_no_input_for_it(folder: Path) -> None:
    family = open_model(folder)
    given = {"guidance": torch.tensor([3.0]), "image_latents": torch.zeros(1, 16, 1, 4, 4)}
    made = family.denoiser_inputs(torch.zeros(1, 16, 2, 4, 4), torch.tensor([0.5]), {}, given)
    distilled = family.spec.variant != "i2v-concat"  # the one that was written without
    assert made.get("guidance", torch.tensor([-1.0])).tolist() == [3000.0 if distilled else -1.0]
    assert (family.spec.guidance, family.spec.guidance_input) == ((6.0, 1.0) if distilled else (1.0, None))


def test_what_is_given_is_no_part_of_the_loss(tmp_path: Path) -> None:
    """Of token replace alone: latent concat predicts the first frame too."""
    for writer, masked in ((write_i2v_concat, False), (write_i2v_replace, True)):
        family = open_model(writer(tmp_path / f"{masked}"))
        x, given = torch.randn(2, 16, 3, 4, 4), {"image_latents": torch.randn(2, 16, 1, 4, 4)}
        mask, conditioned = family.loss_mask(x, given), family.conditioned(x, given)
        assert (mask is None) != masked and torch.equal(conditioned, x) != masked
        if mask is not None:
            assert mask.flatten().tolist() == [0, 1, 1]
            assert torch.equal(conditioned[:, :, :1], family.normalize(given["image_latents"]))
            assert torch.equal(conditioned[:, :, 1:], x[:, :, 1:])


def change(folder: Path, part: str, name: str = "config.json", **settings: object) -> None:
    file = folder / part / name
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **settings}), encoding="utf-8")


def test_other_inputs_another_text_encoder_and_missing_parts_are_refused_at_once(tmp_path: Path) -> None:
    model = write_t2v(tmp_path / "model")
    change(model, "transformer", in_channels=32)  # SkyReels V1 image-to-video
    change(model, "text_encoder", model_type="llava")
    (model / "tokenizer_2" / "tokenizer_config.json").unlink()
    with pytest.raises(UserError) as refused:
        open_model(model)
    told = str(refused.value)
    assert "32 input channels" in told and "33" in told and "is a llava" in told and "tokenizer_2" in told


def test_a_schedule_of_few_steps_tells_a_distilled_model(tmp_path: Path) -> None:
    assert not open_model(write_t2v(tmp_path)).spec.step_distilled
    change(tmp_path, "scheduler", "scheduler_config.json", shift=17.0)
    assert open_model(tmp_path).spec.step_distilled


def test_an_image_to_video_run_trains_and_draws_from_pictures(tmp_path: Path) -> None:
    """Captions with dropout, windows, a sample prompt with its picture; without the picture nothing begins."""
    model = write_i2v_replace(tmp_path / "model")
    for number in range(2):
        write_clip(tmp_path / f"clips/{number}.mp4", [scene(n + 30 * number, 32, 32) for n in range(13)], rate=24)
        (tmp_path / f"clips/{number}.txt").write_text(f"clip {number}", encoding="utf-8")
    prompt = {"prompt": "a clip", "image": str(picture_file(tmp_path)), "size": {"frames": 5, "height": 32, "width": 32}}
    settings = {
        "model": {"source": str(model)},
        "dataset": {"sources": [{"kind": "folder", "folder": str(tmp_path / "clips")}], "windows": {"size": 5, "stride": 4}},
        "captions": {"dropout": 0.5},
        "adapter": {"rank": 2},
        "schedule": {"steps": 3, "batch_size": 2},
        "samples": {"every": 3, "steps": 2, "prompts": [prompt]},
        "compute": {"device": "cpu"},
        "output": {"name": "run"},
    }
    result = run(TrainingJob.parse(settings), Places.under(tmp_path / "out"))
    assert result.steps == 3 and len(result.samples) == 1 and all(sample.is_file() for sample in result.samples)
    assert {event["step"] for event in read_events(result.folder / "events.jsonl") if event["type"] == "sample"} == {0, 3}
    settings["samples"]["prompts"] = [{**prompt, "image": ""}]
    with pytest.raises(UserError, match=r"samples\.prompts\.0\.first_frame"):
        run(TrainingJob.parse(settings), Places.under(tmp_path / "out"))
