"""What other trainers trade for memory and speed, as settings of the job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers.test_import import line
from trainer.importers import Imported, import_config
from trainer.importers.families import FAMILIES as FOREIGN
from trainer.job import TrainingJob
from trainer.models import FAMILIES, known_models


def imported(folder: Path, name: str, text: str) -> Imported:
    (folder / name).write_text(text, encoding="utf-8")
    result = import_config([folder / name])
    TrainingJob.parse(result.job)
    return result


def pipe(folder: Path, model: str, top: str = "", adapter: str = "") -> Imported:
    return imported(folder, "a.toml", f"{top}\n[model]\n{model}\n[adapter]\ntype = 'lora'\n{adapter}\n")


def onetrainer(folder: Path, **config: Any) -> Imported:
    return imported(folder, "a.json", json.dumps({"training_method": "LORA", "model_type": "HUNYUAN_VIDEO", **config}))


def command(folder: Path, flags: str) -> Imported:
    return imported(folder, "a.sh", f"python -m fastvideo.training.x --train_batch_size 1 --lora_training True {flags}\n")


def finetrainers(folder: Path, flags: str, model: str = "wan") -> Imported:
    return imported(folder, "b.sh", f"python train.py --model_name {model} --training_type lora --data_root clips {flags}\n")


@pytest.mark.parametrize(
    ("model", "count", "blocks", "offloaded"),
    [
        ("type = 'wan'\nckpt_path = '/models/Wan2.1-T2V-14B-512p'", 20, 40, 20),
        ("type = 'wan'\nckpt_path = '/models/Wan2.2-I2V-A14B'\ntransformer_path = '/m/low.safetensors'", 32, 40, 32),
        ("type = 'wan'\ntransformer_path = '/m/Wan2_1-T2V-1_3B_bf16.safetensors'\nllm_path = '/m/umt5.safetensors'", 20, 30, 20),
        ("type = 'hunyuan-video'\ntransformer_path = '/m/any.safetensors'", 20, 60, 31),  # 10 double, 21 single
        ("type = 'hunyuan-video'\ntransformer_path = '/m/any.safetensors'", 36, 60, 55),
        ("type = 'hunyuan_video_15'\ndiffusion_model = '/m/any.safetensors'", 51, 54, 51),
        ("type = 'hidream'\ndiffusers_path = '/m/any'", 100, 48, 48),
    ],
)
def test_a_number_of_blocks_is_a_share_of_those_of_the_model(tmp_path: Path, model: str, count: int, blocks: int, offloaded: int) -> None:
    result = pipe(tmp_path, model, f"blocks_to_swap = {count}")
    found = line(result, "blocks_to_swap")
    share = TrainingJob.parse(result.job).memory.layer_offload_fraction
    assert (found.kind, found.value) == ("mapped", share) and f"{offloaded} of {blocks} blocks" in found.why
    assert offloaded - 1 < share * blocks <= offloaded  # a run rounds up


def test_where_the_models_size_is_not_known_the_number_is_told(tmp_path: Path) -> None:
    result = pipe(tmp_path, "type = 'wan'\nckpt_path = '/models/mine'", "blocks_to_swap = 20")
    assert TrainingJob.parse(result.job).memory.layer_offload_fraction == -1
    assert line(result, "blocks_to_swap").why.startswith("20 blocks are asked for, and how many this model has")
    assert line(pipe(tmp_path, "type = 'wan'", "blocks_to_swap = 0"), "blocks_to_swap").kind == "ignored"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_name_of_each_release_tells_its_blocks(name: str) -> None:
    family = next(family for _, family in FOREIGN if family.trained == name and "5B" not in family.title)
    for model in known_models(name)[1:]:
        config = model.files.config("transformer")
        counted = (config["num_layers"], config.get("num_single_layers", 0))
        assert family.block_counts([f"/m/Model-{model.spec.variant.upper()}.safetensors"]) == counted, model.spec.variant
        assert family.compiles == model.spec.compiles


@pytest.mark.parametrize(
    ("name", "blocks"), [("Wan2.1_14B", 40), ("wan2_1_5b", 30), ("Wan2_1-T2V-1_3B", 30), ("14 frames", 0), ("114b", 0)]
)
def test_sizes_in_names(name: str, blocks: int) -> None:
    family = next(family for _, family in FOREIGN if family.title == "Wan")
    assert family.block_counts([name]) == ((blocks, 0) if blocks else None)
    assert family.block_counts(["a-1.3b", "b-14b"]) is None


@pytest.mark.parametrize(("text", "compiled"), [("compile = true", "on"), ("compile = false", "off"), ("", "auto")])
def test_compiling(tmp_path: Path, text: str, compiled: str) -> None:
    value = "true" in text
    results = [pipe(tmp_path, "type = 'wan'", text)]
    if text:
        results += [onetrainer(tmp_path, compile=value), command(tmp_path, f"--enable_torch_compile {value}")]
    if value:
        results.append(finetrainers(tmp_path, "--compile_modules transformer --compile_scopes regional"))
    for result in results:
        assert TrainingJob.parse(result.job).compute.compile == compiled


def test_what_does_not_compile_is_told(tmp_path: Path) -> None:
    result = pipe(tmp_path, "type = 'hidream'", "compile = true")
    assert "compute" not in result.job and "do not compile" in line(result, "compile").why
    result = finetrainers(tmp_path, "--compile_modules text_encoder")
    assert "compute" not in result.job and line(result, "compile_modules").kind == "unsupported"


@pytest.mark.parametrize(("given", "precision"), [("bfloat16", "bf16"), ("float32", "fp32"), ("float8", "")])
def test_the_loras_precision(tmp_path: Path, given: str, precision: str) -> None:
    other = {"bfloat16": "BFLOAT_16", "float32": "FLOAT_32", "float8": "FLOAT_8"}[given]
    for result, setting in (
        (pipe(tmp_path, "type = 'wan'", adapter=f"dtype = '{given}'"), "adapter.dtype"),
        (onetrainer(tmp_path, lora_weight_dtype=other), "lora_weight_dtype"),
        (command(tmp_path, f"--dit_precision {precision or 'fp16'}"), "dit_precision"),
        (command(tmp_path, f"--master_weight_type {precision or 'fp16'}"), "master_weight_type"),
    ):
        assert line(result, setting).kind == ("mapped" if precision else "unsupported")
        assert TrainingJob.parse(result.job).adapter.precision == (precision or "fp32")


@pytest.mark.parametrize(
    ("config", "checkpointing", "share"),
    [
        ({"gradient_checkpointing": "CPU_OFFLOADED", "layer_offload_fraction": 0.5}, "offloaded", 0.5),
        ({"gradient_checkpointing": "CPU_OFFLOADED", "enable_activation_offloading": False, "layer_offload_fraction": 0.5}, "full", 0.5),
        ({"gradient_checkpointing": "CPU_OFFLOADED", "enable_activation_offloading": True}, "offloaded", -1),
        ({"gradient_checkpointing": "ON", "enable_activation_offloading": True, "layer_offload_fraction": 0.5}, "full", -1),
        ({"gradient_checkpointing": "OFF", "layer_offload_fraction": 0.0}, "off", -1),
        ({"transformer": {"gradient_checkpointing": True, "offload_fraction": 0.25, "activation_offloading": True}}, "offloaded", 0.25),
        ({"transformer": {"gradient_checkpointing": True, "offload_fraction": 0.0, "activation_offloading": False}}, "full", -1),
        ({"transformer": {"offload_fraction": 1}, "text_encoder": {"offload_fraction": 0.5}}, "auto", 1),
        ({"transformer": {"activation_offloading": False}}, "auto", -1),
    ],
)
def test_onetrainers_offloading(tmp_path: Path, config: dict[str, Any], checkpointing: str, share: float) -> None:
    result = onetrainer(tmp_path, **config)
    memory = TrainingJob.parse(result.job).memory
    assert (memory.gradient_checkpointing, memory.layer_offload_fraction) == (checkpointing, share)
    kept = {found.target: found.value for found in result.lines if found.target.startswith("memory.")}
    assert kept.get("memory.gradient_checkpointing", "auto") == checkpointing
    assert kept.get("memory.layer_offload_fraction", -1) == share
    assert not [found for found in result.lines if found.kind == "unsupported"]


def test_onetrainers_eight_bit_products_and_low_rank_parts(tmp_path: Path) -> None:
    for kind, weights, products in (
        ("FLOAT_W8A8_COMPRESSED", "fp8", "on"),
        ("INT_W8A8_COMPRESSED", "int8", "auto"),
        ("GGUF_A8_INT", "as stored", "auto"),
    ):
        result = onetrainer(tmp_path, transformer={"weight_dtype": kind}, quantization={"svd_dtype": "NONE", "svd_rank": 16})
        job = TrainingJob.parse(result.job)
        assert (job.memory.weights, job.compute.fp8_products) == (weights, products)
        assert ("not in 8 bits" in line(result, "transformer.weight_dtype").why) == (products == "auto")
        assert line(result, "quantization.svd_dtype").kind == "ignored"
    assert line(onetrainer(tmp_path, quantization={"svd_dtype": "BFLOAT_16"}), "quantization.svd_dtype").kind == "unsupported"


def test_onetrainers_optimizer_switches_of_memory(tmp_path: Path) -> None:
    optimizer = {"optimizer": "ADAMW", "fused_back_pass": True, "stochastic_rounding": True}
    result = onetrainer(tmp_path, optimizer=optimizer, loss_weight_fn="CONSTANT", loss_weight_strength=5.0)
    assert line(result, "optimizer.fused_back_pass").why.endswith("those of a LoRA are small")
    assert {line(result, name).kind for name in ("optimizer.stochastic_rounding", "loss_weight_strength")} == {"ignored"}


@pytest.mark.parametrize(
    ("given", "setting", "value"),
    [
        ("onetrainer SDP", "attention", "auto"), ("onetrainer FLASH", "attention", "flash"), ("onetrainer CUDNN", "attention", "cudnn"),
        ("onetrainer FLEX", "attention", "auto"), ("fastvideo FLASH_ATTN", "attention", "flash"),
        ("fastvideo TORCH_SDPA", "attention", "auto"), ("fastvideo SAGE_ATTN", "sampling_attention", "sage"),
        ("fastvideo VIDEO_SPARSE_ATTN", "attention", "auto"), ("training transformer:_native_efficient", "attention", "efficient"),
        ("training transformer:flash_varlen vae:native", "attention", "flash"), ("training vae:native", "attention", "auto"),
        ("inference transformer:sage_varlen", "sampling_attention", "sage"), ("inference transformer:flash", "sampling_attention", ""),
    ],
)  # fmt: skip
def test_kernels_of_attention(tmp_path: Path, given: str, setting: str, value: str) -> None:
    trainer, _, kernel = given.partition(" ")
    if trainer == "onetrainer":
        result, source = onetrainer(tmp_path, attention_mechanism=kernel), "attention_mechanism"
    elif trainer == "fastvideo":
        result, source = command(tmp_path, f"--attention_backend {kernel}"), "attention_backend"
        exported = imported(tmp_path, "c.sh", f"export FASTVIDEO_ATTENTION_BACKEND={kernel}\n{(tmp_path / 'a.sh').read_text()}")
        told, by_flag = line(exported, "environment.FASTVIDEO_ATTENTION_BACKEND"), line(exported, source)
        assert (told.kind, told.target, told.value) == (by_flag.kind, by_flag.target, by_flag.value)
    else:
        result, source = finetrainers(tmp_path, f"--attn_provider_{trainer} {kernel}"), f"attn_provider_{trainer}"
    compute = TrainingJob.parse(result.job).compute
    assert getattr(compute, setting) == (value or "as in training")
    assert (line(result, source).kind == "unsupported") == ("SPARSE" in kernel)
    assert (line(result, source).target == f"compute.{setting}") == (value not in ("auto", ""))


@pytest.mark.parametrize(
    ("flags", "checkpointing"),
    [
        ("--enable_gradient_checkpointing_type full", "full"), ("--enable_gradient_checkpointing_type ops", "selective"),
        ("--enable_gradient_checkpointing_type block_skip", "full"), ("--gradient_checkpointing", "full"),
        ("--gradient_checkpointing --selective_checkpointing 0.3", "auto"),
        ("--selective_checkpointing 1.0 --gradient_checkpointing", "full"),
        ("--selective_checkpointing 0.3", "auto"),
    ],
)  # fmt: skip
def test_fastvideos_checkpointing(tmp_path: Path, flags: str, checkpointing: str) -> None:
    result = command(tmp_path, f"{flags} --dit_layerwise_offload True --vae_cpu_offload True")
    assert TrainingJob.parse(result.job).memory.gradient_checkpointing == checkpointing
    assert not [found for found in result.lines if found.kind == "unsupported"]
    assert line(command(tmp_path, "--use_cpu_offload"), "use_cpu_offload").kind == "unsupported"


def test_finetrainers_state_on_the_host(tmp_path: Path) -> None:
    flags = "--optimizer adamw --use_cpu_offload_optimizer --offload_gradients --max_grad_norm"
    kept, refused = finetrainers(tmp_path, f"{flags} 0"), finetrainers(tmp_path, f"{flags} 1")
    assert kept.job["optimizer"]["offload_state"] and line(kept, "use_cpu_offload_optimizer").kind == "mapped"
    assert "optimizer" not in refused.job and "clipping needs" in line(refused, "use_cpu_offload_optimizer").why
