"""diffusion-pipe: a training TOML, a dataset TOML, or both. FramePack windows as in its fork's configuration."""

from __future__ import annotations

from collections.abc import Sequence

from .diffusion_pipe_dataset import convert_dataset, is_dataset
from .documents import Document
from .memory_rules import GRADIENTS_STAY, compiling, lora_precision, swapped_blocks
from .model_rules import ONE_OR_OTHER, family, frozen_weights, guidance, model, noise_levels, note_shift, one_expert, part
from .optimizer_rules import any_option, betas, library_optimizer
from .result import Entry, Report
from .rules import Rule, alone, apply, choice, follow, ignore, off, only, overrule, refuse, run_name, to, where_on
from .sizes import whole

NAME = "diffusion-pipe"
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_EPOCHS = "the job counts optimizer steps, and how many make an epoch depends on the clips; set schedule.steps"
_BY_STEPS = "the job saves by steps: set output.save_every"
_RELEASE = (
    "the folder of an original release is not read; choose the parts that no other setting names in model.transformer, model.vae and "
    "model.text_encoders, or its diffusers folder or hub id in model.source"
)
_FIRST = (  # what other settings depend on
    "model.type", "model.min_t", "model.max_t", "model.single_file_path", "optimizer.gradient_release",
)  # fmt: skip
_SMALL_TEXT = "text encoders are not quantised when they are loaded; choose an fp8 file in model.text_encoders"
_ONE_CARD = "several cards are not supported yet"


def _micro_batch(report: Report, entry: Entry) -> None:
    if isinstance(entry.value, list):
        report.unsupported(entry, "one batch size serves all sizes; set schedule.batch_size")
    else:
        to("schedule.batch_size")(report, entry)


def _checkpointing(report: Report, entry: Entry) -> None:
    value = ("full" if entry.value else "off") if isinstance(entry.value, bool) else "offloaded"  # unsloth's way
    report.put("memory.gradient_checkpointing", value)
    report.mapped(entry, "memory.gradient_checkpointing", value)


def _gradient_release(report: Report, entry: Entry) -> None:
    """Steps of each parameter as soon as it has its gradient; there is then no norm of all gradients to clip."""
    report.put("optimizer.max_grad_norm", 0.0)
    report.unsupported(entry, f"{GRADIENTS_STAY}; as there, they are not clipped: optimizer.max_grad_norm is 0")


def _clipping(report: Report, entry: Entry) -> None:
    if report.value("optimizer.max_grad_norm") is not None:
        report.ignored(entry, "optimizer.gradient_release switches it off")
    else:
        to("optimizer.max_grad_norm")(report, entry)


def _existing_lora(report: Report, entry: Entry) -> None:
    if str(entry.value).endswith(".safetensors"):
        to("adapter.continue_from")(report, entry)
    else:
        report.unsupported(entry, "adapter.continue_from takes a LoRA file; give the .safetensors in that folder")


TRAINING: dict[str, Rule] = {
    "output_dir": run_name,
    "epochs": refuse(_EPOCHS),
    "max_steps": to("schedule.steps"),
    "micro_batch_size_per_gpu": _micro_batch,
    "image_micro_batch_size_per_gpu": refuse("set schedule.batch_size to it, and schedule.video_batch_size_multiplier for the clips"),
    "gradient_accumulation_steps": to("schedule.accumulation"),
    "gradient_clipping": _clipping,
    "warmup_steps": to("optimizer.warmup"),
    "lr_scheduler": choice("optimizer.schedule", {"constant": "constant", "cosine": "cosine"}),
    "force_constant_lr": to("optimizer.learning_rate", "it overrules optimizer.lr"),
    "blocks_to_swap": swapped_blocks,
    "disable_block_swap_for_eval": ignore("there is no evaluation; sample videos are drawn with the blocks where training has them"),
    "pseudo_huber_c": refuse("the loss is the mean square"),
    "huber_delta": refuse("the loss is the mean square"),
    "smooth_l1_beta": refuse("the loss is the mean square"),
    "activation_checkpointing": _checkpointing,
    "reentrant_activation_checkpointing": ignore("checkpoints are not re-entrant, with the same result"),
    "pipeline_stages": only([1], "one card, as here", _ONE_CARD),
    "partition_*": ignore("it divides the model over several cards; here it is on one"),
    "save_every_n_steps": to("output.save_every"),
    "save_every_n_*": refuse(_BY_STEPS),
    "checkpoint_every_n_*": refuse(_BY_STEPS),
    "save_dtype": ignore("LoRA files are written in fp32"),
    "caching_batch_size": ignore("clips are encoded one at a time"),
    "map_num_proc": to("dataset.dataloader_threads"),
    "compile": compiling,
    "steps_per_print": ignore("every step is shown"),
    "logging_steps": ignore("every step is recorded"),
    "x_axis_examples": ignore("the monitor counts steps"),
    "video_clip_mode": only(
        ["single_beginning"], "clips begin at their first frame here too", "set dataset.frame_sample_strategy, which knows no middle"
    ),
    "eval_*": refuse("there is no validation loss yet"),
    "image_eval_*": refuse("there is no validation loss yet"),
    "regenerate_cache": ignore("the cache notices what changed by itself"),
    "gradient_release": off(GRADIENTS_STAY),
    "optimizer.gradient_release": where_on(_gradient_release),
    "monitoring.enable_wandb": off("there are no trackers yet; the live monitor shows the run"),
    "monitoring.*": ignore("it belongs to wandb"),
    "model.type": family,
    "model.dtype": choice("compute.dtype", _DTYPES),
    "model.transformer_dtype": frozen_weights,
    "model.diffusion_model_dtype": frozen_weights,
    "model.text_encoder_fp8": off(_SMALL_TEXT),
    "model.llama3_4bit": off(_SMALL_TEXT),
    "model.max_llama3_sequence_length": only([128], "captions have 128 tokens here too", "captions have 128 tokens"),
    "model.diffusers_path": model,
    "model.single_file_path": part("transformer"),
    "model.ckpt_path": refuse(_RELEASE),
    "model.transformer_path": one_expert,
    "model.diffusion_model": one_expert,
    "model.vae_path": part("vae"),
    "model.vae": part("vae"),
    "model.text_encoders.#.path*": part("text_encoders"),
    "model.text_encoders.#.type": ignore("what a text encoder is, its file tells"),
    **{f"model.{name}_path": part("text_encoders") for name in ("llm", "clip", "llama3", "text_encoder", "byt5", "t5")},
    "model.*_path": refuse(ONE_OR_OTHER),
    "model.guidance": guidance,
    "model.framepack": off("it is answered with framepack_window_size"),
    "model.framepack_window_size": ignore("framepack is off"),
    "model.timestep_sample_method": choice("objective.timesteps", {"logitnormal": "logit-normal", "uniform": "uniform"}),
    "model.sigmoid_scale": to("objective.logit_std"),
    "model.shift": to("objective.shift"),
    "model.flux_shift": off("objective.shift is one value for all sizes"),
    "model.min_t": noise_levels("high", 0),
    "model.max_t": noise_levels("low", 1),
    "model.first_frame_conditioning_p": to("objective.first_frame_probability"),
    "adapter.type": only(["lora"], "a LoRA is what is trained", "only LoRA is trained by this version"),
    "adapter.rank": to("adapter.rank"),
    "adapter.alpha": to("adapter.alpha"),
    "adapter.dropout": to("adapter.dropout"),
    "adapter.dtype": lora_precision,
    "adapter.init_from_existing": _existing_lora,
    "adapter.exclude_modules": refuse("adapter.targets knows only: all, attention, feed-forward"),
    "optimizer.type": library_optimizer,
    "optimizer.lr": to("optimizer.learning_rate"),
    "optimizer.betas": betas,
    "optimizer.weight_decay": to("optimizer.weight_decay"),
    "optimizer.*": any_option,
}


def recognises(document: Document) -> bool:
    """A training TOML has a [model] with a type, or its own names; a dataset TOML has [[directory]] or frame_buckets."""
    return not document.program and (_is_training(document) or is_dataset(document))


def _is_training(document: Document) -> bool:
    model = document.data.get("model")
    typed = isinstance(model, dict) and bool({"type", "framepack", "transformer_path"} & model.keys())
    return typed or "micro_batch_size_per_gpu" in document.data


def convert(documents: Sequence[Document], report: Report) -> list[Document]:
    """Fills the report from these documents, and from the dataset file they name if it is found; returns all that was read."""
    training = [document for document in documents if _is_training(document)]
    datasets = [document for document in documents if not _is_training(document)]
    alone(training)
    for document in training:
        if (entry := document.entry("dataset")) is not None:
            datasets += follow(report, document, entry, is_dataset)
        for name in _FIRST:
            if (entry := document.entry(name)) is not None and entry.value != "":
                TRAINING[name](report, entry)
        _windows(document, report)
        overrule(report, {entry.key: entry for entry in document.entries()}, "force_constant_lr", "optimizer.lr")
        if not isinstance(document.data.get("adapter"), dict) and "optimizer" in document.data:
            report.notes.append("The file has no [adapter]: it trains the whole model. This version trains a LoRA.")
        apply(report, document, TRAINING, NAME)
        note_shift(report, NAME)
    for document in datasets:
        convert_dataset(document, report)
    return [*training, *datasets]


def _windows(document: Document, report: Report) -> None:
    switch, size = document.entry("model.framepack"), document.entry("model.framepack_window_size")
    if switch is None or switch.value is not True:
        return
    frames = whole(size.value) if size else None
    report.windowed = True
    report.put("dataset.windows", {"size": frames or (size.value if size else 33)})
    report.mapped(switch, "dataset.windows", report.value("dataset.windows"), "all windows of a clip are averaged in one step")
    if size is None:
        return
    new = report.family.rounded(frames, 16, 16)[0] if report.family and frames else frames
    if new == frames:
        report.mapped(size, "dataset.windows.size", size.value)
    else:
        report.rounded(size, "dataset.windows.size", new, f"{report.family} takes {new} frames next below")
