"""CogVideoX's noise levels, sampling, sizes and files against diffusers' scheduler and pipelines."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from diffusers import CogVideoXDDIMScheduler
from PIL import Image
from safetensors.torch import load_file

from tests.data.footage import scene
from tests.tiny.cogvideox import TOKENS, VARIANTS, tiny_pipeline, write_tiny_cogvideox
from trainer.adapters.export import Exporter
from trainer.adapters.lora import Lora
from trainer.adapters.weights import LoraWeights
from trainer.data.buckets import own_size, shapes_of_area
from trainer.errors import UserError
from trainer.job import AdapterSettings, ComputeSettings, TrainingJob
from trainer.models import open_model
from trainer.models.cogvideox.family import CogVideoX
from trainer.models.cogvideox.positions import rotary_positions
from trainer.models.cogvideox.schedule import Schedule
from trainer.models.cogvideox.variants import TRANSFORMER, VAE, spec_of
from trainer.objectives.base import MicroBatch
from trainer.objectives.flow_matching import FlowMatching
from trainer.objectives.noise_levels import min_snr_weight
from trainer.sampling import SampleRequest, VideoSampler, start_noise

SCHEDULER = {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
FIVE_B = {"num_layers": 42, "num_attention_heads": 48, "use_rotary_positional_embeddings": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write_tiny_cogvideox(tmp_path_factory.mktemp(name), name) for name in VARIANTS}


@pytest.fixture(params=[1.0, 3.0])
def scheduler(request: pytest.FixtureRequest) -> CogVideoXDDIMScheduler:
    return CogVideoXDDIMScheduler(**SCHEDULER, snr_shift_scale=request.param)


def opened(folder: Path) -> CogVideoX:
    family = open_model(folder)
    assert isinstance(family, CogVideoX)
    return family


@pytest.mark.parametrize("steps", [4, 50, 1000])
def test_even_times_are_the_samplers_timesteps(scheduler, steps):
    schedule = Schedule(scheduler.config)
    scheduler.set_timesteps(steps)
    sigmas = schedule.sigma(torch.linspace(1, 0, steps + 1))
    assert sigmas[0] == 1 and sigmas[-1] == 0
    assert torch.equal(schedule.timestep(sigmas[:-1]), scheduler.timesteps)


def test_random_times_are_random_timesteps(scheduler):
    schedule = Schedule(scheduler.config)
    drawn = schedule.timestep(schedule.sigma(torch.rand(200_000, generator=torch.Generator().manual_seed(0))))
    counts = torch.bincount(drawn, minlength=1000)
    assert len(counts) == 1000 and (counts - 200).abs().max() < 6 * 200**0.5


def test_euler_step_is_the_ddim_step(folders, scheduler):
    """In the scheduler's units, from any of its levels to the next, for any output of the transformer."""
    family = opened(folders["2b"])
    family.schedule = Schedule(scheduler.config)
    scheduler.set_timesteps(10)
    sigmas = family.noise_level(torch.linspace(1, 0, 11))
    generator = torch.Generator().manual_seed(0)
    for timestep, sigma, following in zip(scheduler.timesteps, sigmas[:-1], sigmas[1:], strict=True):
        sample, v = torch.randn(2, 1, 3, 16, 4, 4, generator=generator)
        theirs = scheduler.step(v, timestep, sample, return_dict=False)[0]
        size = lambda level: ((1 - level) ** 2 + level**2) ** -0.5  # noqa: E731
        x = sample.transpose(1, 2) / size(sigma)
        ours = (x + (following - sigma) * family.velocity((v,), x, sigma[None])) * size(following)
        assert (ours.transpose(1, 2) - theirs).norm() / theirs.norm() < 1e-5, timestep


def test_weighted_loss_is_that_of_v(folders, scheduler):
    """What is fed and what is weighed, against the scheduler's own noising, v and the min-SNR weight of v-prediction."""
    family = opened(folders["2b"])
    family.schedule = Schedule(scheduler.config)
    timesteps = torch.tensor([0, 300, 998, 999])
    latents, noise, v = torch.randn(3, 4, 16, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    sigma = family.schedule.levels[timesteps]
    inputs = family.model_inputs({"latents": latents}, {}, noise, sigma)
    x0 = family.normalize(latents)
    fed = scheduler.add_noise(x0, noise, timesteps)
    assert torch.equal(inputs.kwargs["timestep"], timesteps)
    assert (inputs.kwargs["hidden_states"].transpose(1, 2) - fed).norm() / fed.norm() < 1e-6
    mean = lambda error: error.square().flatten(1).mean(1)  # noqa: E731
    theirs = mean(v - scheduler.get_velocity(x0, noise, timesteps))
    ours = mean(family.velocity((v.transpose(1, 2),), inputs.x, sigma) - inputs.target)
    assert torch.allclose(ours * family.loss_weight(sigma), theirs, rtol=1e-4)
    ratio = scheduler.alphas_cumprod[timesteps] / (1 - scheduler.alphas_cumprod[timesteps])
    weighted = theirs * ratio.clamp(max=5) / (ratio + 1)
    assert torch.allclose(ours * min_snr_weight(sigma, 5.0), weighted.float(), rtol=1e-3, atol=1e-6)


def test_min_snr_takes_the_place_of_the_models_weights(folders):
    family = opened(folders["5b"])
    latents, noise = torch.randn(2, 2, 16, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    sigma, text = torch.tensor([0.3, 0.8]), {"encoder_hidden_states": torch.zeros(2, TOKENS, 16)}
    batch = MicroBatch({"latents": latents}, text, noise, sigma, torch.ones(2), [])
    jobs = [TrainingJob.parse({"objective": {"snr_gamma": gamma}}) for gamma in (0.0, 5.0)]
    transformer, nothing = family.load_transformer(torch.float32), cast("Any", None)
    plain, weighted = (FlowMatching(job, family, nothing, nothing, torch.device("cpu")).loss(transformer, batch) for job in jobs)
    assert torch.allclose(weighted / plain, min_snr_weight(sigma, 5.0) / family.loss_weight(sigma))


@pytest.mark.parametrize("variant", VARIANTS)
def test_sampling_equals_the_pipeline(folders, tmp_path, variant):
    """Four steps with guidance, and decoding: 1.5 draws a latent frame more than it shows."""
    folder, pictures = folders[variant], {}
    request = SampleRequest("a red circle", frames=17, height=32, width=32, negative="blue", steps=4, guidance=4.0, seed=5)
    if variant.endswith("i2v"):
        pictures = {"image": Image.fromarray(scene(3, 32, 32))}
        pictures["image"].save(tmp_path / "first.png")
        request = replace(request, first_frame=str(tmp_path / "first.png"))
    sampler = VideoSampler(folder, ComputeSettings(device="cpu"))
    ours = sampler(request)
    noise = start_noise(sampler.family.spec, request)
    assert noise.shape[2] == (6 if variant.startswith("15") else 5) and ours.shape == (17, 32, 32, 3)
    frames = tiny_pipeline(folder)(
        prompt="a red circle", negative_prompt="blue", height=32, width=32, num_frames=17, num_inference_steps=4, guidance_scale=4.0,
        latents=noise.transpose(1, 2), max_sequence_length=TOKENS, output_type="pt", **pictures,
    ).frames[0]  # fmt: skip
    theirs = (frames.permute(0, 2, 3, 1) * 255).round()
    assert theirs.std() > 10 and (ours.float() - theirs).abs().max() <= 1


def test_pairs_begin_with_a_copy_of_the_first_frame(folders):
    latents = torch.randn(16, 5, 4, 4)
    assert torch.equal(open_model(folders["5b"]).stack([{"latents": latents}])["latents"][0], latents)
    padded = open_model(folders["15"]).stack([{"latents": latents}])["latents"][0]
    assert torch.equal(padded[:, 1:], latents) and torch.equal(padded[:, 0], latents[:, 0])
    even = open_model(folders["15"]).stack([{"latents": latents[:, :4]}])["latents"][0]
    assert torch.equal(even, latents[:, :4])


def test_text_keeps_its_padding_and_long_ones_are_told(folders):
    family = open_model(folders["5b"])
    encoder = family.load_text_encoder(torch.float32)
    assert family.encode_text(encoder, "")["text"].shape == (TOKENS, 16)
    assert family.encode_text(encoder, "x" * (TOKENS - 1))["text"].shape == (TOKENS, 16) and encoder.truncated == []
    assert family.encode_text(encoder, "x" * TOKENS)["text"].shape == (TOKENS, 16) and len(encoder.truncated) == 1


@pytest.mark.parametrize(
    ("transformer", "variant", "bucket"),
    [
        ({"num_layers": 30, "num_attention_heads": 30}, "2b-t2v", (49, 480, 720)),
        (FIVE_B, "5b-t2v", (49, 480, 720)),
        ({**FIVE_B, "in_channels": 32, "use_learned_positional_embeddings": True}, "5b-i2v", (49, 480, 720)),
        ({**FIVE_B, "patch_size_t": 2, "sample_height": 96, "sample_width": 170, "sample_frames": 81}, "1.5-5b-t2v", (81, 768, 1360)),
        ({**FIVE_B, "patch_size_t": 2, "in_channels": 32, "sample_height": 300, "sample_width": 300}, "1.5-5b-i2v", (81, 768, 1360)),
    ],
)
def test_released_variants(transformer, variant, bucket):
    spec = spec_of(TRANSFORMER | transformer, VAE)
    assert (spec.variant, spec.default_bucket) == (variant, bucket)
    assert spec.required == (("first_frame",) if variant.endswith("i2v") else ())
    assert spec.latent_shape(*bucket) == (16, 22 if "1.5" in variant else 13, bucket[1] // 8, bucket[2] // 8)
    assert spec.frame_rule.allows(bucket[0]) and spec.size_near(*bucket[1:]) == bucket[1:]
    only = (480, 720) if variant == "5b-i2v" else None
    assert spec.only_size == only
    if only:
        assert shapes_of_area(spec, 768, 768, ()) == shapes_of_area(spec, 512, 512, [1.0]) == [only] and own_size(spec, 64, 999) == only
        with pytest.raises(UserError, match=r"takes 480x720 only\. Use 480"):
            SampleRequest("x", 49, 720, 480, first_frame="x.png").checked(spec)


@pytest.mark.parametrize(
    ("size", "paired"), [((480, 720), None), ((256, 512), None), ((720, 480), None), ((768, 1360), 2), ((480, 720), 2)]
)
def test_positions_are_the_pipelines(folders, size, paired):
    own = {"sample_height": 96, "sample_width": 170} if paired else {}
    config = TRANSFORMER | FIVE_B | own | {"patch_size_t": paired}
    pipeline = tiny_pipeline(folders["5b"])
    pipeline.transformer.register_to_config(**config)
    theirs = pipeline._prepare_rotary_positional_embeddings(*size, 6, torch.device("cpu"))
    ours = rotary_positions(config, (16, 6, size[0] // 8, size[1] // 8), torch.device("cpu"))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_positions_go_on_beyond_the_models_own_size():
    config = TRANSFORMER | FIVE_B | {"patch_size_t": 2}
    larger = config | {"sample_height": 120, "sample_width": 120}
    shape, device = (16, 2, 96, 100), torch.device("cpu")
    pairs = zip(rotary_positions(config, shape, device), rotary_positions(larger, shape, device), strict=True)
    assert all(torch.equal(a, b) and len(a) == 48 * 50 for a, b in pairs)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("transformer/config.json", {"in_channels": 48}, "it has 48 input channels, not 16 or 32"),
        ("model_index.json", {"_class_name": "CogVideoXFunControlPipeline"}, "it is made for CogVideoXFunControlPipeline"),
        ("scheduler/scheduler_config.json", {"prediction_type": "epsilon"}, "it predicts epsilon, not v_prediction"),
        ("scheduler/scheduler_config.json", {"rescale_betas_zero_snr": False}, "does not end in pure noise"),
        ("vae/diffusion_pytorch_model.safetensors", None, "vae: holds no .safetensors file"),
        ("scheduler/scheduler_config.json", None, "scheduler: is missing"),
    ],
)
def test_what_cannot_be_trained_is_named(tmp_path, part, change, message):
    file = write_tiny_cogvideox(tmp_path / "model", "5b") / part
    if change is None:
        file.unlink()
    else:
        file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        open_model(tmp_path / "model")


@pytest.mark.parametrize("alpha", [4.0, 64.0])
def test_diffusers_reads_the_copy(folders, tmp_path, alpha):
    """Layers of different ranks too, as a LoRA that training goes on from may have them."""
    family = opened(folders["5b"])
    transformer = family.load_transformer(torch.float32)
    attached = Lora.attach(transformer, family.spec, AdapterSettings(rank=16, alpha=alpha), seed=0)
    for parameter in attached.parameters():
        parameter.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
    pairs = dict(attached.weights().pairs)
    first = next(iter(pairs))
    pairs[first] = replace(pairs[first], down=pairs[first].down[:5], up=pairs[first].up[:, :5].contiguous())
    transformer = family.load_transformer(torch.float32)
    lora = Lora.from_weights(transformer, LoraWeights(pairs), "test")
    file = Exporter(tmp_path, "run", TrainingJob.parse({}), family)(lora, 500)
    copy = file.with_name("run-step-000500-diffusers.safetensors")
    assert len(load_file(copy)) * 3 == len(load_file(file)) * 2

    pipeline = tiny_pipeline(folders["5b"])
    inputs = {
        "hidden_states": torch.randn(1, 3, 16, 4, 4), "timestep": torch.tensor([700]), "encoder_hidden_states": torch.randn(1, TOKENS, 16),
        "image_rotary_emb": rotary_positions(family.config, (16, 3, 4, 4), torch.device("cpu")),
    }  # fmt: skip
    with torch.no_grad():
        ours, base = (module(**inputs, return_dict=False)[0] for module in (transformer, pipeline.transformer))
        pipeline.load_lora_weights(str(copy))
        theirs = pipeline.transformer(**inputs, return_dict=False)[0]
    assert (ours - base).norm() / base.norm() > 0.01
    assert (ours - theirs).norm() / ours.norm() < 1e-4


def test_other_families_get_no_copy(tmp_path):
    from tests.tiny.wan import write_tiny_wan

    family = open_model(write_tiny_wan(tmp_path / "model"))
    lora = Lora.attach(family.load_transformer(torch.float32), family.spec, AdapterSettings(), seed=0)
    file = Exporter(tmp_path, "run", TrainingJob.parse({}), family)(lora, 500)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
