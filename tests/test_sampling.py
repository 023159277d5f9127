"""Our sampler against diffusers' own pipeline at the same noise and sigmas."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.tiny.wan import write_tiny_wan
from trainer.errors import UserError
from trainer.events import Progress
from trainer.job import ComputeSettings
from trainer.objectives.noise_levels import sampling_sigmas, shift_sigma
from trainer.sampling import SampleRequest, VideoSampler, encode_prompt, start_noise

REQUEST = SampleRequest("a red circle", frames=9, height=32, width=48, negative="blue", steps=4, guidance=4.0, shift=3.0, seed=5)
CPU = ComputeSettings(device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_wan(tmp_path_factory.mktemp("tiny"))


def test_sigmas_run_from_one_to_zero():
    assert shift_sigma(torch.tensor([0.0, 0.5, 1.0]), 3.0).tolist() == [0.0, 0.75, 1.0]
    assert sampling_sigmas(2, 3.0).tolist() == [1.0, 0.75, 0.0]


def test_equals_the_pipeline(folder):
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel
    from transformers import AutoTokenizer, UMT5EncoderModel

    sampler = VideoSampler(folder, CPU)
    ours = sampler(REQUEST)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=1.0)
    pipeline = WanPipeline(
        AutoTokenizer.from_pretrained(folder / "tokenizer"),
        UMT5EncoderModel.from_pretrained(folder / "text_encoder"),
        AutoencoderKLWan.from_pretrained(folder / "vae"),
        scheduler,
        WanTransformer3DModel.from_pretrained(folder / "transformer"),
    )
    pipeline.set_progress_bar_config(disable=True)
    set_timesteps = scheduler.set_timesteps
    scheduler.set_timesteps = lambda steps, device=None: set_timesteps(sigmas=sampling_sigmas(4, 3.0)[:-1].tolist(), device=device)
    frames = pipeline(
        prompt="a red circle", negative_prompt="blue", height=32, width=48, num_frames=9, num_inference_steps=4, guidance_scale=4.0,
        latents=start_noise(sampler.family.spec, REQUEST), max_sequence_length=48, output_type="pt",
    ).frames[0]  # fmt: skip
    theirs = (frames.permute(0, 2, 3, 1) * 255).round()
    assert (ours.float() - theirs).abs().max() <= 1


def test_progress_ends_at_its_total(folder):
    heard = []
    listener = SimpleNamespace(emit=heard.append, request=lambda: None)
    VideoSampler(folder, CPU, listener=listener)(replace(REQUEST, steps=2))
    assert [(event.done, event.total) for event in heard if isinstance(event, Progress)] == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_prompt_is_padded_with_zeros(folder):
    embeddings = encode_prompt(folder, "a  red\ncircle", CPU)
    assert embeddings.shape == (1, 48, 16)
    assert embeddings[0, len("a red circle") :][1:].abs().max() == 0
    assert torch.equal(embeddings, encode_prompt(folder, "a red circle", CPU))


@pytest.mark.parametrize(("change", "cure"), [({"frames": 16}, "Use 13."), ({"height": 30}, "Use 32."), ({"width": 7}, "Use 16.")])
def test_impossible_sizes_name_the_nearest(folder, change, cure):
    from dataclasses import replace

    with pytest.raises(UserError, match=cure):
        VideoSampler(folder, CPU)(replace(REQUEST, **change))
