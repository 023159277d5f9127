"""Which Wan a folder holds, what is refused, and what the models that may start from a picture are fed."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.data.footage import scene
from tests.tiny import wan
from trainer.data.dataset import Item
from trainer.data.sampler import Sampler
from trainer.errors import UserError
from trainer.experts import expert_for
from trainer.job import Bucket, ComputeSettings, TrainingJob
from trainer.models import family_class, open_model
from trainer.models.base import ModelInputs
from trainer.objectives.flow_matching import FlowMatching
from trainer.objectives.noise_levels import sampling_sigmas
from trainer.sampling import SampleRequest, VideoSampler, start_noise

PER_CHANNEL = {"latents_mean": [0.0] * 16, "latents_std": [1.0] * 16}


@dataclass
class Described:
    """Model files of which only the configurations exist."""

    name: str = "a model"
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def config(self, part: str) -> dict[str, Any]:
        return self.configs.get(part, {})


def described(transformer: dict[str, Any], index: dict[str, Any] | None = None, shift: float = 3.0, z_dim: int = 16) -> Any:
    size = {"num_layers": 40, "num_attention_heads": 40, "attention_head_dim": 128, "in_channels": 16}
    whole = {"_class_name": "WanTransformer3DModel", **size, **transformer}
    vae = {"z_dim": z_dim, **({"scale_factor_spatial": 16, "scale_factor_temporal": 4} if z_dim == 48 else PER_CHANNEL)}
    parts = {"transformer": whole, "vae": vae, "scheduler": {"flow_shift": shift}, "model_index": index or {}}
    return Described(configs=parts)


SEES = {"in_channels": 36, "image_dim": 1280, "added_kv_proj_dim": 5120}
FIVE = {"num_layers": 30, "num_attention_heads": 24, "in_channels": 48, "out_channels": 48}


@pytest.mark.parametrize(
    ("files", "variant", "conditions", "required", "sees", "boundary"),
    [
        (described({"num_layers": 30, "num_attention_heads": 12}), "t2v-1.3b", 0, 0, False, 0),
        (described({}), "t2v-14b", 0, 0, False, 0),
        (described(SEES), "i2v-14b-480p", 1, 1, True, 0),
        (described(SEES, shift=5.0), "i2v-14b-720p", 1, 1, True, 0),
        (described({**SEES, "pos_embed_seq_len": 514}), "flf2v-14b", 2, 2, True, 0),
        (described({}, {"boundary_ratio": 0.875}), "t2v-a14b", 0, 0, False, 0.875),
        (described({"in_channels": 36}, {"boundary_ratio": 0.9}), "i2v-a14b", 1, 1, False, 0.9),
        (described(FIVE, {"expand_timesteps": True, "boundary_ratio": None}, z_dim=48), "ti2v-5b", 1, 0, False, 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_release_is_recognised(files, variant, conditions, required, sees, boundary):
    family: Any = family_class("wan")(files)
    spec = family.spec
    assert spec.variant == variant and not family.variant.problems
    assert (len(spec.conditions), len(spec.required), spec.image_encoder) == (conditions, required, sees)
    assert [(e.name, e.part, e.low, e.high) for e in spec.experts] == (
        [("high", "transformer", boundary, 1.0), ("low", "transformer_2", 0.0, boundary)] if boundary else [("", "transformer", 0.0, 1.0)]
    )
    stride = 16 if variant == "ti2v-5b" else 8
    assert spec.latent_shape(81, 480, 832) == (48 if stride == 16 else 16, 21, 480 // stride, 832 // stride)
    assert spec.size_multiple == 2 * stride and spec.fps == (24 if stride == 16 else 16)


def test_the_boundary_that_is_not_told_is_the_releases(tmp_path):
    for writer, boundary in ((wan.write_tiny_a14b_t2v, 0.875), (wan.write_tiny_a14b_i2v, 0.9)):
        folder = writer(tmp_path / writer.__name__)
        (folder / "model_index.json").write_text("{}", encoding="utf-8")
        assert open_model(folder).spec.experts[1].high == boundary


def test_a_base_for_a_few_steps_is_told_by_its_pipeline_or_its_name():
    plain = described({})
    by_pipeline = described({}, {"_class_name": "WanDMDPipeline"})
    named = [replace(plain, name=f"/models/{name}") for name in ("FastWan2.1-T2V-1.3B", "Wan2.1-T2V-14B-StepDistill", "wan-DMD-480p")]
    for files in (by_pipeline, *named):
        spec = family_class("wan")(files).spec
        assert spec.step_distilled and spec.guidance == 1.0
    for name in ("Wan2.1-T2V-14B-Diffusers", "slow_dance"):
        assert not family_class("wan")(replace(plain, name=f"/turbo/{name}")).spec.step_distilled


def changed(folder: Path, part: str, **values: Any) -> None:
    file = folder / part / "config.json" if part != "model_index" else folder / "model_index.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**config, **values}), encoding="utf-8")


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("transformer", {"in_channels": 52}, "52 input channels over 16 latent channels"),
        ("transformer", {"_class_name": "WanVACETransformer3DModel"}, "WanVACETransformer3DModel"),
        ("transformer_2", {"ffn_dim": 8}, "differ in ffn_dim"),
        ("model_index", {"boundary_ratio": 875}, "875 is not between 0 and 1"),
        ("vae", {"latents_mean": [0.0]}, "do not name 16 channels"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, part, values, said):
    folder = wan.write_tiny_a14b_t2v(tmp_path)
    changed(folder, part, **values)
    with pytest.raises(UserError, match=said):
        open_model(folder)


@pytest.mark.parametrize(("writer", "part"), [(wan.write_tiny_a14b_t2v, "transformer_2"), (wan.write_tiny_i2v, "image_encoder")])
def test_a_missing_part_is_named(tmp_path, writer, part):
    folder = writer(tmp_path)
    for file in (folder / part).iterdir():
        file.unlink()
    with pytest.raises(UserError, match=f"{part}: is missing"):
        open_model(folder)


def test_pictures_are_asked_for_and_refused(tmp_path):
    request = SampleRequest("a prompt", 5, 64, 64, first_frame="first.png")
    for writer, said in (
        (wan.write_tiny_wan, "first_frame: is not used"),
        (wan.write_tiny_flf2v, "last_frame: is missing"),
    ):
        with pytest.raises(UserError, match=said):
            request.checked(open_model(writer(tmp_path / writer.__name__)).spec)
    spec = open_model(wan.write_tiny_ti2v(tmp_path / "ti2v")).spec
    assert request.checked(spec) and SampleRequest("a prompt", 5, 64, 64).checked(spec)


@pytest.mark.parametrize(
    ("writer", "given"),
    [
        (wan.write_tiny_i2v, ("first_frame",)),
        (wan.write_tiny_flf2v, ("first_frame", "last_frame")),
        (wan.write_tiny_a14b_t2v, ()),
        (wan.write_tiny_a14b_i2v, ("first_frame",)),
        (wan.write_tiny_ti2v, ()),
        (wan.write_tiny_ti2v, ("first_frame",)),
    ],
    ids=lambda value: value.__name__.removeprefix("write_tiny_") if callable(value) else f"{len(value)} pictures",
)
def test_a_video_is_the_pipelines(tmp_path, writer, given):
    """With guidance, from picture files to frames; both experts where there are two."""
    folder, side = writer(tmp_path / "model"), 64
    pictures = {name: Image.fromarray(scene(7 * place, side, side)) for place, name in enumerate(given)}
    files = {name: str(tmp_path / f"{name}.png") for name in pictures}
    for name, file in files.items():
        pictures[name].save(file)
    request = SampleRequest("a red circle", 5, side, side, "blue", steps=4, guidance=4.0, shift=3.0, seed=5, **files)
    sampler = VideoSampler(folder, ComputeSettings(device="cpu"))
    ours = sampler(request)
    pipeline, told = wan.opened(folder, request.prompt, pictures, request.negative)
    set_timesteps = pipeline.scheduler.set_timesteps
    sigmas = sampling_sigmas(4, 1.0)[:-1].tolist()  # the scheduler shifts them
    pipeline.scheduler.set_timesteps = lambda steps, device=None: set_timesteps(sigmas=sigmas, device=device)
    size = {"height": side, "width": side, "num_frames": 5}
    drawn = pipeline(
        **told, **size, num_inference_steps=4, guidance_scale=4.0, latents=start_noise(sampler.family.spec, request), output_type="pt"
    ).frames[0]
    assert (ours.float() - (drawn.permute(0, 2, 3, 1) * 255).round()).abs().max() <= 1
    steps = [expert_for(sigma.item(), sampler.family.spec.experts).name for sigma in sampling_sigmas(4, 3.0)[:-1]]
    assert steps == (["high", "high", "low", "low"] if "a14b" in writer.__name__ else [""] * 4)  # the second is at 0.9


def test_without_a_picture_ti2v_is_fed_as_its_text_to_video_pipeline_feeds_it(tmp_path):
    folder = wan.write_tiny_ti2v(tmp_path)
    family, prompt = open_model(folder), "a red circle"
    text = family.text_inputs([family.encode_text(family.load_text_encoder(torch.float32), prompt)])
    for point in wan.pipeline_points(folder, prompt, (9, 64, 64), {}):
        sigma = torch.tensor([point.sigma])
        with torch.no_grad():
            inputs = ModelInputs(family.denoiser_inputs(point.x, sigma, text, {}), point.x, sigma, target=point.x)
            ours = family.predict(family.load_transformer(torch.float32), inputs)
        assert (ours - point.velocity).norm() / point.velocity.norm() < 1e-4


def test_only_examples_that_begin_with_a_picture_keep_its_frame_clean(tmp_path):
    family: Any = open_model(wan.write_tiny_ti2v(tmp_path))
    noise, latents = torch.randn(2, 48, 3, 4, 4), torch.randn(2, 48, 3, 4, 4)
    batch = {"latents": latents, "first_frame": latents[:, :, :1], "has_first_frame": torch.tensor([True, False])}
    text = family.text_inputs([{"text": torch.randn(3, 16)}] * 2)
    inputs = family.model_inputs(batch, text, noise, torch.tensor([0.25, 0.75]))
    clean, mixed = family.normalize(latents), inputs.x
    assert torch.equal(mixed[0, :, 0], clean[0, :, 0]) and not torch.equal(mixed[1, :, 0], clean[1, :, 0])
    assert torch.equal(mixed[0, :, 1:], (0.75 * clean + 0.25 * noise)[0, :, 1:])
    assert inputs.kwargs["timestep"].tolist() == [[0.0] * 4 + [250.0] * 8, [750.0] * 12]
    assert inputs.loss_mask.flatten(1).tolist() == [[0, 1, 1], [1, 1, 1]]


class Clips:
    """Random encodings of clips of five frames and of pictures, as the cache holds them."""

    windows = None

    def __init__(self) -> None:
        sizes = [Bucket(frames=frames, height=64, width=64) for frames in (5, 1)]
        self.items = [Item(f"{n}", Path(f"{n}"), ("a caption",), sizes[n % 2], 1, 1, f"{n}") for n in range(80)]

    def latents(self, item: Item, window: int = 0) -> dict[str, torch.Tensor]:
        latents = torch.randn(48, (item.size.frames - 1) // 4 + 1, 4, 4)
        return {"latents": latents, "first_frame": latents[:, :1]}

    def text(self, caption: str, picture: str = "") -> dict[str, torch.Tensor]:
        return {"text": torch.zeros(3, 16)}

    def picture(self, item: Item, window: int = 0) -> str:
        return ""


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_as_many_clips_begin_with_their_first_frame_as_are_asked_for(tmp_path, probability):
    job = TrainingJob.parse({"objective": {"first_frame_probability": probability}})
    clips: Any = Clips()
    objective = FlowMatching(job, open_model(wan.write_tiny_ti2v(tmp_path)), clips, Sampler(clips, 1, 1, 0), torch.device("cpu"))
    begins: dict[int, list[bool]] = {1: [], 5: []}
    for step in range(1, 81):
        for batch in objective.collect(step):
            assert ("first_frame" in batch.encoded) == ("has_first_frame" in batch.encoded)
            begins[batch.examples[0].item.size.frames] += batch.encoded.get("has_first_frame", torch.tensor([False])).tolist()
    assert sum(begins[1]) == 0 and len(begins[5]) == 40  # a picture would be given as a whole
    assert abs(sum(begins[5]) / 40 - probability) <= (0.2 if probability == 0.5 else 0)
