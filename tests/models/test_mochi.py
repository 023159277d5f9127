"""Mochi's text, sampling schedule and files against diffusers' pipeline."""

from pathlib import Path

import pytest
import torch
from diffusers.pipelines.mochi.pipeline_mochi import linear_quadratic_schedule
from safetensors.torch import load_file

from tests.tiny.mochi import TOKENS, tiny_pipeline, write_tiny_mochi
from trainer.adapters.export import Exporter
from trainer.adapters.lora import Lora
from trainer.errors import UserError
from trainer.job import AdapterSettings, ComputeSettings, TrainingJob
from trainer.models import open_model
from trainer.models.base import ModelFamily
from trainer.objectives.noise_levels import sampling_sigmas
from trainer.sampling import SampleRequest, VideoSampler, start_noise


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_mochi(tmp_path_factory.mktemp("mochi"))


@pytest.fixture
def family(folder: Path) -> ModelFamily:
    return open_model(folder)


@pytest.mark.parametrize("steps", [4, 50, 64])
def test_sampled_noise_levels_are_the_pipelines(family: ModelFamily, steps: int) -> None:
    ours = family.sampling_level(sampling_sigmas(steps, 1.0))
    theirs = torch.tensor([*linear_quadratic_schedule(steps, 0.025), 0.0])
    assert torch.allclose(ours, theirs, atol=1e-6)
    time = torch.rand(9)
    assert torch.equal(family.noise_level(time), time)  # training draws them evenly


def test_sampling_equals_the_pipeline(folder: Path) -> None:
    """With guidance, the empty negative prompt without any tokens, and decoding."""
    sampler = VideoSampler(folder, ComputeSettings(device="cpu"))
    request = SampleRequest("a red circle", frames=13, height=32, width=48, steps=4, guidance=4.5, seed=5)
    ours = sampler(request)
    frames = tiny_pipeline(folder)(
        prompt="a red circle", height=32, width=48, num_frames=13, num_inference_steps=4, guidance_scale=4.5,
        latents=start_noise(sampler.family.spec, request), max_sequence_length=TOKENS, output_type="pt",
    ).frames[0]  # fmt: skip
    theirs = (frames.permute(0, 2, 3, 1) * 255).round()
    assert ours.shape == (13, 32, 48, 3)
    assert theirs.std() > 5 and (ours.float() - theirs).abs().max() <= 1


def test_texts_are_padded_behind_a_mask(family: ModelFamily) -> None:
    encoder = family.load_text_encoder(torch.float32)
    texts = [family.encode_text(encoder, text) for text in ("", "abc", "x" * TOKENS)]
    assert [len(text["text"]) for text in texts] == [1, 4, TOKENS] and len(encoder.truncated) == 1
    batch = family.text_inputs(texts[:2])
    assert batch["encoder_attention_mask"].tolist() == [[False] * 4, [True] * 4]


def test_latents_are_normalised_by_channel(family: ModelFamily) -> None:
    config = family.files.config("vae")
    mean, std = (torch.tensor(config[name]).view(1, 12, 1, 1, 1) for name in ("latents_mean", "latents_std"))
    noise = torch.randn(1, 12, 2, 3, 3)
    assert torch.allclose(family.normalize(noise * std + mean), noise, atol=1e-6)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    folder = write_tiny_mochi(tmp_path / "model")
    (folder / "vae/diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(UserError, match=r"vae: holds no \.safetensors file"):
        open_model(folder)


@pytest.mark.parametrize("alpha", [4.0, 64.0])
def test_diffusers_reads_the_copy(family: ModelFamily, folder: Path, tmp_path: Path, alpha: float) -> None:
    transformer = family.load_transformer(torch.float32)
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=16, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
    file = Exporter(tmp_path, "run", TrainingJob.parse({}), family)(lora, 500)
    copy = file.with_name("run-step-000500-diffusers.safetensors")
    assert len(load_file(copy)) == 2 * len(lora.layers)

    pipeline = tiny_pipeline(folder)
    inputs = {
        "hidden_states": torch.randn(1, 12, 2, 4, 4), "timestep": torch.tensor([300.0]), "encoder_hidden_states": torch.randn(1, 7, 16),
        "encoder_attention_mask": torch.ones(1, 7, dtype=torch.bool),
    }  # fmt: skip
    with torch.no_grad():
        ours, base = (module(**inputs, return_dict=False)[0] for module in (transformer, pipeline.transformer))
        pipeline.load_lora_weights(str(copy))
        theirs = pipeline.transformer(**inputs, return_dict=False)[0]
    assert (ours - base).norm() / base.norm() > 0.01
    assert (ours - theirs).norm() / ours.norm() < 1e-4
