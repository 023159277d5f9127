"""HunyuanVideo-1.5's texts, samples, variants and files against diffusers' pipelines."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.data.footage import scene
from tests.tiny.hunyuan_video_15 import GLYPHS, SEEN, TEXT, tiny_pipeline, write_tiny
from trainer.adapters.export import Exporter
from trainer.adapters.lora import Lora
from trainer.compute import Compute
from trainer.errors import UserError
from trainer.job import AdapterSettings, ComputeSettings, TrainingJob
from trainer.models import open_model
from trainer.models.hunyuan_video_15.family import DEFAULTS, HunyuanVideo15
from trainer.models.hunyuan_video_15.text import GLYPH_LENGTH, TEXT_LENGTH
from trainer.sampling import SampleRequest, VideoSampler, start_noise

PROMPT = 'a sign that says "open" and “open”, another "closed"'


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {task: write_tiny(tmp_path_factory.mktemp(task), task) for task in ("t2v", "i2v")}


@pytest.mark.parametrize("prompt", [PROMPT, "", 'empty "" quotes', '"' + "z" * 300 + '" ' + "y" * 1200])
def test_texts_are_the_pipelines(folders, prompt):
    """Without padding what its masks leave, also of texts that are too long, which are told."""
    family, pipeline = open_model(folders["t2v"]), tiny_pipeline(folders["t2v"])
    encoder = family.load_text_encoder(torch.float32)
    ours = family.encode_text(encoder, prompt)
    with torch.no_grad():
        text, text_mask, glyphs, glyph_mask = pipeline.encode_prompt(prompt)
    for mine, theirs, mask in ((ours["text"], text, text_mask), (ours["glyphs"], glyphs, glyph_mask)):
        kept = theirs[mask.bool()]
        assert mine.shape == kept.shape and torch.allclose(mine, kept, rtol=1e-4, atol=1e-5)
    assert len(ours["glyphs"]) == 0 if '"' not in prompt else len(ours["glyphs"]) > 5
    assert encoder.truncated == ([prompt] if len(prompt) > TEXT_LENGTH else [])
    assert len(ours["text"]) <= TEXT_LENGTH and len(ours["glyphs"]) <= GLYPH_LENGTH


def test_the_vaes_mask_is_diffusers_own_without_a_step_for_each_token(folders):
    """Whose loop over all tokens took a plan 70 seconds."""
    from diffusers.models.autoencoders.autoencoder_kl_hunyuanvideo15 import HunyuanVideo15AttnBlock

    vae = open_model(folders["t2v"]).load_vae()
    blocks = [module for module in vae.modules() if isinstance(module, HunyuanVideo15AttnBlock)]
    assert len(blocks) == 2
    for block in blocks:
        for arguments in ((3, 4, torch.float32, "cpu"), (2, 1, torch.bfloat16, "cpu", 2)):
            ours, theirs = (
                block.prepare_causal_attention_mask(*arguments),
                HunyuanVideo15AttnBlock.prepare_causal_attention_mask(*arguments),
            )
            assert block.prepare_causal_attention_mask is not HunyuanVideo15AttnBlock.prepare_causal_attention_mask
            assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype


@pytest.mark.parametrize("task", ["t2v", "i2v"])
def test_sampling_equals_the_pipeline(folders, tmp_path, task):
    """Words in quotes, guidance towards a text without any, and decoding."""
    folder, pictures = folders[task], {}
    request = SampleRequest(PROMPT, frames=5, height=32, width=32, negative="blue", steps=3, seed=5)
    if task == "i2v":
        pictures = {"image": Image.fromarray(scene(3, 32, 32))}
        pictures["image"].save(tmp_path / "first.png")
        request = replace(request, first_frame=str(tmp_path / "first.png"))
    sampler = VideoSampler(folder, ComputeSettings(device="cpu"))
    assert sampler.family.spec.guidance == 4.0, "the folder's guider"
    ours, noise = sampler(request), start_noise(sampler.family.spec, request)
    frames = tiny_pipeline(folder, guidance=4.0)(
        prompt=PROMPT, negative_prompt="blue", num_frames=5, num_inference_steps=3, latents=noise, output_type="pt",
        **(pictures or {"height": 32, "width": 32}),
    ).frames[0]  # fmt: skip
    theirs = (frames.permute(0, 2, 3, 1) * 255).round()
    assert theirs.std() > 5 and (ours.float() - theirs).abs().max() <= 1


def test_examples_of_a_batch_are_as_alone(folders):
    """Texts of unlike length, with and without words in quotes: their padding is not seen."""
    family = open_model(folders["t2v"])
    generator = torch.Generator().manual_seed(0)
    texts = [
        {"text": torch.randn(long, TEXT, generator=generator), "glyphs": torch.randn(glyphs, GLYPHS, generator=generator)}
        for long, glyphs in ((9, 0), (4, 7))
    ]
    latents, noise = torch.randn(2, 2, 32, 2, 2, 2, generator=generator)
    sigma, transformer = torch.tensor([0.3, 0.8]), family.load_transformer(torch.float32)

    def velocity(*places: int) -> torch.Tensor:
        chosen = list(places)
        text = family.text_inputs([texts[place] for place in chosen])
        with torch.no_grad():
            return family.predict(transformer, family.model_inputs({"latents": latents[chosen]}, text, noise[chosen], sigma[chosen]))

    assert torch.allclose(velocity(0, 1), torch.cat([velocity(0), velocity(1)]), rtol=1e-4, atol=1e-5)


def test_half_precision(folders):
    """In the run's autocast on a CPU, with words in quotes and a picture: near to float32, with finite gradients."""
    family, found = open_model(folders["i2v"]), []
    generator = torch.Generator().manual_seed(0)
    text = family.text_inputs([{"text": torch.randn(9, TEXT, generator=generator), "glyphs": torch.randn(5, GLYPHS, generator=generator)}])
    shapes = {"latents": (32, 2, 2, 2), "first_frame": (32, 1, 2, 2), "seen": (4, SEEN)}
    batch = {name: torch.randn(1, *shape, generator=generator) for name, shape in shapes.items()}
    for dtype in ("fp32", "bf16"):
        compute = Compute(ComputeSettings.model_validate({"device": "cpu", "dtype": dtype}))
        transformer = family.load_transformer(compute.dtype)
        lora = Lora.attach(transformer, family.spec, AdapterSettings(), seed=0)
        for number, parameter in enumerate(lora.parameters()):
            parameter.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(number))
        with compute.autocast():
            found.append(family.predict(transformer, family.model_inputs(batch, text, batch["latents"].flip(2), torch.tensor([0.6]))))
        found[-1].float().square().mean().backward()
        assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in lora.parameters())
    assert 0 < (found[1].float() - found[0]).norm() / found[0].norm() < 0.05


class Described:
    """The files of a released model as far as its variant is told by them."""

    name = "released"

    def __init__(self, **configs: dict[str, object]) -> None:
        self.configs = configs

    def config(self, part: str) -> dict[str, object]:
        return self.configs.get(part, {})


@pytest.mark.parametrize(
    ("transformer", "guider", "variant", "bucket", "guidance"),
    [
        ({"task_type": "t2v"}, {"guidance_scale": 6.0}, "t2v-480p", (49, 480, 832), 6.0),
        ({"task_type": "i2v", "target_size": 960}, {"guidance_scale": 6.0}, "i2v-720p", (49, 720, 1280), 6.0),
        ({"task_type": "t2v"}, {"guidance_scale": 1.0}, "t2v-480p", (49, 480, 832), 1.0),
        ({"task_type": "i2v"}, {"guidance_scale": 6.0, "enabled": False}, "i2v-480p", (49, 480, 832), 1.0),
    ],
)
def test_released_variants(transformer, guider, variant, bucket, guidance):
    spec = HunyuanVideo15(Described(transformer=DEFAULTS | transformer, guider=guider)).spec  # type: ignore[arg-type]
    assert (spec.variant, spec.default_bucket, spec.guidance, spec.step_distilled) == (variant, bucket, guidance, guidance == 1)
    assert spec.required == (("first_frame",) if variant.startswith("i2v") else ())
    assert spec.latent_shape(*bucket) == (32, 13, bucket[1] // 16, bucket[2] // 16)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("transformer/config.json", {"in_channels": 98}, "98 input channels, not 65"),
        ("transformer/config.json", {"use_meanflow": True}, "second timestep"),
        ("transformer/config.json", {"task_type": "v2v"}, "task_type is 'v2v'"),
        ("image_encoder/model.safetensors", None, "image_encoder: holds no .safetensors file"),
        ("feature_extractor/preprocessor_config.json", None, "feature_extractor: is missing"),
        ("tokenizer_2/tokenizer_config.json", None, "tokenizer_2: is missing"),
    ],
)
def test_what_cannot_be_trained_is_named(folders, tmp_path, part, change, message):
    folder = tmp_path / "model"
    for file in folders["i2v"].rglob("*"):
        if file.is_file() and file != folders["i2v"] / part:
            (folder / file.relative_to(folders["i2v"])).parent.mkdir(parents=True, exist_ok=True)
            (folder / file.relative_to(folders["i2v"])).symlink_to(file)
    if change is not None:
        (folder / part).write_text(json.dumps(json.loads((folders["i2v"] / part).read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        open_model(folder)


def test_diffusers_reads_the_copy(folders, tmp_path):
    """The last block's text layers, which nothing comes out of, are left out."""
    family = open_model(folders["i2v"])
    transformer, plain = (family.load_transformer(torch.float32) for _ in range(2))
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=16, alpha=4.0), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
    assert len(lora.layers) == 2 * 12 - 4
    file = Exporter(tmp_path, "run", TrainingJob.parse({}), family)(lora, 500)
    copy = load_file(file.with_name("run-step-000500-diffusers.safetensors"))
    generator = torch.Generator().manual_seed(1)
    inputs = {
        "hidden_states": torch.randn(1, 65, 2, 2, 2, generator=generator), "timestep": torch.tensor([700.0]),
        "encoder_hidden_states": torch.randn(1, 5, TEXT, generator=generator), "encoder_attention_mask": torch.ones(1, 5),
        "encoder_hidden_states_2": torch.randn(1, 3, GLYPHS, generator=generator), "encoder_attention_mask_2": torch.ones(1, 3),
        "image_embeds": torch.randn(1, 4, SEEN, generator=generator), "return_dict": False,
    }  # fmt: skip
    with torch.no_grad():
        ours, base = transformer(**inputs)[0], plain(**inputs)[0]
        plain.load_lora_adapter(copy, prefix="transformer")
        theirs = plain(**inputs)[0]
    assert (ours - base).norm() / base.norm() > 0.01
    assert (ours - theirs).norm() / ours.norm() < 1e-4
