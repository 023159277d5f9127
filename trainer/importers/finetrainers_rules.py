"""What becomes of each of finetrainers' settings, of both its generations."""

from __future__ import annotations

from dataclasses import replace

from .memory_rules import attention_of_parts, compiling
from .model_rules import ONE_OR_OTHER, family, model, size_shift
from .optimizer_rules import eight_bit, optimizer, option
from .result import Entry, Report
from .rules import Rule, choice, ignore, off, once, only, plain, refuse, run_name, targets, to

_DTYPES = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "fp32": "fp32", "float32": "fp32", "no": "fp32"}
_ONE = only([1, -1], "one card, as here", "several cards are not supported yet")
_HUB = "nothing is uploaded by this version"
_CROPS = {"center": "centre", "centercrop": "centre", "resizecrop": "centre", "random": "random", "randomcrop": "random"}


def _crop(report: Report, entry: Entry) -> None:
    """How frames get the shape of their bucket; those of its modes that distort are not followed."""
    if position := _CROPS.get(plain(entry.value)):
        once("dataset.crop_position")(report, replace(entry, value=position))
    else:
        report.ignored(entry, "frames are scaled to cover their bucket and cropped, never distorted")


def _upcasting(report: Report, entry: Entry) -> None:
    """The parts that are held in fp8."""
    parts = {plain(value) for value in entry.values}
    if parts == {"none"}:
        report.ignored(entry, "it is off")
    elif parts == {"transformer"}:
        report.put("memory.weights", "fp8")
        report.mapped(entry, "memory.weights", "fp8")
    else:
        report.unsupported(entry, "only the transformer is quantised when it is loaded: set memory.weights to fp8 for it")


def _compiled_parts(report: Report, entry: Entry) -> None:
    """The parts that are compiled."""
    if "transformer" in map(plain, entry.values):
        compiling(report, replace(entry, value=True))
    else:
        report.unsupported(entry, "only the transformer is compiled: set compute.compile to on for it")


RULES: dict[str, Rule] = {
    "environment.*": ignore("it steers the other trainer's process"),
    "launcher.*": ignore("it starts processes; here there is one"),
    "parallel_backend": ignore("one process trains"),
    "?p_degree": _ONE,
    "dp_shards": _ONE,
    "model_name": family,
    "pretrained_model_name_or_path": model,
    "revision": refuse("the newest version on the hub is taken; for another, download it and give its folder"),
    "variant": refuse(ONE_OR_OTHER),
    "cache_dir": ignore("ComfyUI chooses where models and caches lie"),
    "*_id": refuse(ONE_OR_OTHER),
    "layerwise_upcasting_modules": _upcasting,
    "layerwise_upcasting_*": ignore("the linear layers of the blocks are quantised, to e4m3 with a scale for each row"),
    "text_encoder*_dtype": ignore("text encoders run in compute.dtype"),
    "transformer_dtype": choice("compute.dtype", _DTYPES),
    "vae_dtype": ignore("the VAE's precision belongs to the model family"),
    "caption_dropout_p": to("captions.dropout"),
    "caption_dropout_technique": only(["empty"], "dropped captions are empty here too", "dropped captions are empty"),
    "id_token": once("captions.prefix"),
    "*remove_common_llm_caption_prefixes": to("captions.remove_openings"),
    "video_reshape_mode": _crop,
    "precompute_conditions": ignore("clips and captions are always encoded once, before training"),
    "enable_precomputation": ignore("clips and captions are always encoded once, before training"),
    "precomputation_*": ignore("the cache holds all clips and notices what changed"),
    "dataset_shuffle_buffer_size": ignore("all clips are shuffled, every epoch anew"),
    "dataloader_num_workers": to("dataset.dataloader_threads"),
    "pin_memory": ignore("what a step needs is loaded ahead of it"),
    "flow_resolution_shifting": size_shift,
    "flow_base_*": ignore("it belongs to flow_resolution_shifting"),
    "flow_max_*": ignore("it belongs to flow_resolution_shifting"),
    "flow_shift": to("objective.shift"),
    "flow_weighting_scheme": choice("objective.timesteps", {"logitnormal": "logit-normal", "none": "uniform"}),
    "flow_logit_mean": to("objective.logit_mean"),
    "flow_logit_std": to("objective.logit_std"),
    "flow_mode_scale": ignore("it belongs to the weighting scheme 'mode'"),
    "training_type": only(["lora"], "a LoRA is what is trained", "only LoRA without control inputs is trained by this version"),
    "seed": to("schedule.seed"),
    "mixed_precision": choice("compute.dtype", _DTYPES),
    "batch_size": to("schedule.batch_size"),
    "train_epochs": refuse("the job counts optimizer steps, and how many make an epoch depends on the clips; set schedule.steps"),
    "train_steps": to("schedule.steps"),
    "max_data_samples": refuse("the job ends after schedule.steps"),
    "rank": to("adapter.rank"),
    "lora_alpha": to("adapter.alpha"),
    "target_modules": targets,
    "gradient_accumulation_steps": to("schedule.accumulation"),
    "gradient_checkpointing": choice("memory.gradient_checkpointing", {"true": "full", "false": "off", "none": "off"}),
    "checkpointing_steps": to("output.save_every"),
    "checkpointing_limit": to("output.keep"),
    "resume_from_checkpoint": refuse("checkpoints of other trainers cannot be resumed; a LoRA file can: adapter.continue_from"),
    "enable_slicing": to("memory.vae_slicing"),
    "enable_tiling": to("memory.vae_tiling"),
    "optimizer": optimizer,
    "use_8bit_bnb": eight_bit,
    "use_8bit": eight_bit,
    "use_4bit": off("no optimizer here keeps 4-bit state"),
    "use_torchao": ignore("8-bit AdamW is that of bitsandbytes or of torchao, whichever works"),
    "use_cpu_offload_optimizer": to("optimizer.offload_state"),
    "offload_gradients": ignore("gradients go with optimizer.offload_state"),
    "lr": to("optimizer.learning_rate"),
    "scale_lr": off("the learning rate is used as it is given"),
    "lr_scheduler": choice("optimizer.schedule", {"constant": "constant", "constantwithwarmup": "constant", "cosine": "cosine"}),
    "lr_warmup_steps": to("optimizer.warmup"),
    "lr_num_cycles": only([1], "one cycle, as here", "the schedule has one cycle"),
    "lr_power": ignore("it belongs to the polynomial schedule"),
    "beta1": option("beta1"),
    "beta2": option("beta2"),
    "beta3": ignore("it belongs to other optimizers"),
    "weight_decay": to("optimizer.weight_decay"),
    "epsilon": option("eps"),
    "max_grad_norm": to("optimizer.max_grad_norm"),
    "validation_prompt_separator": ignore("it separates validation_prompts"),
    "validation_separator": ignore("it separates validation_prompts"),
    "validation_images": refuse("sample prompts take their image one by one: samples.prompts"),
    "validation_videos": refuse("sample videos start from text or an image"),
    "num_validation_videos*": only(
        [1], "one video a prompt, as here", "one video a prompt is drawn; list a prompt twice with another seed"
    ),
    "validation_steps": to("samples.every"),
    "validation_epochs": refuse("sample videos come every samples.every steps"),
    "validation_frame_rate": ignore("sample videos play at the model's own rate"),
    "enable_model_cpu_offload": ignore("what a stage does not need is moved off the card"),
    "tracker_name": ignore("there are no trackers; the run's name is output.name"),
    "report_to": only(["none"], "no tracker, as here", "there are no trackers yet; the live monitor shows the run"),
    "push_to_hub": off(_HUB),
    "hub_*": refuse(_HUB),
    "output_dir": run_name,
    "logging_*": ignore("every step is recorded in the run's folder"),
    "*_timeout": ignore("one process trains"),
    "verbose": ignore("notices are always shown"),
    "compile_modules": _compiled_parts,
    "compile_scopes": ignore("each block is compiled by itself"),
    "allow_tf32": ignore("matrix products are in compute.dtype"),
    "float32_matmul_precision": ignore("matrix products are in compute.dtype"),
    "attn_provider_*": attention_of_parts,
    "list_models": ignore("it trains nothing"),
}

DATASETS: dict[str, Rule] = {
    "datasets.#.dataset_type": ignore("videos and images are told by their files"),
    "datasets.#.id_token": refuse("this dataset has no data_root"),
    "datasets.#.reshape_mode": _crop,
    "datasets.#.remove_common_llm_caption_prefixes": refuse("this dataset has no data_root"),
    "datasets.#.caption_options.*": refuse("captions are taken as they are"),
    "datasets.#.caption_options": refuse("captions are taken as they are"),
    "datasets.#.rename_columns.*": ignore("columns that are not needed are not read"),
    "datasets.#.drop_columns": ignore("columns that are not needed are not read"),
    "datasets.#.*data_root": refuse("this dataset was given in two ways"),
}
