"""FastVideo: the flags of its preprocessing and of its training pipelines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import sample_prompts
from .documents import Document
from .families import find_family
from .memory_rules import AUTO_OFFLOAD, NOT_TRAINING, attention, compiling, lora_precision
from .model_rules import ONE_OR_OTHER, family, model
from .optimizer_rules import betas
from .result import Entry, Report
from .rules import Rule, apply, as_number, choice, follow, ignore, off, once, only, plain, refuse, run_name, targets, to
from .sizes import add_buckets, tell, whole
from .sources import add_source

NAME = "FastVideo"
_ONE = only([1, -1], "one card, as here", "several cards are not supported yet")
_DISTIL = ignore("it belongs to distillation")
_ENCODING = ignore("clips are encoded one at a time into the cache")
_SPARSE = refuse("sparse attention is not supported yet")
_TASK = only(["t2v", "i2v"], "the model tells whether it starts from a picture", "only videos from a text or a picture are trained")
_OPS = "it keeps what attention gave, and there every second matrix product too; light keeps all of both"
_EMA = refuse("there is no moving average of the weights yet")

_TYPES = {"full": "full", "none": "off", "ops": "selective", "blockskip": "full"}


def _checkpointing_type(report: Report, entry: Entry) -> None:
    kind = plain(entry.value)
    if (value := _TYPES.get(kind)) is None:
        report.unsupported(entry, "memory.gradient_checkpointing knows only: auto, off, light, selective, full, offloaded")
        return
    report.put("memory.gradient_checkpointing", value)
    report.mapped(entry, "memory.gradient_checkpointing", value, _OPS if kind == "ops" else "")


RULES: dict[str, Rule] = {
    "environment.FASTVIDEO_ATTENTION_BACKEND": attention,
    "environment.*": ignore("it steers the other trainer's process"),
    "launcher.*": ignore("it starts processes; here there is one"),
    "model_path": model,
    "pretrained_model_name_or_path": model,
    "dit_model_name_or_path": refuse(ONE_OR_OTHER),
    "model_type": family,
    "cache_dir": ignore("ComfyUI chooses where models and caches lie"),
    "mode": ignore("encoding is part of every run"),
    "inference_mode": off("this is no training"),
    "init_weights_from_safetensors*": refuse(ONE_OR_OTHER),
    "workload_type": _TASK,
    "preprocess_task": _TASK,
    "video_loader_type": ignore("clips are decoded by PyAV"),
    "dataset_output_dir": ignore("encoded clips lie in the cache"),
    "samples_per_file": _ENCODING,
    "flush_frequency": _ENCODING,
    "preprocess_video_batch_size": _ENCODING,
    "train_fps": to("dataset.fps"),
    "video_length_tolerance_range": ignore("a clip of any length takes the longest bucket that it fills"),
    "drop_short_ratio": ignore("clips that fill no bucket are reported"),
    "speed_factor": only([1], "clips keep their speed", "clips keep their speed"),
    "do_temporal_sample": choice("dataset.frame_sample_strategy", {"true": "random", "1": "random", "false": "head", "0": "head"}),
    "with_audio": off("sound is not trained on"),
    "text_max_length": ignore("it belongs to the model family"),
    "text_encoder_name": ignore("it belongs to the model"),
    "validate_only": off("this is no training"),
    "use_image_num": off("a batch holds images or clips, never both"),
    "training_cfg_rate": to("captions.dropout"),
    "seed": to("schedule.seed"),
    "dataloader_num_workers": once("dataset.dataloader_threads"),
    "group_*": ignore("a batch never mixes sizes"),
    "num_latent_t": ignore("it follows from the frames"),
    "train_batch_size": to("schedule.batch_size"),
    "train_sp_batch_size": _ONE,
    "gradient_accumulation_steps": to("schedule.accumulation"),
    "max_train_steps": to("schedule.steps"),
    "num_train_epochs": refuse("the job counts optimizer steps, and how many make an epoch depends on the clips; set schedule.steps"),
    "lora_training": only([True], "a LoRA is what is trained", "only LoRA is trained by this version"),
    "lora_rank": to("adapter.rank"),
    "lora_alpha": to("adapter.alpha"),
    "lora_target_modules": targets,
    "lora_path": refuse("set adapter.continue_from"),
    "learning_rate": to("optimizer.learning_rate"),
    "scale_lr": off("the learning rate is used as it is given"),
    "lr_scheduler": choice("optimizer.schedule", {"constant": "constant", "constantwithwarmup": "constant", "cosine": "cosine"}),
    "lr_warmup_steps": to("optimizer.warmup"),
    "lr_num_cycles": only([1], "one cycle, as here", "the schedule has one cycle"),
    "lr_power": ignore("it belongs to the polynomial schedule"),
    "min_lr_ratio": refuse("the cosine schedule ends near 0"),
    "betas": betas,
    "weight_decay": to("optimizer.weight_decay"),
    "max_grad_norm": to("optimizer.max_grad_norm"),
    "mixed_precision": choice("compute.dtype", {"bf16": "bf16", "fp16": "fp16", "no": "fp32"}),
    "dit_precision": lora_precision,
    "master_weight_type": lora_precision,
    "enable_gradient_checkpointing_type": _checkpointing_type,
    "gradient_checkpointing": choice("memory.gradient_checkpointing", {"true": "full", "1": "full", "false": "off", "0": "off"}),
    "selective_checkpointing": ignore("it belongs to gradient_checkpointing, which is not set"),
    "weighting_scheme": choice("objective.timesteps", {"logitnormal": "logit-normal", "uniform": "uniform", "none": "uniform"}),
    "logit_mean": to("objective.logit_mean"),
    "logit_std": to("objective.logit_std"),
    "mode_scale": ignore("it belongs to the weighting scheme 'mode'"),
    "flow_shift": to("objective.shift"),
    "log_validation": ignore("validation_steps says how often"),
    "validation_steps": to("samples.every"),
    "validation_sampling_steps": to("samples.steps"),
    "validation_guidance_scale": to("samples.guidance"),
    "validation_preprocessed_path": refuse("give validation_dataset_file"),
    "output_dir": run_name,
    "training_state_checkpointing_steps": to("output.save_every"),
    "weight_only_checkpointing_steps": ignore("each checkpoint writes its LoRA file too; output.save_every says how often"),
    "checkpoints_total_limit": to("output.keep"),
    "resume_from_checkpoint": refuse("checkpoints of other trainers cannot be resumed; a LoRA file can: adapter.continue_from"),
    "tracker_project_name": ignore("there are no trackers; the run's name is output.name"),
    "wandb_run_name": ignore("there are no trackers; the run's name is output.name"),
    "logging_dir": ignore("every step is recorded in the run's folder"),
    "num_gpus": _ONE,
    "?p_size": _ONE,
    "hsdp_*": _ONE,
    "fsdp_*": ignore("one card holds the model"),
    "dist_timeout": ignore("one process trains"),
    "master_port": ignore("one process trains"),
    "use_cpu_offload": off(f"all parameters lie in the host's memory there; {AUTO_OFFLOAD}"),
    "dit_*_offload": ignore(f"it belongs to drawing videos; {AUTO_OFFLOAD}"),
    "*_cpu_offload": ignore(NOT_TRAINING),
    "pin_cpu_memory": ignore("offloaded blocks lie in pinned memory where the system lets them"),
    "enable_torch_compile": compiling,
    "torch_compile_kwargs": ignore("each block is compiled by inductor"),
    "attention_backend": attention,
    "VSA_*": _SPARSE,
    "enable_bsa": off("sparse attention is not supported yet"),
    "bsa_*": _SPARSE,
    "use_ema": off("there is no moving average of the weights yet"),
    "ema_decay": _EMA,
    "ema_start_step": ignore("it belongs to ema_decay"),
    "multi_phased_distill_schedule": _DISTIL,
    "not_apply_cfg_solver": _DISTIL,
    "num_euler_timesteps": _DISTIL,
    "distill_cfg": _DISTIL,
    "pred_decay_*": _DISTIL,
    "scheduler_type": _DISTIL,
    "linear_*": _DISTIL,
}


def recognises(document: Document) -> bool:
    """A command whose program is FastVideo's, or that has its flags of preprocessing or training."""
    if not document.program:
        return False
    own = ("preprocess.dataset_type", "num_latent_t", "train_sp_batch_size", "preprocess_video_batch_size", "workload_type")
    return document.program.startswith("fastvideo") or any(name in document.data for name in own)


def convert(documents: Sequence[Document], report: Report) -> list[Document]:
    """Fills the report from command lines, and from the validation file that they name if it is here."""
    validation: list[Document] = []
    from_clips = False
    for document in sorted(documents, key=lambda document: "data_path" in document.data):
        entries = {entry.key.removeprefix("preprocess."): entry for entry in document.entries()}
        for name in ("model_path", "pretrained_model_name_or_path"):
            if name in entries:
                _family(report, entries[name])
        from_clips |= _clips(report, document, entries)
        if entry := entries.get("data_path"):
            _parquet(report, entry, from_clips)
        _bucket(report, entries)
        _checkpointed_share(report, entries)
        if entry := entries.get("validation_dataset_file"):
            validation += follow(report, document, entry, sample_prompts.recognises)
        if "train_batch_size" in entries and "lora_training" not in entries:
            report.notes.append("The command trains the whole model (no --lora_training). This version trains a LoRA.")
        apply(report, document, {**RULES, **{f"preprocess.{name}": rule for name, rule in RULES.items()}}, NAME)
    sample_prompts.convert(validation, report)
    return [*documents, *validation]


def _family(report: Report, entry: Entry) -> None:
    """Sets the family from the model's name; a family that cannot be trained is a note, since the name itself is mapped."""
    found = find_family(str(entry.value))
    if found and report.family is None and not found.trained:
        reason = f", since {found.instead}" if found.instead else ""
        what = f"{found.title}, which this version cannot train{reason}"
        report.notes.append(f"{entry.value} is {what}; choose another model in model.source.")
    report.family = report.family or found


def _clips(report: Report, document: Document, entries: dict[str, Entry]) -> bool:
    """The source of preprocessing; whether there is one."""
    if path := entries.get("dataset_path"):
        kind = entries.get("dataset_type")
        add_source(report, "hub" if kind is not None and kind.value == "hf" else "caption_json", {"path": path})
        if kind is not None:
            report.mapped(kind, "dataset.sources", report.value("dataset.sources")[-1]["kind"])
    if path := entries.get("data_merge_path"):
        _merged(report, document, path)
    return path is not None or "dataset_path" in entries


def _merged(report: Report, document: Document, entry: Entry) -> None:
    """A text file with a folder of clips and a caption JSON on each line, with a comma between them."""
    path = document.beside(str(entry.value))
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path else []
    pairs = [line.split(",") for line in lines if line.strip()]
    if not pairs or any(len(pair) < 2 for pair in pairs):
        report.unsupported(entry, "this file is not here or not of lines like videos,videos2caption.json; set dataset.sources")
        return
    for _, captions, *_ in pairs:
        add_source(report, "caption_json", {}, {"path": captions.strip()})
    why = "clips are found beside each caption JSON, or in the folder videos there"
    report.mapped(entry, "dataset.sources", [captions.strip() for _, captions, *_ in pairs], why)


def _parquet(report: Report, entry: Entry, encoded: bool) -> None:
    """Folders of Parquet with their repeats: dirA:2,dirB:1. They are not needed where their clips are given too."""
    if encoded:
        report.ignored(entry, "the clips themselves are given too, and are encoded as they are needed")
        return
    folders = [re.fullmatch(r"(.+?)(?::(\d+))?", part.strip()) for part in str(entry.value).split(",") if part.strip()]
    for found in filter(None, folders):
        add_source(report, "parquet", {}, {"path": found[1], "repeats": found[2] or 1})
    told = [f"{found[1]} × {found[2] or 1}" for found in folders if found]
    report.mapped(entry, "dataset.sources", ", ".join(told), "the model that encoded them can be declared: encoder")


def _checkpointed_share(report: Report, entries: dict[str, Entry]) -> None:
    """How many of the blocks the first generation checkpoints, where it is told to."""
    switch, share = entries.get("gradient_checkpointing"), entries.get("selective_checkpointing")
    number = as_number(share.value) if share else None
    if switch is None or share is None or plain(switch.value) not in ("true", "1"):
        return
    if isinstance(number, (int, float)) and 0 < number < 1:
        why = f"{number:g} of the blocks are checkpointed there; auto does as many as must be, some of them lighter than the rest"
        report.mapped(switch, "memory.gradient_checkpointing", "auto", why)
        report.mapped(share, "memory.gradient_checkpointing", "auto", why)
    else:
        report.ignored(share, "all blocks are checkpointed")


def _bucket(report: Report, entries: dict[str, Entry]) -> None:
    """The one size all clips get: frames, height and width together."""
    parts = (
        entries.get("num_frames"),
        entries.get("max_height") or entries.get("num_height"),
        entries.get("max_width") or entries.get("num_width"),
    )
    frames, height, width = (whole(entry.value) if entry else None for entry in parts)
    if frames and height and width:
        add_buckets(report, [(frames, height, width)])
    for n, entry in enumerate(parts):
        if entry is None:
            continue
        if not (frames and height and width):
            report.unsupported(entry, "a bucket needs num_frames, height and width; set dataset.buckets")
        else:
            tell(report, entry, [(frames if n == 0 else None, height if n == 1 else None, width if n == 2 else None)])
