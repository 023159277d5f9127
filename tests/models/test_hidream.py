"""HiDream-I1's experts, text, variants and files against diffusers' pipeline."""

import json
from pathlib import Path

import pytest
import torch

from tests.data.footage import scene
from tests.tiny.hidream import TOKENS, tiny_pipeline, write_tiny_hidream
from trainer.adapters.export import Exporter
from trainer.adapters.lora import Lora
from trainer.errors import UserError
from trainer.job import AdapterSettings, ComputeSettings, TrainingJob
from trainer.models import open_model
from trainer.models.base import ModelFamily
from trainer.sampling import SampleRequest, VideoSampler, start_noise


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_hidream(tmp_path_factory.mktemp("hidream"))


@pytest.fixture
def family(folder: Path) -> ModelFamily:
    return open_model(folder)


def inputs(height: int = 8, width: int = 8) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    drawn = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    return {
        "hidden_states": drawn(2, 16, height, width), "timesteps": torch.tensor([200.0, 900.0]), "pooled_embeds": drawn(2, 32),
        "encoder_hidden_states_t5": drawn(2, TOKENS, 16), "encoder_hidden_states_llama3": drawn(2, 2, TOKENS, 16),
    }  # fmt: skip


@pytest.mark.parametrize("width", [8, 6])
def test_modes_compute_the_same_with_gradients(family: ModelFamily, folder: Path, width: int) -> None:
    """What diffusers' evaluation mode computes, in either mode; dropout below the experts still follows the mode."""
    transformer, theirs = family.load_transformer(torch.float32), tiny_pipeline(folder, 64).transformer.eval()
    lora = Lora.attach(transformer, family.spec, AdapterSettings(dropout=0.5), seed=0)
    expert = lora.layers["single_stream_blocks.0.block.ff_i.experts.0.w1"]
    with torch.no_grad():
        wanted = theirs(**inputs(width=width), return_dict=False)[0]
    for mode in (True, False):
        transformer.train(mode)
        assert expert.lora_dropout["default"].training == mode
        output = transformer(**inputs(width=width), return_dict=False)[0]
        assert output.shape == wanted.shape and (output - wanted).norm() / wanted.norm() < 1e-5
    output.sum().backward()
    assert expert.lora_B["default"].weight.grad.any()


def test_sampling_equals_the_pipeline(folder: Path) -> None:
    sampler = VideoSampler(folder, ComputeSettings(device="cpu"))
    request = SampleRequest("a red circle", frames=1, height=64, width=64, negative="blue", steps=4, guidance=5.0, seed=5)
    ours = sampler(request)
    noise = start_noise(sampler.family.spec, request)[:, :, 0]
    pictures = tiny_pipeline(folder, 64 * 64)(
        prompt="a red circle", negative_prompt="blue", height=64, width=64, sigmas=[1.0, 0.75, 0.5, 0.25], guidance_scale=5.0,
        latents=noise, output_type="pt",
    ).images  # fmt: skip
    theirs = (pictures.permute(0, 2, 3, 1) * 255).round()
    assert ours.shape == (1, 64, 64, 3) and theirs.std() > 5 and (ours.float() - theirs).abs().max() <= 1


def test_it_makes_pictures_of_limited_area(family: ModelFamily) -> None:
    rule = family.spec.frame_rule
    assert rule.allows(1) and not rule.allows(2) and rule.floor(81) == 1 and str(rule) == "1 frame"
    picture = torch.from_numpy(scene(0, 64, 64))[None]
    vae = family.load_vae()
    latents = family.encode_video(vae, picture)["latents"]
    assert latents.shape == (16, 1, 8, 8) == family.spec.latent_shape(1, 64, 64)
    assert family.decode_video(vae, family.normalize(latents[None])).shape == (1, 64, 64, 3)
    wide = torch.from_numpy(scene(0, 64, 96))[None]
    with pytest.raises(UserError, match="64x96 is too large: beyond 64x64 this model takes squares only"):
        family.encode_video(vae, wide)


@pytest.mark.parametrize(
    ("scheduler", "variant", "guidance", "shift"),
    [
        ({"_class_name": "UniPCMultistepScheduler", "flow_shift": 3.0}, "full", 5.0, 3.0),
        ({"_class_name": "FlowMatchLCMScheduler", "shift": 6.0}, "dev", 1.0, 6.0),
        ({"_class_name": "FlowMatchLCMScheduler", "shift": 3.0}, "fast", 1.0, 3.0),
    ],
)
def test_variants_are_told_by_their_scheduler(
    tmp_path: Path, scheduler: dict[str, object], variant: str, guidance: float, shift: float
) -> None:
    folder = write_tiny_hidream(tmp_path / "model")
    (folder / "scheduler/scheduler_config.json").write_text(json.dumps(scheduler), encoding="utf-8")
    spec = open_model(folder).spec
    assert (spec.variant, spec.guidance, spec.sample_shift) == (f"small-{variant}", guidance, shift)
    assert spec.step_distilled == (variant != "full")


def test_what_cannot_be_trained_is_named(tmp_path: Path) -> None:
    folder = write_tiny_hidream(tmp_path / "model")
    (folder / "model_index.json").write_text('{"_class_name": "HiDreamImageEditingPipeline"}', encoding="utf-8")
    (folder / "text_encoder_4/model.safetensors").unlink()
    with pytest.raises(UserError, match=r"(?s)text_encoder_4.*Put Llama-3\.1-8B-Instruct.*is made for HiDreamImageEditingPipeline"):
        open_model(folder)


def test_long_texts_are_told(family: ModelFamily) -> None:
    encoder = family.load_text_encoder(torch.float32)
    found = family.encode_text(encoder, "x" * (TOKENS - 1))
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {"pooled": (32,), "t5": (TOKENS, 16), "llama": (2, TOKENS, 16)}
    assert encoder.truncated == []
    family.encode_text(encoder, "x" * TOKENS)
    assert len(encoder.truncated) == 1


@pytest.mark.parametrize("alpha", [4.0, 64.0])
def test_diffusers_reads_the_file(family: ModelFamily, folder: Path, tmp_path: Path, alpha: float) -> None:
    transformer = family.load_transformer(torch.float32)
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=16, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
    file = Exporter(tmp_path, "run", TrainingJob.parse({}), family)(lora, 500)
    pipeline = tiny_pipeline(folder, 64)
    pipeline.transformer.eval()
    with torch.no_grad():
        ours, base = (module(**inputs(), return_dict=False)[0] for module in (transformer, pipeline.transformer))
        pipeline.load_lora_weights(str(file))
        theirs = pipeline.transformer(**inputs(), return_dict=False)[0]
    assert (ours - base).norm() / base.norm() > 0.01
    assert (ours - theirs).norm() / ours.norm() < 1e-4
