"""LTX-Video's releases, its two ways to start, and what its pipelines and diffusers' LoRA loader make of the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.ltx import pipeline_ltx, pipeline_ltx_condition
from PIL import Image

from tests.data.footage import scene
from tests.data.synthetic import write_clip
from tests.tiny.ltx_video import SCHEDULER, VAES, as_points, pipeline, pipeline_calls, write_tiny_ltx
from trainer import draws
from trainer.adapters.file import load_lora, save_lora
from trainer.adapters.lora import Lora
from trainer.errors import UserError
from trainer.events import read_events
from trainer.job import AdapterSettings, TrainingJob
from trainer.models import family_class, open_model
from trainer.models.base import ModelFamily, ModelInputs
from trainer.objectives.noise_levels import shift_sigma
from trainer.run import Places, run

SIZE, PROMPT = (17, 64, 96), "a red circle on a table"
PIPELINES = {"0.9": "LTXPipeline", "0.9.5": "LTXConditionPipeline"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {release: write_tiny_ltx(tmp_path_factory.mktemp("tiny"), release) for release in VAES}


def text_of(family: ModelFamily, *prompts: str) -> dict[str, torch.Tensor]:
    encoder = family.load_text_encoder(torch.float32)
    return family.text_inputs([family.encode_text(encoder, prompt) for prompt in prompts])


def footage(frames: int) -> torch.Tensor:
    return torch.stack([torch.from_numpy(scene(n, *SIZE[1:])) for n in range(frames)])


@pytest.mark.parametrize("release", PIPELINES)
def test_velocity_without_picture_equals_the_pipelines(folders: dict[str, Path], release: str) -> None:
    family = open_model(folders[release])
    text, transformer = text_of(family, PROMPT), family.load_transformer(torch.float32)
    points = as_points(pipeline_calls(folders[release], PIPELINES[release], PROMPT, SIZE), SIZE)
    assert len(points) == 3
    for point in points:
        sigma = torch.tensor([point.sigma])
        with torch.no_grad():
            inputs = ModelInputs(family.denoiser_inputs(point.x, sigma, text, {}), point.x, sigma, target=point.x)
            ours = family.predict(transformer, inputs)
        assert family.conditioned(point.x, {}) is point.x and family.loss_mask(point.x, {}) is None
        assert (ours - point.velocity).norm() / point.velocity.norm() < 1e-4


@pytest.mark.parametrize("release", VAES)
def test_some_of_a_batch_begin_with_their_first_frame(folders: dict[str, Path], release: str) -> None:
    family, (frames, height, width) = open_model(folders[release]), SIZE
    vae, clip = family.load_vae(), footage(frames)
    encoded = family.encode_video(vae, clip) | family.encode_conditions(vae, None, {"first_frame": clip[0]}, SIZE)
    torch.testing.assert_close(encoded["first_frame"][:, 0], encoded["latents"][:, 0], rtol=1e-4, atol=1e-5)
    assert tuple(encoded["latents"].shape) == family.spec.latent_shape(frames, height, width)

    batch = family.stack([encoded, encoded]) | {"has_first_frame": torch.tensor([True, False])}
    noise, sigma = torch.randn(batch["latents"].shape), torch.tensor([0.7, 0.7])
    inputs = family.model_inputs(batch, text_of(family, PROMPT, "another, longer caption"), noise, sigma)
    timesteps = inputs.kwargs["timestep"].view(2, 3, -1)
    assert (timesteps[0, 0] == 0).all() and (timesteps[0, 1:] == 700).all() and (timesteps[1] == 700).all()
    assert inputs.loss_mask is not None and inputs.loss_mask.flatten(1).tolist() == [[0, 1, 1], [1, 1, 1]]
    clean = family.normalize(batch["latents"])
    torch.testing.assert_close(inputs.x[0, :, 0], clean[0, :, 0], rtol=1e-4, atol=1e-4)
    assert torch.equal(inputs.x[0, :, 1:], (0.3 * clean + 0.7 * noise)[0, :, 1:])
    assert torch.equal(inputs.x[1], ((1 - sigma[1]) * clean + sigma[1] * noise)[1])

    transformer = family.load_transformer(torch.float32)
    with torch.no_grad():
        together = family.predict(transformer, inputs)
        for place, prompt in enumerate((PROMPT, "another, longer caption")):
            begins = bool(batch["has_first_frame"][place])  # of examples of which none does, the objective leaves out the picture
            own = {name: tensor[place : place + 1] for name, tensor in batch.items() if begins or name == "latents"}
            alone = family.model_inputs(own, text_of(family, prompt), noise[place : place + 1], sigma[place : place + 1])
            torch.testing.assert_close(family.predict(transformer, alone), together[place : place + 1], rtol=1e-4, atol=1e-5)
    assert alone.kwargs["timestep"].shape == (1, 1)


@pytest.mark.parametrize("release", ["0.9", "0.9.5"])
def test_decoding_equals_the_pipelines(folders: dict[str, Path], release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pipeline_ltx, pipeline_ltx_condition):
        monkeypatch.setattr(module, "randn_tensor", lambda shape, **_: draws.normal(tuple(shape), "decode"))
    made, family = pipeline(folders[release], PIPELINES[release]), open_model(folders[release])
    frames, height, width = SIZE
    settings = {"prompt": PROMPT, "num_frames": frames, "height": height, "width": width, "num_inference_steps": 2, "guidance_scale": 1.0}
    drawn = made(**settings, output_type="latent").frames
    latents = drawn if drawn.dim() == 5 else drawn.transpose(1, 2).unflatten(2, (3, height // 32, width // 32))
    theirs = made(**settings, output_type="pt", decode_timestep=0.05, decode_noise_scale=0.025).frames[0]
    ours = family.decode_video(family.load_vae(), latents)
    assert tuple(ours.shape) == (*SIZE, 3) and ours.float().std() > 5
    assert (ours - theirs.permute(0, 2, 3, 1) * 255).abs().max() < 0.51


def test_decoding_draws_its_own_noise(folders: dict[str, Path]) -> None:
    """The decoder of 0.9.1 adds noise in its blocks."""
    family = open_model(folders["0.9.1"])
    vae, latents = family.load_vae(), torch.randn(1, 128, 2, 2, 2)
    torch.manual_seed(1)
    first, after = family.decode_video(vae, latents), torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    assert torch.equal(first, family.decode_video(vae, latents))


def test_shift_grows_as_in_the_pipeline(folders: dict[str, Path]) -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(**{**SCHEDULER, "shift_terminal": None})
    lengths = [SCHEDULER[name] for name in ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")]
    for release in PIPELINES:  # 0.9.5 has its own schedule for sampling, and the same shift in training
        family = open_model(folders[release])
        for shape in ((128, 1, 4, 4), (128, 4, 16, 24), (128, 16, 16, 22)):
            times = torch.linspace(1, 1 / 8, 8)
            scheduler.set_timesteps(sigmas=times.tolist(), mu=pipeline_ltx.calculate_shift(shape[1] * shape[2] * shape[3], *lengths))
            for sampling in (False, True):
                torch.testing.assert_close(shift_sigma(times, family.shift(shape, sampling)), scheduler.sigmas[:-1])
        assert family.shift(family.spec.latent_shape(*family.spec.default_bucket), True) == pytest.approx(family.spec.sample_shift)


class Configurations:
    """A model's files without any weights."""

    def __init__(self, name: str, layers: int, head: int, vae: dict[str, object], **more: object) -> None:
        transformer = {
            "_class_name": "LTXVideoTransformer3DModel",
            "num_layers": layers,
            "num_attention_heads": 32,
            "attention_head_dim": head,
        }
        self.name, self._parts = name, {"transformer": transformer | more, "vae": vae}

    def config(self, part: str) -> dict[str, object]:
        return self._parts.get(part, {})


NEW = {"down_block_types": ["LTXVideo095DownBlock3D"] * 4, "timestep_conditioning": True}


@pytest.mark.parametrize(
    ("files", "variant", "length", "guidance"),
    [
        (Configurations("LTX-Video", 28, 64, {}), "2b-0.9", 128, 3.0),
        (Configurations("LTX-Video-0.9.1", 28, 64, {"timestep_conditioning": True}), "2b-0.9.1", 128, 3.0),
        (Configurations("LTX-Video-0.9.5", 28, 64, NEW), "2b-0.9.5", 256, 3.0),
        (Configurations("LTX-Video-0.9.7-dev", 48, 128, NEW), "13b-0.9.7", 256, 3.0),
        (Configurations("models/LTX-Video-0.9.7-distilled", 48, 128, NEW), "13b-0.9.7-distilled", 256, 1.0),
        (Configurations("model", 28, 64, NEW, allowed_inference_steps=[1.0, 0.99]), "2b-0.9.5-distilled", 256, 1.0),
        (Configurations("distilled/mine", 28, 64, NEW), "2b-0.9.5", 256, 3.0),
    ],
    ids=lambda value: value.name if isinstance(value, Configurations) else "",
)  # fmt: skip
def test_releases_are_known_by_their_configurations(files: Configurations, variant: str, length: int, guidance: float) -> None:
    family_of_it = family_class("ltx_video")
    assert family_of_it.recognises(files)  # type: ignore[arg-type]
    spec = family_of_it(files).spec  # type: ignore[arg-type]
    assert (spec.variant, spec.text_length, spec.guidance) == (variant, length, guidance)
    assert spec.step_distilled == variant.endswith("distilled")
    assert spec.frame_rule.allows(spec.default_bucket[0]) and spec.default_bucket == (121, 512, 704)


def test_the_model_with_sound_is_refused(tmp_path: Path) -> None:
    (tmp_path / "transformer").mkdir()
    (tmp_path / "model_index.json").write_text("{}", encoding="utf-8")
    (tmp_path / "transformer/config.json").write_text(json.dumps({"_class_name": "LTX2VideoTransformer3DModel"}), encoding="utf-8")
    with pytest.raises(UserError, match="is LTX-2, which makes sound"):
        open_model(tmp_path)


def test_a_vae_without_statistics_is_named(tmp_path: Path) -> None:
    family = open_model(write_tiny_ltx(tmp_path))
    (tmp_path / "vae/diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(UserError, match="vae: holds no tensor 'latents_mean'"):
        family.normalize(torch.zeros(1, 128, 1, 1, 1))


def test_long_captions_are_reported(folders: dict[str, Path]) -> None:
    for release, length in (("0.9", 128), ("0.9.5", 256)):
        family = open_model(folders[release])
        encoder = family.load_text_encoder(torch.float32)
        for count in (length - 1, length):  # and a token that ends the caption
            assert len(family.encode_text(encoder, "a" * count)["text"]) == length
        assert encoder.truncated == ["a" * length]


@pytest.mark.parametrize("alpha", [4.0, 16.0, 64.0])
def test_diffusers_reads_the_lora_file(folders: dict[str, Path], tmp_path: Path, alpha: float) -> None:
    family, file = open_model(folders["0.9"]), tmp_path / "lora.safetensors"
    text = text_of(family, PROMPT, "another, longer caption")
    inputs = family.denoiser_inputs(torch.randn(2, 128, 2, 2, 3), torch.tensor([0.2, 0.7]), text, {})
    ours, made = family.load_transformer(torch.float32), pipeline(folders["0.9"], "LTXPipeline")
    with torch.no_grad():
        base = ours(**inputs, return_dict=False)[0]
    lora = Lora.attach(ours, family.spec, AdapterSettings(rank=16, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1)
    save_lora(lora.weights(), family, file, {})
    made.load_lora_weights(file)
    with torch.no_grad():
        a, b = ours(**inputs, return_dict=False)[0], made.transformer(**inputs, return_dict=False)[0]
    assert (a - base).norm() / base.norm() > 0.01
    assert (a - b).norm() / a.norm() < 1e-5
    assert load_lora(file, family).strengths == [(16, 16.0)]


def test_a_run_on_a_distilled_base_warns_and_starts_samples_from_pictures(tmp_path: Path) -> None:
    model = write_tiny_ltx(tmp_path / "tiny-distilled", "0.9.5")
    write_clip(tmp_path / "clips/a.mp4", [scene(n, 64, 64) for n in range(9)], rate=25)
    (tmp_path / "clips/a.txt").write_text("a caption", encoding="utf-8")
    Image.fromarray(scene(3, 64, 64)).save(tmp_path / "start.png")
    prompts = [{"prompt": "a clip"}, {"prompt": "a clip", "image": str(tmp_path / "start.png")}]
    bucket = {"frames": 9, "height": 64, "width": 64}
    job = TrainingJob.parse({
        "model": {"source": str(model)}, "adapter": {"rank": 4}, "compute": {"device": "cpu"}, "output": {"name": "run"},
        "dataset": {"sources": [{"kind": "folder", "folder": str(tmp_path / "clips")}], "buckets": [bucket]},
        "schedule": {"steps": 2}, "samples": {"every": 2, "steps": 2, "prompts": prompts},
    })  # fmt: skip
    result = run(job, Places.under(tmp_path / "out"))
    events = list(read_events(result.folder / "events.jsonl"))
    assert sum(event["type"] == "sample" for event in events) >= 2
    assert any("distilled" in str(event.get("text")) for event in events if event["type"] == "notice")
