"""Texts trimmed to the longest of a batch, with a mask only where one is shorter, against diffusers' full padding and masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tiny import ALL, Tiny
from trainer.models import open_model
from trainer.models.base import ModelFamily, ModelInputs

MASK = "encoder_attention_mask"
MASKING = [tiny for tiny in ALL if tiny.family in ("hunyuan_video", "framepack", "hunyuan_video_15", "ltx_video", "mochi")]
LENGTHS = {"one": [(7, 3)], "equal": [(7, 3), (7, 3)], "unlike": [(7, 3), (4, 5)], "without glyphs": [(7, 0), (7, 3)]}


@pytest.fixture(scope="module", params=MASKING, ids=str)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFamily:
    tiny: Tiny = request.param
    return open_model(tiny.write(tmp_path_factory.mktemp("tiny") / "model"))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def texts_of(family: ModelFamily, lengths: list[tuple[int, int]]) -> list[dict[str, Tensor]]:
    config = family.transformer_config
    width = config.get("text_embed_dim") or config["caption_channels"]
    more = {"pooled": config.get("pooled_projection_dim", 1)} if family.spec.family in ("hunyuan_video", "framepack") else {}
    texts: list[dict[str, Tensor]] = []
    for place, (tokens, glyphs) in enumerate(lengths):
        text = {"text": random(tokens, width, seed=place)} | {name: random(size, seed=place) for name, size in more.items()}
        if family.spec.family == "hunyuan_video_15":
            text["glyphs"] = random(glyphs, config["text_embed_2_dim"], seed=9 + place)
        texts.append(text)
    return texts


def given_of(family: ModelFamily, count: int) -> dict[str, Tensor]:
    """Random encodings of clips, and what the family is given beside them."""
    if family.spec.family == "framepack":
        image = random(5, family.transformer_config["image_proj_dim"])
        encoding = family.section({"latents": random(16, 19, 4, 4), "start": random(16, 1, 4, 4), "image": image}, 0)
        given = family.stack([encoding] * count)
    else:
        channels, first = family.spec.latent_channels, {"hunyuan_video": "image_latents"}.get(family.spec.family, "first_frame")
        given = {"latents": random(count, channels, 2, 4, 4)}
        if family.spec.required:
            given[first] = random(count, channels, 1, 4, 4, seed=1)
        if family.spec.image_encoder:
            given["seen"] = random(count, 4, family.transformer_config["image_embed_dim"], seed=2)
    return given | ({"guidance": torch.full((count,), 3.0)} if family.spec.guidance_input is not None else {})


def inputs_of(family: ModelFamily, texts: list[dict[str, Tensor]]) -> ModelInputs:
    given = given_of(family, len(texts))
    return family.model_inputs(
        given, family.text_inputs(texts), random(*given["latents"].shape, seed=3), torch.linspace(0.4, 0.8, len(texts))
    )


def fully_padded(family: ModelFamily, texts: list[dict[str, Tensor]], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the pipelines have them: texts padded to the model's length, with numbers that must not be seen, and masked."""
    made = dict(kwargs)
    for name, suffix in (("text", ""), ("glyphs", "_2")):
        if name not in texts[0]:
            continue
        length, hidden = family.spec.text_length, [text[name] for text in texts]
        made[f"encoder_hidden_states{suffix}"] = torch.stack([torch.cat([h, random(length - len(h), h.shape[1], seed=7)]) for h in hidden])
        made[f"{MASK}{suffix}"] = torch.stack([torch.arange(length) < len(h) for h in hidden]).float()
    return made


def velocity(family: ModelFamily, transformer: Any, inputs: ModelInputs, ours: bool) -> tuple[Tensor, Tensor]:
    """The velocity, and the gradient of its square for the latents."""
    hidden = inputs.kwargs["hidden_states"].detach().requires_grad_()
    inputs = ModelInputs(inputs.kwargs | {"hidden_states": hidden}, inputs.x, inputs.sigma, inputs.target)
    found = (family.predict if ours else ModelFamily.predict.__get__(family))(transformer, inputs)
    (gradient,) = torch.autograd.grad(found.square().mean(), hidden)
    return found.detach(), gradient


@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointing"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_equals_full_padding_with_masks(family: ModelFamily, lengths: list[tuple[int, int]], checkpointing: bool) -> None:
    texts = texts_of(family, lengths)
    inputs = inputs_of(family, texts)
    assert all(inputs.kwargs[name].shape[1] < 10 for name in inputs.kwargs if name.startswith("encoder_hidden_states"))
    ours, diffusers = family.load_transformer(torch.float32), ModelFamily.load_transformer(family, torch.float32)
    if checkpointing:
        ours.enable_gradient_checkpointing()
        ours.train()
    reference = ModelInputs(fully_padded(family, texts, inputs.kwargs), inputs.x, inputs.sigma, inputs.target)
    for mine, theirs in zip(velocity(family, ours, inputs, True), velocity(family, diffusers, reference, False), strict=True):
        assert (mine - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_attention_has_a_mask_only_where_a_text_is_padded(
    family: ModelFamily, lengths: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    masks, attention = list[bool](), torch.nn.functional.scaled_dot_product_attention

    def watched(query: Tensor, key: Tensor, *args: Any, attn_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        if query.shape[2] > 1:  # Mochi's pooled text is one query of a few keys
            masks.append(attn_mask is not None)
        return attention(query, key, *args, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    texts, transformer = texts_of(family, lengths), family.load_transformer(torch.float32)
    inputs = inputs_of(family, texts)
    padded = len({tuple(map(len, (text["text"], text.get("glyphs", "")))) for text in texts}) > 1
    with torch.no_grad():
        family.predict(transformer, inputs)
    assert any(masks) == padded, masks
