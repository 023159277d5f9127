"""Models out of ComfyUI's single files: the tensors of the diffusers folder, in every format, and trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sentencepiece
import torch
from safetensors.torch import save_file

from tests.data.footage import scene
from tests.data.synthetic import write_clip
from tests.tiny import ALL, Tiny
from tests.tiny.ltx_video import write_tiny_ltx
from tests.tiny.single_files import quantised, read, sentencepiece_model, write_single_files
from tests.tiny.wan import write_tiny_wan
from trainer.adapters.file import load_lora
from trainer.errors import UserError
from trainer.job import ModelSettings, TrainingJob
from trainer.memory.frozen import FrozenLinear
from trainer.models import open_model
from trainer.models.shapes import OWN_CONFIG
from trainer.run import Places, RunResult, run

HALF = torch.bfloat16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_wan(tmp_path_factory.mktemp("tiny") / "folder")


@pytest.fixture(scope="module")
def files(folder: Path) -> ModelSettings:
    return write_single_files(folder, folder.parent / "files")


def changed(files: ModelSettings, **settings: object) -> ModelSettings:
    return files.model_copy(update={name: str(value) for name, value in settings.items()})


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All of a model's tensors, frozen layers' unpacked."""
    found = {name: tensor for name, tensor in module.state_dict().items() if not name.endswith(("weight_data", "scale_bits"))}
    layers = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, FrozenLinear)]
    return found | {f"{name}.weight": layer.weight for name, layer in layers}


def assert_same(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    one, other = weights(ours), weights(theirs)
    assert one.keys() == other.keys()
    assert [name for name in one if one[name].dtype != other[name].dtype or not torch.equal(one[name], other[name])] == []
    assert not ours.training


@pytest.mark.parametrize("tiny", ALL, ids=str)
def test_every_part_has_the_tensors_of_the_folder(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "folder")
    ours, theirs = open_model(write_single_files(folder, tmp_path / "files")), open_model(folder)
    alike = ("variant", "experts", "conditions", "required", "image_encoder", "latent_channels", "latent_stride", "frame_rule")
    assert [getattr(ours.spec, name) for name in alike] == [getattr(theirs.spec, name) for name in alike]
    assert ours.layer_shapes == theirs.layer_shapes
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for expert in ours.spec.experts:
            assert_same(ours.load_transformer(dtype, expert.part), theirs.load_transformer(dtype, expert.part))
        assert_same(ours.load_text_encoder(dtype).module, theirs.load_text_encoder(dtype).module)
        if ours.spec.image_encoder:
            assert_same(ours.load_image_encoder(dtype).module, theirs.load_image_encoder(dtype).module)
    assert_same(ours.load_vae(), theirs.load_vae())


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("prefix", ["model.diffusion_model.", "diffusion_model.", "model.", "net.", ""])
def test_any_prefix_and_precision(files: ModelSettings, tmp_path: Path, prefix: str, stored: torch.dtype) -> None:
    tensors, metadata = read(files.transformer)
    save_file({prefix + name: tensor.to(stored) for name, tensor in tensors.items()}, tmp_path / "x.safetensors", metadata)
    ours = open_model(changed(files, transformer=tmp_path / "x.safetensors")).load_transformer(HALF)
    wanted = open_model(files).load_transformer(torch.float32)
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, wanted.state_dict()[name].to(stored).to(tensor.dtype)), name


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
@pytest.mark.parametrize("layout", ["plain", "old", "new", "metadata"])
def test_fp8_layouts_load_to_weight_times_scale(files: ModelSettings, tmp_path: Path, layout: str, prefix: str) -> None:
    meant = quantised(files.transformer, tmp_path / "x.safetensors", layout, prefix)
    save_file({name: t.contiguous() for name, t in meant.items()}, tmp_path / "meant.safetensors", read(files.transformer)[1])
    wanted = open_model(changed(files, transformer=tmp_path / "meant.safetensors"))
    given = changed(files, transformer=tmp_path / "x.safetensors")
    for dtype in (torch.float32, HALF):
        for keep in (False, True):
            ours = open_model(given).load_transformer(dtype, weights="as stored" if keep else "unquantized")
            assert_same(ours, wanted.load_transformer(dtype))
            assert sum(isinstance(layer, FrozenLinear) for layer in ours.modules()) == (2 * 10 if keep else 0)


def test_scales_of_rows_and_other_fp8(files: ModelSettings, tmp_path: Path) -> None:
    tensors, metadata = read(files.transformer)
    name = "blocks.1.ffn.0.weight"
    rows = tensors[name].abs().amax(1) / 1000
    tensors |= {name: (tensors[name] / rows[:, None]).to(torch.float8_e5m2), "blocks.1.ffn.0.weight_scale": rows}
    save_file(tensors, tmp_path / "x.safetensors", metadata)
    meant = tensors[name].float() * rows[:, None]
    for keep in (False, True):
        model = open_model(changed(files, transformer=tmp_path / "x.safetensors")).load_transformer(
            torch.float32, weights="as stored" if keep else "unquantized"
        )
        assert torch.equal(weights(model)["blocks.1.ffn.net.0.proj.weight"], meant)


def test_a_quantised_text_encoder_gives_the_same_embeddings_kept_and_unpacked(files: ModelSettings, tmp_path: Path) -> None:
    quantised(files.text_encoders[0], tmp_path / "text.safetensors", "old")
    given = files.model_copy(update={"text_encoders": [str(tmp_path / "text.safetensors")]})
    family = open_model(given)
    kept, unpacked = family.load_text_encoder(HALF), family.load_text_encoder(HALF)
    assert any(isinstance(layer, FrozenLinear) for layer in kept.module.modules())
    unpacked.module = family.files.load("text_encoder", type(kept.module), HALF, "unquantized")
    assert not any(isinstance(layer, FrozenLinear) for layer in unpacked.module.modules())
    assert torch.equal(*(family.encode_text(encoder, "a red circle")["text"] for encoder in (kept, unpacked)))


@pytest.mark.parametrize("size", [120, 400])
def test_the_tokenizer_inside_the_text_encoder(folder: Path, files: ModelSettings, tmp_path: Path, size: int) -> None:
    tensors, _ = read(files.text_encoders[0])
    model = sentencepiece_model(size)
    tensors["spiece_model"] = torch.frombuffer(bytearray(model), dtype=torch.uint8)
    save_file(tensors, tmp_path / "text.safetensors")
    encoder = open_model(files.model_copy(update={"text_encoders": [str(tmp_path / "text.safetensors")]})).load_text_encoder(torch.float32)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in ("a red circle moves", "  two  spaces ", "½ ﬁne Ｆull", "unknown 漢字 and\nlines", ""):
        assert encoder.tokenizer(text).input_ids == theirs.encode(text, add_eos=True), text


def test_identity_is_of_contents_not_of_names(files: ModelSettings, tmp_path: Path) -> None:
    (tmp_path / "renamed.safetensors").write_bytes(Path(files.vae).read_bytes())
    one, other = (
        open_model(files).files.paths(["vae"]),
        open_model(changed(files, vae=tmp_path / "renamed.safetensors")).files.paths(["vae"]),
    )
    assert one.keys() == other.keys() == {"vae/config.json", "vae/weights"} and one["vae/weights"] != other["vae/weights"]
    parts = open_model(files).files.paths(["text_encoder", "tokenizer"])
    assert {"text_encoder/weights", "text_encoder/config.json", "tokenizer/config.json"} == parts.keys()


class TestTraining:
    """Whole runs from single files."""

    def run(self, model: ModelSettings, folder: Path, clips: Path, **memory: bool) -> RunResult:
        job = TrainingJob.parse({
            "model": model.model_dump(), "memory": memory,
            "dataset": {"sources": [{"kind": "folder", "folder": str(clips)}], "buckets": [{"frames": 5, "height": 32, "width": 32}]},
            "adapter": {"rank": 4}, "schedule": {"steps": 2}, "samples": {"every": 2, "steps": 2, "prompts": [{"prompt": "a clip"}]},
            "compute": {"device": "cpu"}, "output": {"name": "run"},
        })  # fmt: skip
        return run(job, Places.under(folder))

    def test_trains_as_from_the_folder_and_from_fp8_kept_or_unpacked(
        self, folder: Path, files: ModelSettings, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        clips = tmp_path_factory.mktemp("clips")
        write_clip(clips / "0.mp4", [scene(n, 32, 32) for n in range(9)], rate=16)
        (clips / "0.txt").write_text("a red circle", encoding="utf-8")
        quantised(files.transformer, tmp_path / "fp8.safetensors", "old")
        given = changed(files, transformer=tmp_path / "fp8.safetensors")
        plain, kept, unpacked = (
            self.run(model, tmp_path / name, clips, weights="auto" if name == "kept" else "unquantized")
            for name, model in (("plain", files), ("kept", given), ("unpacked", given))
        )
        assert len(plain.losses) == 2 and plain.losses != kept.losses and kept.losses == unpacked.losses
        assert len(kept.samples) == 1 and kept.lora.read_bytes() != plain.lora.read_bytes()
        from_folder = open_model(folder)
        assert load_lora(kept.lora, from_folder).pairs.keys() == load_lora(plain.lora, from_folder).pairs.keys()
        again = self.run(given, tmp_path / "kept", clips, weights="auto")
        assert again.run_id == kept.run_id and again.losses == kept.losses


def test_a_checkpoint_of_all_parts(tmp_path: Path) -> None:
    """As LTX-Video's: transformer, VAE and text encoder in one file, each below its prefix; the tokenizer is ComfyUI's own."""
    folder = write_tiny_ltx(tmp_path / "folder")
    alone = write_single_files(folder, tmp_path / "files")
    places = {"model.diffusion_model.": alone.transformer, "vae.": alone.vae, "text_encoders.t5xxl.transformer.": alone.text_encoders[0]}
    whole = {prefix + name: tensor for prefix, file in places.items() for name, tensor in read(file)[0].items()}
    configs = [json.loads(read(file)[1].get(OWN_CONFIG, "{}")) for file in places.values()]
    save_file(whole, tmp_path / "x.safetensors", {OWN_CONFIG: json.dumps({name: own for part in configs for name, own in part.items()})})
    given = ModelSettings(transformer=str(tmp_path / "x.safetensors"), tokenizers=alone.tokenizers)
    ours, theirs = open_model(given), open_model(folder)
    assert_same(ours.load_transformer(torch.float32), theirs.load_transformer(torch.float32))
    assert_same(ours.load_vae(), theirs.load_vae())
    encoder = ours.load_text_encoder(torch.float32)
    assert_same(encoder.module, theirs.load_text_encoder(torch.float32).module)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model())
    assert encoder.tokenizer("a red circle").input_ids == pieces.encode("a red circle", add_eos=True)
    assert ours.files.paths(["tokenizer"]).keys() == {"tokenizer/config.json", "tokenizer/tokenizer.json"}
    for tokenizers, found in (
        ("", "is empty, and this text encoder's file holds no tokenizer"),
        (str(tmp_path), "has no text_encoders/t5"),
    ):
        with pytest.raises(UserError, match=rf"model\.tokenizers: .*{found}.*Give the folder comfy of a ComfyUI installation"):
            open_model(given.model_copy(update={"tokenizers": tokenizers}))


def test_one_tensor_by_its_name_in_diffusers(folder: Path, files: ModelSettings) -> None:
    ours, theirs = open_model(files).files, open_model(folder).files
    for name in ("vae:decoder.up_blocks.1.resnets.0.norm1.gamma", "transformer:blocks.1.norm2.bias", "text_encoder:shared.weight"):
        part, _, own = name.partition(":")
        assert torch.equal(ours.tensor(part, own), theirs.tensor(part, own))
    for name in ("decoder.nothing", "decoder.up_blocks.9.resnets.0.norm1.gamma"):
        with pytest.raises(UserError, match=r"vae\.safetensors: (cannot hold|holds no tensor)"):
            ours.tensor("vae", name)
