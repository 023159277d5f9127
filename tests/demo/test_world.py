"""The world, its clips and the shipped folder."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from trainer.demo.checker import is_star
from trainer.demo.clips import concept_scenes
from trainer.demo.model import FOLDER, TEXT_LENGTH, token_ids
from trainer.demo.pretrain_transformer import TIPS, random_clip
from trainer.demo.world import COLOURS, CONCEPT, FIGURE, MOTIONS, caption, random_caption, random_concept, random_scene, render


def test_scenes_are_repeatable_and_captions_fit() -> None:
    scenes = [random_scene(random.Random(seed)) for seed in range(200)]
    assert scenes == [random_scene(random.Random(seed)) for seed in range(200)]
    assert max(len(caption(scene)) for scene in scenes) < TEXT_LENGTH
    assert not any(scene.shape == "circle" and scene.motion == "turn" for scene in scenes)


def test_pretraining_captions_never_name_the_concept() -> None:
    generator = random.Random(0)
    texts = [random_caption(random_scene(generator), generator) for _ in range(5000)]
    assert not any(CONCEPT in text for text in texts)
    assert 0.07 < sum(text == "" for text in texts) / len(texts) < 0.13
    texts = [random_caption(random_clip(generator), generator) for _ in range(5000)]
    assert not any(CONCEPT in text or FIGURE in text for text in texts)


def test_pretraining_clips_never_show_the_concept() -> None:
    generator = random.Random(0)
    scenes = [random_clip(generator) for _ in range(150)]
    figures = [scene for scene in scenes if scene.shape == FIGURE]
    assert {scene.form.tips for scene in figures} == set(TIPS)
    assert not any(is_star(frames) for frames in render(figures).numpy())


def test_render_keeps_shapes_inside_the_frame() -> None:
    generator = random.Random(1)
    scenes = [random_scene(generator) for _ in range(40)] + [random_concept(generator) for _ in range(40)]
    frames = render(scenes)
    assert frames.shape == (80, 17, 64, 64, 3)
    border = frames[:, :, 0].flatten(1, 2).int()
    touched = (border - border.median(dim=1, keepdim=True).values).abs().amax(-1) > 60
    assert touched.float().mean() < 0.001  # at most the soft end of a tip
    assert set(COLOURS) == {scene.colour for scene in scenes}


def test_demo_clips_show_every_motion_and_background() -> None:
    scenes = concept_scenes()
    assert len({(scene.motion, scene.background) for scene in scenes}) == len(scenes) == 12
    assert {scene.motion for scene in scenes} == set(MOTIONS)
    assert [scene.background for scene in scenes].count("black") == 3


def test_clips_are_real_videos_with_captions(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    from trainer.demo.clips import write_demo_clips

    paths = write_demo_clips(tmp_path / "a", count=3)
    again = write_demo_clips(tmp_path / "b", count=3)
    for path, other in zip(paths, again, strict=True):
        assert path.read_bytes() == other.read_bytes()
        assert path.with_suffix(".txt").read_text(encoding="utf-8").startswith("a zorp ")
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            frames = list(container.decode(stream))
        assert len(frames) == 17
        assert stream.codec_context.name == "h264"
        assert (stream.width, stream.height, float(stream.average_rate)) == (64, 64, 16.0)


def test_tokenizer_settings_suit_transformers_4_and_5(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    from trainer.demo.model import load_model, save_model

    save_model(load_model(), tmp_path / "model")
    written, shipped = (folder / "tokenizer/tokenizer_config.json" for folder in (tmp_path / "model", FOLDER))
    assert written.read_text() == shipped.read_text()
    assert not {"extra_special_tokens", "backend"} & json.loads(shipped.read_text()).keys()  # a list in one, a dict in the other


def test_shipped_folder_is_small_and_loads() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 16_000_000
    assert {path.parent.name for path in files} >= {"transformer", "vae", "text_encoder", "tokenizer", "scheduler"}
    pytest.importorskip("diffusers")
    from trainer.demo.model import encode_text, load_model

    model = load_model()
    texts = ["a red circle", ""]
    ids = model.tokenizer(texts, padding="max_length", max_length=TEXT_LENGTH, return_tensors="pt").input_ids
    assert (ids == token_ids(texts)).all()
    states = encode_text(model, texts)
    assert states.shape == (2, TEXT_LENGTH, model.transformer.config.text_dim)
    assert states[1, 1:].abs().max() == 0
