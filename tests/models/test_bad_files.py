"""Files that do not belong, are damaged or cannot be read: each named with what was found and what to do, before anything large is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.models.headers import write_header
from tests.tiny.single_files import quantised, read, write_single_files
from tests.tiny.wan import write_tiny_a14b_t2v, write_tiny_wan
from trainer.errors import UserError
from trainer.job import ModelSettings
from trainer.models import open_model
from trainer.models.stored import StoredPart
from trainer.models.tensor_file import SafetensorsFile, open_tensors
from trainer.source import find_model

SMALL = 4096  # bytes of the largest tensor that may be read before all is checked: a format's name, a scale


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_wan(tmp_path_factory.mktemp("tiny") / "folder")


@pytest.fixture(scope="module")
def files(folder: Path) -> ModelSettings:
    return write_single_files(folder, folder.parent / "files")


@pytest.fixture(autouse=True)
def nothing_large_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SafetensorsFile.read

    def small(self: SafetensorsFile, name: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
        assert self.tensors[name].end - self.tensors[name].start <= SMALL, name
        return whole(self, name, start, stop)

    monkeypatch.setattr(SafetensorsFile, "read", small)


def refusal(files: ModelSettings, **changes: object) -> str:
    """What is said of the model with some files replaced; it must be refused."""
    with pytest.raises(UserError) as refused:
        open_model(find_model(files.model_copy(update=changes), [], None))
    return str(refused.value)


LAYER, QUERY = "encoder.block.0.layer.0.SelfAttention.", "diffusion_model.blocks.0.self_attn.q."
OTHERS = {  # what a file holds -> what it is called
    "a LoRA": {QUERY + "lora_A.weight": (4, 32), QUERY + "lora_B.weight": (32, 4)},
    "a Stable Diffusion checkpoint": {"model.diffusion_model.input_blocks.0.0.weight": (320, 4, 3, 3)},
    "a Flux model": {"img_in.weight": (3072, 64), "double_blocks.0.img_attn.qkv.weight": (9216, 3072)},
    "a ControlNet": {"control_model.input_blocks.0.0.weight": (320, 4, 3, 3)},
    "a T5 text encoder": {
        LAYER + "q.weight": (64, 64), LAYER + "relative_attention_bias.weight": (32, 2),
        "encoder.block.1.layer.0.SelfAttention.q.weight": (64, 64), "shared.weight": (100, 64),
    },
    "a CLIP text encoder": {
        "text_model.encoder.layers.0.mlp.fc1.weight": (64, 32), "text_model.embeddings.position_embedding.weight": (77, 32),
        "text_model.embeddings.token_embedding.weight": (100, 32),
    },
    "a VAE": {"decoder.conv_in.weight": (512, 4, 3, 3)},
    r"a file of an unknown kind \(its first tensor is 'x'\)": {"x": (2, 3)},
    "a file without tensors": {},
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_another_file_in_the_place_of_the_model(files: ModelSettings, tmp_path: Path, what: str) -> None:
    file = write_header(tmp_path / "other.safetensors", OTHERS[what])
    with pytest.raises(UserError, match=rf"model\.transformer: '.*other\.safetensors' is {what}\. Choose a diffusion model of .*wan"):
        open_model(files.model_copy(update={"transformer": str(file)}))


def test_our_own_files_in_each_others_places(files: ModelSettings) -> None:
    model, vae, text = files.transformer, files.vae, files.text_encoders[0]
    assert f"model.transformer: '{vae}' is a Wan VAE. Choose a diffusion model of" in refusal(files, transformer=vae)
    assert f"model.transformer: '{text}' is a UMT5 text encoder." in refusal(files, transformer=text)
    assert f"model.vae: '{model}' is a Wan diffusion model. Choose a Wan VAE." in refusal(files, vae=model)
    assert f"model.text_encoders: '{vae}' is a Wan VAE. Choose a UMT5 text encoder." in refusal(files, text_encoders=[vae])
    assert f"model.image_encoder: '{text}' is not needed by this model. Leave it empty." in refusal(files, image_encoder=text)
    assert f"model.text_encoders: '{text}' is a UMT5 text encoder too many. Remove it." in refusal(files, text_encoders=[text, text])


def test_all_problems_are_told_at_once(files: ModelSettings) -> None:
    told = refusal(files, vae=files.transformer, text_encoders=[files.vae]).splitlines()
    assert [line.partition(":")[0] for line in told] == ["model.vae", "model.text_encoders"]


def test_parts_that_are_missing(files: ModelSettings) -> None:
    said = refusal(files, vae="", text_encoders=[])
    assert "model.vae: has no file for vae: this model needs a VAE. Choose one." in said
    assert "model.text_encoders: has no file for text_encoder: this model needs a UMT5 text encoder. Choose one." in said
    assert "model.transformer: is empty" in refusal(files, transformer="")
    assert "model.source: 'x/y' is given beside single files (transformer.safetensors, …)" in refusal(files, source="x/y")


def test_parts_of_another_size(files: ModelSettings, tmp_path: Path) -> None:
    other = write_single_files(write_tiny_wan(tmp_path / "other", layers=3), tmp_path / "files")
    low = f"model.transformer_low: '{other.transformer}' differs from '{files.transformer}' in num_layers. Choose the one of the same"
    assert low in refusal(files, transformer_low=other.transformer)
    tensors, _ = read(files.text_encoders[0])
    wide = {
        name: torch.zeros(*tensor.shape[:-1], tensor.shape[-1] + 8) if tensor.dim() == 2 else tensor for name, tensor in tensors.items()
    }
    save_file(wide, tmp_path / "wide.safetensors")
    found = f"'{tmp_path / 'wide.safetensors'}' has d_model 24, and '{files.transformer}' needs 16"
    assert found in refusal(files, text_encoders=[str(tmp_path / "wide.safetensors")])


def test_files_that_are_damaged(files: ModelSettings, tmp_path: Path) -> None:
    whole = Path(files.transformer).read_bytes()
    file = tmp_path / "x.safetensors"
    for data, found in (
        (whole[:-1000], f"has {len(whole) - 1000:,} bytes, and its header tells of {len(whole):,}: it is cut off or damaged. Download it"),
        (whole[:100], "has 100 bytes, and its header tells of"),
        (b"", "has 0 bytes"),
        (whole + b"more", "it is cut off or damaged"),
        (whole[:8] + b"#" + whole[9:], "is not a readable .safetensors file: its header is damaged"),
        (b"PK\x03\x04" + bytes(range(200)), "is not a .safetensors file: it begins otherwise"),
    ):
        file.write_bytes(data)
        assert found in refusal(files, transformer=str(file))
    assert "does not exist. Choose a .safetensors file." in refusal(files, vae=str(tmp_path / "none.safetensors"))
    bad = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    bad["blocks.0.ffn.0.weight"]["shape"] = [1, 2]
    text = json.dumps(bad).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + int.from_bytes(whole[:8], "little") :])
    assert "its header is damaged" in refusal(files, transformer=str(file))


def test_a_model_that_lacks_tensors_or_has_strange_ones(files: ModelSettings, tmp_path: Path) -> None:
    tensors, metadata = read(files.transformer)
    file = tmp_path / "x.safetensors"
    given = files.model_copy(update={"transformer": str(file)})
    for changes, found in (
        ({"blocks.0.self_attn.q.bias": None}, r"lacks 1 of this model's tensors \(such as 'blocks\.0\.attn1\.to_q\.bias'\)"),
        ({"blocks.0.extra.weight": torch.zeros(2)}, r"has 1 tensors that this model does not have \(such as 'blocks\.0\.extra\.weight'\)"),
        ({"blocks.1.self_attn.q.bias": torch.zeros(3)}, r"has 'blocks\.1\.attn1\.to_q\.bias' of 3, and this model's is 32"),
    ):
        save_file({name: tensor for name, tensor in {**tensors, **changes}.items() if tensor is not None}, file, metadata)
        with pytest.raises(UserError, match=found):
            open_model(given)


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"config": DEEP, "video_trainer.config": DEEP, "_quantization_metadata": '{"a":' * 100_000}, ""),
        ({"video_trainer.config": json.dumps({"transformer": {"num_layers": "x"}})}, "x.safetensors: "),
        ({"video_trainer.config": json.dumps({"transformer": {"patch_size": None}})}, "x.safetensors: "),
        ({"video_trainer.config": json.dumps({"transformer": {"num_attention_heads": 0}})}, "x.safetensors: "),
    ],
)
def test_metadata_that_tell_nonsense(files: ModelSettings, tmp_path: Path, told: dict[str, str], found: str) -> None:
    tensors, metadata = read(files.transformer)
    if not found:  # what cannot be read tells nothing: the shapes do
        metadata.pop("video_trainer.config", None)
    save_file(tensors, tmp_path / "x.safetensors", metadata | told)
    if found:
        assert found in refusal(files, transformer=str(tmp_path / "x.safetensors"))
    else:
        open_tensors(tmp_path / "x.safetensors")
        assert not StoredPart(open_tensors(tmp_path / "x.safetensors")).shapes.config


@pytest.mark.parametrize("header", [DEEP, '{"__metadata__": [1]}', '{"__metadata__": {"format": 3}}', "[1]", '"x"'])
def test_headers_that_are_no_headers(tmp_path: Path, header: str) -> None:
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header.encode())
    with pytest.raises(UserError, match=r"x\.safetensors: is not a readable \.safetensors file: its header is damaged"):
        open_tensors(tmp_path / "x.safetensors")


def test_the_two_transformers_of_a_pair(tmp_path: Path) -> None:
    pair = write_single_files(write_tiny_a14b_t2v(tmp_path / "folder"), tmp_path / "files")
    assert f"model.transformer_low: '{pair.transformer}' is also the transformer: this model needs two files" in refusal(
        pair, transformer_low=pair.transformer
    )
    high, low = (tmp_path / f"wan2.2_t2v_{level}_noise.safetensors" for level in ("high", "low"))
    high.write_bytes(Path(pair.transformer).read_bytes())
    low.write_bytes(Path(pair.transformer_low).read_bytes())
    open_model(pair.model_copy(update={"transformer": str(high), "transformer_low": str(low)}))
    assert f"model.transformer: '{low.name}' is by its name the model for low noise levels" in refusal(
        pair, transformer=str(low), transformer_low=str(high)
    )


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (
            {"blocks.0.z.weight": torch.tensor(1.0), "blocks.0.z.scale_weight": torch.ones(1)},
            r"'blocks\.0\.z\.scale_weight' is the scale of a",
        ),
        ({"blocks.0.ffn.0.comfy_quant": {"format": "nvfp4"}}, r"'blocks\.0\.ffn\.0' is quantised as nvfp4"),
        ({"blocks.0.ffn.0.weight_scale": torch.ones(3)}, r"'blocks\.0\.ffn\.0\.weight_scale' has 3 numbers for 64 rows"),
        ({"blocks.0.ffn.0.weight_scale_inv": torch.ones(1)}, r"'blocks\.0\.ffn\.0\.weight_scale_inv' of type F32 tells of a quantisation"),
        ({"blocks.0.ffn.0.weight": torch.zeros(64, 32, dtype=torch.int8)}, r"'blocks\.0\.ffn\.0\.weight' of type I8 tells"),
        ({"blocks.9.ffn.0.weight_scale": torch.ones(1)}, r"'blocks\.9\.ffn\.0\.weight_scale' is the scale of a weight that is not there"),
        ({"blocks.0.ffn.0.weight": torch.zeros(64, 32, dtype=torch.uint16)}, r"'blocks\.0\.ffn\.0\.weight' is of type U16"),
    ],
)
def test_quantised_files_of_unknown_layout(files: ModelSettings, tmp_path: Path, changes: dict[str, object], found: str) -> None:
    quantised(files.transformer, tmp_path / "fp8.safetensors", "plain")
    tensors, metadata = read(tmp_path / "fp8.safetensors")
    for name, value in changes.items():
        made = value if isinstance(value, torch.Tensor) else torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        tensors[name] = made
    save_file(tensors, tmp_path / "x.safetensors", metadata)
    with pytest.raises(UserError, match=rf"x\.safetensors: is quantised in a way that is not known here: {found}.*Choose the bf16"):
        open_model(files.model_copy(update={"transformer": str(tmp_path / "x.safetensors")}))


def test_a_folder_with_a_missing_or_damaged_shard(tmp_path: Path) -> None:
    from diffusers import WanTransformer3DModel

    folder = write_tiny_wan(tmp_path / "folder")
    model = WanTransformer3DModel.from_pretrained(folder / "transformer")
    (folder / "transformer/diffusion_pytorch_model.safetensors").unlink()
    model.save_pretrained(folder / "transformer", max_shard_size="60KB")
    shards = sorted((folder / "transformer").glob("*.safetensors"))
    assert len(shards) > 2
    open_model(folder)
    shards[0].write_bytes(shards[0].read_bytes()[:-10])
    with pytest.raises(UserError, match=rf"{shards[0].name}: has .* bytes, and its header tells of .*: it is cut off"):
        open_model(folder)
    shards[1].unlink()
    with pytest.raises(UserError, match=rf"transformer: lacks {shards[1].name}: .*index\.json names {len(shards)} files, and .* there"):
        open_model(folder)


def test_a_text_encoder_without_its_tokenizer(files: ModelSettings, tmp_path: Path) -> None:
    tensors, _ = read(files.text_encoders[0])
    del tensors["spiece_model"]
    save_file(tensors, tmp_path / "text.safetensors")
    assert "text.safetensors: holds no tokenizer: it has no tensor 'spiece_model'." in refusal(
        files, text_encoders=[str(tmp_path / "text.safetensors")]
    )
