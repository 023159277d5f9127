"""What becomes of each of OneTrainer's settings. Names: its saved configurations and their older spellings."""

from __future__ import annotations

from .memory_rules import GRADIENTS_STAY, NOT_TRAINING, attention, compiling, lora_precision
from .model_rules import IN_DTYPE, family, frozen_weights, guidance, model, noise_levels, part
from .onetrainer_concepts import CONCEPTS
from .onetrainer_lists import SAMPLES
from .optimizer_rules import any_option_in_use, optimizer, option
from .result import Entry, Report
from .rules import OFF, Rule, as_number, choice, ignore, off, only, plain, refuse, run_name, to

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_PLAIN_WEIGHTS = only(
    ["BFLOAT_16", "FLOAT_16", "FLOAT_32", "TFLOAT_32", "NONE"],
    IN_DTYPE,
    "of the parts only the transformer is quantised",
)
_UNTRAINED = only([False], "it is not trained here either", "only LoRAs of the transformer are trained by this version")
_LATER = "no setting for this yet"


def _layers(report: Report, entry: Entry) -> None:
    presets = {"attnonly": "attention", "attnmlp": "all", "blocks": "all", "full": "all"}
    if (value := presets.get(plain(entry.value))) is None:
        report.unsupported(entry, "adapter.targets knows only: all, attention, feed-forward")
        return
    report.put("adapter.targets", value)
    whole_model = plain(entry.value) in ("blocks", "full")
    why = "the attention and feed-forward layers of the blocks; other linear layers get no LoRA" if whole_model else ""
    report.mapped(entry, "adapter.targets", value, why)


def _logit_std(report: Report, entry: Entry) -> None:
    value = as_number(entry.value)
    std = value + 1 if isinstance(value, (int, float)) else value
    report.put("objective.logit_std", std)
    report.mapped(entry, "objective.logit_std", std, "OneTrainer adds 1 to it")


def _spatial(report: Report, entry: Entry) -> None:
    _ratio(report, entry, report.family.spatial if report.family else 0)


def _temporal(report: Report, entry: Entry) -> None:
    _ratio(report, entry, report.family.temporal if report.family else 0)


def _ratio(report: Report, entry: Entry, own: int) -> None:
    if not own:
        report.ignored(entry, "the VAE's own ratio holds; it is checked, not set")
    elif as_number(entry.value) == own:
        report.ignored(entry, f"the VAE's own ratio is {own}; checked, not set")
    else:
        report.unsupported(entry, f"the VAE's own ratio is {own} and cannot be set")


def _temporal_augmentation(report: Report, entry: Entry) -> None:
    switch = {"true": "crop and reverse", "1": "crop and reverse", **{plain(value): "off" for value in OFF}}
    if (value := switch.get(plain(entry.value), str(entry.value))) not in ("off", "crop", "reverse", "crop and reverse"):
        report.unsupported(entry, "dataset.temporal_augmentation knows only: off, crop, reverse, crop and reverse")
        return
    report.put("dataset.temporal_augmentation", value)
    why = "frames are not shuffled, which would destroy motion: dataset.frame_shuffling does that" if value != "off" else ""
    report.mapped(entry, "dataset.temporal_augmentation", value, why)


PARTS: dict[str, Rule] = {
    "transformer.train": only([True], "the transformer is what is trained", "only LoRAs of the transformer are trained by this version"),
    "transformer.learning_rate": to("optimizer.learning_rate"),
    "text_encoder.dropout_probability": to("captions.dropout"),
    "text_encoder_?.dropout_probability": ignore("captions are dropped as a whole; captions.dropout says how often"),
    "*.train": _UNTRAINED,
    "*.learning_rate": refuse("only LoRAs of the transformer are trained by this version"),
    "*.train_embedding": only([False], "no embeddings are trained", "embeddings are not trained by this version"),
    "transformer.weight_dtype": frozen_weights,
    "*.weight_dtype": _PLAIN_WEIGHTS,
    "*.include": ignore("the model's own parts are used"),
    "transformer.model_name": part("transformer"),
    "vae.model_name": part("vae"),
    "text_encoder*.model_name": part("text_encoders"),
    "*.model_name": ignore("this model has no such part"),
    "*.stop_training_after*": ignore("the run ends after schedule.steps"),
    "*.offload_fraction": ignore(NOT_TRAINING),
    "*.activation_offloading": ignore("this part is not trained"),
    "*.gradient_checkpointing": ignore("this part is not trained"),
    "*.attention_mask": ignore("the model family decides it"),
    "transformer.guidance_scale": guidance,
    "*.guidance_scale": ignore("the model family decides it"),
}

_STRATEGIES = {name: name for name in ("head", "chunk", "slide", "uniform", "random", "keyframe")}
VIDEO: dict[str, Rule] = {
    "video_config.max_frames": to("dataset.max_frames"),
    "video_config.frame_sample_strategy": choice("dataset.frame_sample_strategy", _STRATEGIES),
    "video_config.target_fps": to("dataset.fps"),
    "video_config.max_duration": to("dataset.max_duration"),
    "video_config.temporal_consistency_weight": off(f"{_LATER}: the loss is flow matching alone"),
    "video_config.use_temporal_attention": ignore(
        "cannot be off in 3-D attention models, which see all frames at once: see the help of Frame Sampling"
    ),
    "video_config.spatial_compression_ratio": _spatial,
    "video_config.temporal_compression_ratio": _temporal,
    "video_config.video_batch_size_multiplier": to("schedule.video_batch_size_multiplier"),
    "video_config.frame_dropout_probability": to("dataset.frame_dropout_probability"),
    "video_config.temporal_augmentation": _temporal_augmentation,
}

RULES: dict[str, Rule] = {
    **CONCEPTS,  # before patterns such as *_strength
    **SAMPLES,
    "training_method": only(["LORA"], "a LoRA is what is trained", "only LoRA is trained by this version"),
    "model_type": family,
    "base_model_name": model,
    "batch_size": to("schedule.batch_size"),
    "gradient_accumulation_steps": to("schedule.accumulation"),
    "epochs": refuse("the job counts optimizer steps, and how many make an epoch depends on the clips; set schedule.steps"),
    "learning_rate": to("optimizer.learning_rate"),
    "learning_rate_scheduler": choice("optimizer.schedule", {"constant": "constant", "cosine": "cosine"}),
    "learning_rate_cycles": only([1], "one cycle, as here", "the schedule has one cycle"),
    "learning_rate_min_factor": off("the cosine schedule ends near 0"),
    "learning_rate_scaler": off("the learning rate is used as it is given"),
    "clip_grad_norm": to("optimizer.max_grad_norm"),
    "dataloader_threads": to("dataset.dataloader_threads"),
    "train_dtype": choice("compute.dtype", _DTYPES),
    "fallback_train_dtype": ignore("compute.dtype holds for all"),
    "enable_autocast_cache": ignore("the model is in compute.dtype"),
    "output_dtype": ignore("LoRA files are written in fp32"),
    "output_model_format": ignore("LoRA files are written for ComfyUI"),
    "output_model_destination": run_name,
    "gradient_checkpointing": ignore("each part says it for itself"),
    "layer_offload_fraction": ignore("each part says it for itself"),
    "enable_activation_offloading": ignore("each part says it for itself"),
    "*async_offloading": ignore("on a card, copies always run beside the computation"),
    "layer_filter": ignore("layer_filter_preset names the layers"),
    "layer_filter_regex": ignore("layer_filter_preset names the layers"),
    "layer_filter_preset": _layers,
    "dropout_probability": to("adapter.dropout"),
    "lora_rank": to("adapter.rank"),
    "lora_alpha": to("adapter.alpha"),
    "lora_model_name": to("adapter.continue_from"),
    "weight_dtype": frozen_weights,
    "lora_weight_dtype": lora_precision,
    "lora_decompose*": off("only plain LoRA is trained by this version"),
    "peft_type": only(["LORA"], "a LoRA is what is trained", "only plain LoRA is trained by this version"),
    "timestep_distribution": choice("objective.timesteps", {"logitnormal": "logit-normal", "uniform": "uniform"}),
    "timestep_shift": to("objective.shift"),
    "dynamic_timestep_shifting": off("objective.shift is one value for all sizes"),
    "noising_weight": _logit_std,
    "noising_bias": to("objective.logit_mean"),
    "min_noising_strength": noise_levels("high", 0),
    "max_noising_strength": noise_levels("low", 1),
    "mse_strength": only([1], "the loss is the mean square", "the loss is the mean square alone"),
    "loss_weight_strength": ignore("it belongs to loss_weight_fn"),
    "*_strength": off("the loss is the mean square alone"),
    "loss_weight_fn": only(["CONSTANT"], "all noise levels weigh alike", "noise levels are weighed by objective.snr_gamma alone"),
    "loss_scaler": off("batches weigh alike"),
    "offset_noise_weight": off("noise is plain"),
    "perturbation_noise_weight": off("noise is plain"),
    "optimizer": optimizer,
    "optimizer.optimizer": optimizer,
    **{f"optimizer.{name}": option(name) for name in ("beta1", "beta2", "beta3")},
    "optimizer.weight_decay": to("optimizer.weight_decay"),
    "optimizer.fused": ignore("AdamW is fused on a card"),
    "optimizer.fused_back_pass": off(GRADIENTS_STAY),
    "optimizer.stochastic_rounding": ignore("steps of a LoRA in bf16 are always rounded up or down by chance; in fp32 nothing is rounded"),
    "optimizer.*": any_option_in_use,
    "optimizer_defaults.*": ignore("it belongs to other optimizers"),
    "ema": off("there is no moving average of the weights yet"),
    "ema_*": ignore("it belongs to ema"),
    "masked_training": off("masks are not supported yet"),
    "unmasked_*": ignore("it belongs to masked_training"),
    "normalize_masked_area_loss": ignore("it belongs to masked_training"),
    "masked_prior_preservation_weight": ignore("it belongs to masked_training"),
    "custom_conditioning_image": off("control images are not supported yet"),
    "embedding_learning_rate": refuse("embeddings are not trained by this version"),
    "embedding_weight_dtype": ignore("embeddings are not trained"),
    "preserve_embedding_norm": ignore("embeddings are not trained"),
    "embedding.*": ignore("embeddings are not trained"),
    "additional_embeddings.*": refuse("embeddings are not trained by this version"),
    "bundle_additional_embeddings": ignore("embeddings are not trained"),
    "aspect_ratio_bucketing": ignore("it is answered with resolution"),
    "latent_caching": ignore("clips are always encoded once, before training"),
    "clear_cache_before_training": ignore("the cache notices what changed"),
    "only_cache": off("training follows"),
    "save_every_unit": ignore("it belongs to save_every"),
    "sample_after_unit": ignore("it belongs to sample_after"),
    "save_*": ignore("output.save_every says when"),
    "sample_*": ignore("samples.every says when; videos are MP4"),
    "samples_to_tensorboard": ignore("the live monitor shows the run"),
    "non_ema_sampling": ignore("there is no moving average"),
    "backup_*": ignore("every checkpoint can be resumed; output.save_every says how often"),
    "rolling_backup*": ignore("output.keep says how many checkpoints stay"),
    "continue_last_backup": ignore("output.if_exists says whether a run goes on"),
    "validat*": off("there is no validation loss yet"),
    "tensorboard*": ignore("the live monitor shows the run"),
    "workspace_dir": ignore("runs lie in ComfyUI's output folder"),
    "*cache_dir": ignore("ComfyUI chooses where models and caches lie"),
    "debug_*": ignore("notices are always shown"),
    "offline_mode": ignore("nothing is downloaded unless it is allowed"),
    "prevent_overwrites": ignore("output.if_exists says whether a run goes on"),
    "include_train_config": ignore("the run's folder has its job.json"),
    "*_device": ignore("compute.device says where; ComfyUI chooses"),
    "device_indexes": ignore("compute.device says where; ComfyUI chooses"),
    "multi_gpu": off("several cards are not supported yet"),
    "*gradient_reduce*": ignore("it belongs to multi_gpu"),
    "attention_mechanism": attention,
    "compile": compiling,
    "quantization.svd_dtype": off("quantised weights have no part of low rank in higher precision beside them"),
    "quantization.*": ignore("memory.weights says how the linear layers of the blocks are held"),
    "oft_*": ignore("it belongs to OFT"),
    "lokr_*": ignore("it belongs to LoKr"),
    "text_encoder*_layer_skip": off("the model family decides it"),
    "text_encoder*_sequence_length": ignore("the model family decides it"),
    "force_*": off("the model family decides it"),
    "rescale_noise_*": off("the model family decides it"),
    "generalized_offset_noise": ignore("noise is plain"),
    "cloud.*": ignore("the run is on this machine"),
    "secrets.*": ignore("no secrets are needed"),
    "scheduler_params*": refuse("the schedule is constant or cosine"),
    "custom_learning_rate_scheduler": refuse("the schedule is constant or cosine"),
    "__version": ignore("the file's own version"),
    **VIDEO,
    **PARTS,
}
