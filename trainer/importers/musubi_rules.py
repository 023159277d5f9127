"""What becomes of each setting of musubi-tuner's commands, of those that train and those that encode."""

from __future__ import annotations

from dataclasses import replace

from .memory_rules import AS_AUTO, attention, compiling, swapped_blocks
from .model_rules import IN_DTYPE, frozen_weights, guidance, part
from .musubi_dataset import WINDOW
from .optimizer_rules import any_option, betas, optimizer
from .result import Entry, Report
from .rules import Rule, choice, ignore, is_off, off, once, only, refuse, run_name, to, where_on

_DTYPE = choice("compute.dtype", {"bf16": "bf16", "fp16": "fp16", "no": "fp32"})
_EPOCHS = "the job counts optimizer steps, and how many make an epoch depends on the clips; set "
_INDUCTOR = ignore("each block is compiled by inductor")
_ONE = ignore("one process trains")
_RESUME = "checkpoints of other trainers cannot be resumed; a LoRA file can: adapter.continue_from"
_HUB = "nothing is uploaded by this version"
_TILES = ignore("tiles have the size that the VAE was released with; memory.vae_tiling switches them on")
_SMALL_TEXT = off("text encoders are not quantised when they are loaded; choose an fp8 file in model.text_encoders")
_ENCODING = ignore("encoding is part of every run, one clip at a time into the cache")
_COSINE = refuse("the schedule is constant or cosine")
_LORA = "adapter.targets knows only: all, attention, feed-forward"


def _file(name: str) -> Rule:
    """The rule for the file of a part, which several commands name."""
    rule = part(name)

    def once_only(report: Report, entry: Entry) -> None:
        known = report.value(f"model.{name}")
        if known and str(entry.value) in (known if isinstance(known, list) else [known]):
            report.ignored(entry, "this file is taken already")
        else:
            rule(report, entry)

    return once_only


def _fp8(report: Report, entry: Entry) -> None:
    frozen_weights(report, replace(entry, value="float8"))


def _kernel(report: Report, entry: Entry) -> None:
    """A switch that has the kernel's name."""
    attention(report, replace(entry, value=entry.key))


def _dynamo(report: Report, entry: Entry) -> None:
    compiling(report, replace(entry, value=not is_off(entry.value)))


def _launcher_dtype(report: Report, entry: Entry) -> None:
    if report.value("compute.dtype"):
        report.ignored(entry, "the command's own holds")
    else:
        _DTYPE(report, entry)


def _optimizer(report: Report, entry: Entry) -> None:
    """A name, or a class with the package that it is of."""
    optimizer(report, replace(entry, value=str(entry.value).rpartition(".")[2]))


def _forward(report: Report, entry: Entry) -> None:
    report.put("model.sampling_order", "forward")
    report.mapped(entry, "model.sampling_order", "forward")


def _tile_size(report: Report, entry: Entry) -> None:
    """A size of tiles, which switches them on."""
    report.put("memory.vae_tiling", True)
    report.mapped(entry, "memory.vae_tiling", True, "tiles have the size that the VAE was released with")


PARTS: dict[str, Rule] = {  # files that both kinds of commands name
    "vae": _file("vae"),
    **{name: _file("text_encoders") for name in ("t5", "text_encoder", "text_encoder1", "text_encoder2", "byt5")},
    **{name: _file("image_encoder") for name in ("clip", "image_encoder")},
}

FILES: dict[str, Rule] = {
    "environment.*": ignore("it steers the other trainer's process"),
    "launcher.mixed_precision": _launcher_dtype,
    "launcher.*": ignore("it starts processes; here there is one"),
    **PARTS,
    "vae_dtype": ignore("the VAE's precision belongs to the model family"),
    "text_encoder_dtype": ignore("text encoders run in compute.dtype"),
    "fp8_t5": _SMALL_TEXT,
    "fp8_llm": _SMALL_TEXT,
    "fp8_vl": _SMALL_TEXT,
    "vae_tiling": to("memory.vae_tiling"),
    "vae_spatial_tile_sample_min_size": _tile_size,
    "vae_sample_size": _TILES,
    "vae_chunk_size": ignore("the VAE goes through a clip as it was released to"),
    "vae_cache_cpu": ignore("what the VAE keeps between frames stays on the card"),
    "vae_enable_patch_conv": ignore("memory.vae_tiling is what lowers the VAE's memory"),
    "one_frame": off("single frames are trained on as images: give a dataset of images"),
    "f1": where_on(_forward),
}

ENCODING: dict[str, Rule] = {
    **FILES,
    "i2v": ignore("the model tells whether it starts from a picture"),
    "one_frame_*": refuse("single frames are trained on as images: give a dataset of images"),
    **dict.fromkeys(("batch_size", "num_workers", "skip_existing", "keep_cache", "device", "disable_cudnn_backend"), _ENCODING),
    "debug_mode": ignore("Dataset Preview shows what is trained on"),
    "console_*": ignore("it belongs to debug_mode"),
}

TRAINING: dict[str, Rule] = {
    **FILES,
    "task": ignore("the model's files tell it"),
    "dit_dtype": ignore(IN_DTYPE),
    "dit_in_channels": ignore("the model's files tell it"),
    "dit_high_noise": refuse("it needs dit beside it, the file for low noise"),
    "force_v2_1_time_embedding": off("the model's own time embedding is computed"),
    "offload_inactive_dit": ignore("the expert whose turn it is not lies in the host's memory"),
    "latent_window_size": WINDOW,
    "bulk_decode": ignore("sample videos are decoded as the card's memory allows"),
    "fp8_base": where_on(_fp8),
    "fp8_scaled": where_on(_fp8),
    "blocks_to_swap": swapped_blocks,
    "use_pinned_memory_for_block_swap": ignore("offloaded blocks lie in pinned memory where the system lets them"),
    "block_swap_h2d_only": ignore("offloaded blocks are never copied back here"),
    "block_swap_ring_size": ignore("two blocks are on the card at once, the one that computes and the next"),
    "img_in_txt_in_offloading": off("only blocks are offloaded; the layers before them stay on the card"),
    "disable_numpy_memmap": ignore("files are read as their loader does"),
    "sdpa": ignore(AS_AUTO),
    "xformers": ignore(AS_AUTO),
    "flash_attn": where_on(_kernel),
    "sage_attn": where_on(_kernel),
    "flash3": ignore(f"{AS_AUTO}; 'flash-attn 3' can be chosen where it is installed"),
    "split_attn": ignore("each example of a batch attends to itself alone, whatever is computed at once"),
    "compile": compiling,
    "compile_*": _INDUCTOR,
    "dynamo_backend": _dynamo,
    "dynamo_*": _INDUCTOR,
    "cuda_allow_tf32": ignore("matrix products are in compute.dtype"),
    "cuda_cudnn_benchmark": ignore("it changes speed alone"),
    "max_train_epochs": refuse(f"{_EPOCHS}schedule.steps"),
    "max_data_loader_n_workers": once("dataset.dataloader_threads"),
    "persistent_data_loader_workers": ignore("threads that read clips last as long as the run"),
    "seed": to("schedule.seed"),
    "gradient_accumulation_steps": to("schedule.accumulation"),
    "mixed_precision": _DTYPE,
    "save_precision": ignore("LoRA files are written in fp32"),
    "logging_dir": ignore("every step is recorded in the run's folder"),
    "log_with": only(["tensorboard"], "the live monitor shows the run", "there are no trackers yet; the live monitor shows the run"),
    "log_*": ignore("there are no trackers; the run's name is output.name"),
    "wandb_*": ignore("there are no trackers; the run's name is output.name"),
    "ddp_*": _ONE,
    "sample_every_n_steps": to("samples.every"),
    "sample_every_n_epochs": refuse(f"{_EPOCHS}samples.every"),
    "sample_at_first": ignore("sample videos are drawn before training too"),
    "sample_prompts": refuse("these prompts are not read; write them into samples.prompts"),
    "optimizer_type": _optimizer,
    "optimizer_args.weight_decay": to("optimizer.weight_decay"),
    "optimizer_args.betas": betas,
    "optimizer_args.*": any_option,
    "optimizer_args": refuse("arguments are name=value; write them into optimizer.options"),
    "learning_rate": to("optimizer.learning_rate"),
    "max_grad_norm": to("optimizer.max_grad_norm"),
    "lr_scheduler": choice("optimizer.schedule", {"constant": "constant", "constantwithwarmup": "constant", "cosine": "cosine"}),
    "lr_decay_steps": off("the schedule falls until the last step"),
    "lr_scheduler_num_cycles": only([1], "one cycle, as here", "the schedule has one cycle"),
    "lr_scheduler_power": ignore("it belongs to the polynomial schedule"),
    "lr_scheduler_timescale": ignore("it belongs to the inverse square root schedule"),
    "lr_scheduler_min_lr_ratio": refuse("the cosine schedule ends near 0"),
    "lr_scheduler_type": _COSINE,
    "lr_scheduler_args*": _COSINE,
    "guidance_scale": guidance,
    "mode_scale": ignore("it belongs to weighting_scheme mode"),
    "preserve_distribution_shape": off("how noise levels are drawn within an expert's is not a setting"),
    "num_timestep_buckets": refuse("noise levels are drawn one by one"),
    "show_timesteps": ignore("it trains nothing"),
    "network_module": only(
        ["networks.lora", "networks.lora_wan", "networks.lora_hv_1_5", "networks.lora_framepack"],
        "a LoRA is what is trained", "only LoRA of video models is trained by this version",
    ),
    "network_dim": to("adapter.rank"),
    "network_alpha": to("adapter.alpha"),
    "network_dropout": to("adapter.dropout"),
    "network_args.loraplus_lr_ratio": to("optimizer.lora_plus_ratio"),
    "network_args.verbose": ignore("notices are always shown"),
    "network_args.*_patterns": refuse(_LORA),
    "network_args.*": refuse("adapter.dropout is the one kind of dropout, and only linear layers get a LoRA"),
    "network_args": refuse("arguments are name=value"),
    "network_weights": to("adapter.continue_from"),
    "dim_from_weights": ignore("a LoRA that is continued keeps its rank"),
    "scale_weight_norms": refuse("the LoRA's norm is not limited"),
    "base_weights": refuse("LoRA are not merged into the model before training"),
    "base_weights_multiplier": ignore("it belongs to base_weights"),
    "training_comment": ignore("LoRA files say what they were trained from"),
    "no_metadata": ignore("LoRA files say what they were trained from"),
    "metadata_*": ignore("LoRA files say what they were trained from"),
    "output_dir": ignore("runs and LoRA files lie in ComfyUI's output folder"),
    "output_name": run_name,
    "resume": refuse(_RESUME),
    "resume_from_huggingface": off(_RESUME),
    "save_every_n_steps": to("output.save_every"),
    "save_every_n_epochs": refuse(f"{_EPOCHS}output.save_every"),
    "save_last_n_*": refuse("output.keep says how many checkpoints stay"),
    "save_state_to_huggingface": off(_HUB),
    "save_state*": ignore("every checkpoint can be resumed"),
    "huggingface_*": refuse(_HUB),
    "async_upload": ignore(_HUB),
}  # fmt: skip
