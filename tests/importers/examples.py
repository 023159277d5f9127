"""Other trainers' files as people write them, shortened; {data} stands for a folder of the test."""

PIPE_TRAINING = """\
# Main training config
output_dir = '{data}/out/dance'
dataset = '{data}/dataset.toml'

epochs = 200
micro_batch_size_per_gpu = 1
gradient_accumulation_steps = 2

[model]
type = 'hunyuan-video'
framepack = true
framepack_window_size = 33

dtype = 'bfloat16'
transformer_dtype = 'float8'
transformer_path = '{data}/transformer.safetensors'
vae_path = '{data}/vae.safetensors'
llm_path = '{data}/text_encoder'
clip_path = '{data}/clip_encoder'

[adapter]
type = 'lora'
rank = 32
dtype = 'bfloat16'
"""

PIPE_DATASET = """\
frame_buckets = [120]  # Videos with 151 frames
resolutions = [[572, 720], [640, 640]]

[[directory]]
path = '{data}/videos'
num_repeats = 1
"""

MUSUBI = """\
[general]
resolution = [960, 544]
caption_extension = ".txt"
batch_size = 2
enable_bucket = true

[[datasets]]
video_directory = '{data}/videos'
cache_directory = '{data}/cache'
target_frames = [1, 25, 45]
frame_extraction = "head"
source_fps = 30.0
num_repeats = 3

[[datasets]]
video_directory = '{data}/more'
target_frames = [33]
frame_extraction = "slide"
resolution = 640

[[datasets]]
video_jsonl_file = '{data}/metadata.jsonl'
target_frames = [25]
"""

FINETRAINERS_SCRIPT = r"""#!/bin/bash

# export TORCHDYNAMO_VERBOSE=1
export WANDB_MODE="offline"
GPU_IDS="0,1"

DATA_ROOT="{data}/cakify"
CAPTION_COLUMN="prompts.txt"
VIDEO_COLUMN="videos.txt"
OUTPUT_DIR="{data}/ltx-video/ltxv_cakify"

# Model arguments
model_cmd="--model_name ltx_video \
  --pretrained_model_name_or_path Lightricks/LTX-Video
  --revision refs/pr/18"

dataset_cmd="--data_root $DATA_ROOT \
  --video_column $VIDEO_COLUMN \
  --caption_column $CAPTION_COLUMN \
  --id_token BW_STYLE \
  --video_resolution_buckets 17x512x768 49x512x768 \
  --caption_dropout_p 0.1"

diffusion_cmd="--flow_resolution_shifting"

training_cmd="--training_type lora \
  --seed 42 \
  --mixed_precision bf16 \
  --train_steps 1200 \
  --rank 128 \
  --lora_alpha 128 \
  --target_modules to_q to_k to_v to_out.0 \
  --gradient_checkpointing \
  --checkpointing_steps 500 \
  --checkpointing_limit 2 \
  --enable_slicing \
  --enable_tiling"

optimizer_cmd="--optimizer adamw \
  --lr 1e-5 \
  --lr_scheduler constant_with_warmup \
  --lr_warmup_steps 100 \
  --beta2 0.95 \
  --weight_decay 1e-4 \
  --epsilon 1e-8"

validation_cmd="--validation_prompts \"BW_STYLE The panda's fluffy paws strum a guitar, \
its face shows joy@@@49x512x768:::BW_STYLE A goat@@@130x512x768:::A cake with no size\" \
  --num_validation_videos 1 \
  --validation_steps 100"

miscellaneous_cmd="--output_dir $OUTPUT_DIR \
  --report_to wandb"

cmd="accelerate launch --config_file accelerate_configs/uncompiled_2.yaml --gpu_ids $GPU_IDS train.py \
  $model_cmd \
  $dataset_cmd \
  $diffusion_cmd \
  $training_cmd \
  $optimizer_cmd \
  $validation_cmd \
  $miscellaneous_cmd"

echo "Running command: $cmd"
eval $cmd
echo -ne "-------------------- Finished executing script --------------------\n\n"
"""

FINETRAINERS_COMMAND = r"""python train.py --model_name wan --pretrained_model_name_or_path "Wan-AI/Wan2.1-T2V-1.3B-Diffusers" \
  --data_root {data}/videos --video_resolution_buckets 61x500x768 --batch_size=2 --use_8bit_bnb \
  --optimizer adamw-bnb --lr 3e-5 --lr_scheduler constant --lr_warmup_steps 100 --train_steps 500 --flow_shift 3 \
  --target_modules "blocks.*(to_q|to_k|to_v|to_out.0)" 2>&1 | tee train.log
"""

FINETRAINERS_ARRAYS = r"""set -e -x
BACKEND="ptd"
NUM_GPUS=1
DDP_1="--parallel_backend $BACKEND --dp_degree 1"
parallel_cmd=( $DDP_1 )
model_cmd=(
  --model_name "wan"   # the family
  --pretrained_model_name_or_path "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
)
dataset_cmd=( --dataset_config "training.json" --validation_dataset_file ${MISSING:-validation.csv} )
training_cmd=(
  --training_type "lora"
  --train_steps 3001
  # --resume_from_checkpoint 3000
  --gradient_accumulation_steps 4
  --flow_weighting_scheme "logit_normal"
)
if [ "$BACKEND" == "accelerate" ]; then
  accelerate launch --gpu_ids 0 train.py "${parallel_cmd[@]}" "${model_cmd[@]}" "${dataset_cmd[@]}" "${training_cmd[@]}"
elif [ "$BACKEND" == "ptd" ]; then
  torchrun --nproc_per_node=$NUM_GPUS train.py \
      "${parallel_cmd[@]}" "${model_cmd[@]}" \
      "${dataset_cmd[@]}" \
      "${training_cmd[@]}"
fi
"""

FINETRAINERS_DATASET = """{
  "datasets": [
    {
      "data_root": "{data}/videos",
      "dataset_type": "video",
      "id_token": "PIKA_CRUSH",
      "video_resolution_buckets": [[49, 480, 832], [48, 480, 840]],
      "reshape_mode": "bicubic",
      "remove_common_llm_caption_prefixes": true
    },
    {"data_root": "finetrainers/crush-smol", "dataset_type": "video", "id_token": "OTHER", "rename_columns": {"text": "caption"}}
  ]
}
"""

VALIDATION_JSON = """{
  "data": [
    {"caption": "A fox in the snow", "image_path": null, "video_path": null, "num_inference_steps": 50,
     "height": 480, "width": 832, "num_frames": 48},
    {"caption": "A dog", "image_path": "dog.png", "num_inference_steps": 30, "guidance_scale": 5.0, "frame_rate": 25,
     "height": 480, "width": 832, "num_frames": 49, "max_sequence_length": 128}
  ]
}
"""

VALIDATION_CSV = """\ufeffcaption,image_path,video_path,num_inference_steps,height,width,num_frames,frame_rate
"A goat, and ""musical"" notes",,{data}/clip.mp4,50,480,768,49,25
"Line one
line two",,,50,512,,161,25
"""

FASTVIDEO_PREPROCESS = r"""torchrun --nproc_per_node=2 \
    -m fastvideo.pipelines.preprocess.v1_preprocessing_new \
    --model_path "Wan-AI/Wan2.1-T2V-1.3B-Diffusers" \
    --mode preprocess \
    --workload_type t2v \
    --preprocess.dataset_type merged \
    --preprocess.dataset_path "{data}/your_dataset/" \
    --preprocess.dataset_output_dir "{data}/your_dataset_processed/" \
    --preprocess.video_loader_type torchvision \
    --preprocess.max_height 480 \
    --preprocess.max_width 832 \
    --preprocess.num_frames 78 \
    --preprocess.train_fps 16
"""

FASTVIDEO_TRAINING = r"""
MODEL_PATH="Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
VALIDATION="$(dirname "$0")/validation.json"
args=(--max_train_steps 5000 --train_batch_size 1 --num_latent_t 20 --lora_rank 32 --lora-training True)
args+=(--validation_dataset_file $VALIDATION --validation_steps 200 --validation_sampling_steps "50")
torchrun fastvideo/training/wan_training_pipeline.py --pretrained_model_name_or_path $MODEL_PATH "${args[@]}" \
    --learning_rate 5e-5 --betas 0.9,0.999 --training_cfg_rate 0.1 --VSA_sparsity 0.8 --sp_size 2 \
    --hub_token hf_abc --data_path data/a:2,data/b
"""

VIDEO_CONFIG = """
    "frames": "16",
    "resolution": "512",
    "gradient_checkpointing": "CPU_OFFLOADED",
    "layer_offload_fraction": 0.5,
    "train_dtype": "BFLOAT_16",
    "dataloader_threads": 4,
    "video_config": {
        "max_frames": 16,
        "frame_sample_strategy": "uniform",
        "target_fps": 24.0,
        "max_duration": 10.0,
        "temporal_consistency_weight": 1.0,
        "use_temporal_attention": true,
        "spatial_compression_ratio": 8,
        "temporal_compression_ratio": 2,
        "video_batch_size_multiplier": 0.5,
        "frame_dropout_probability": 0.0,
        "temporal_augmentation": true
    }
}
"""

ONETRAINER_LORA = (
    """{
    "training_method": "LORA",
    "batch_size": 2,
    "learning_rate": 0.0003,
    "transformer": {"train": true},
    "text_encoder": {"train": false},
    "model_type": "HUNYUAN_VIDEO",
    "lora_rank": 16, "lora_alpha": 1.0, "noising_weight": 0.5, "timestep_distribution": "LOGIT_NORMAL",
    "optimizer": {"optimizer": "ADAMW_8BIT", "beta2": 0.999},
    "concepts": [{"name": "dance", "path": "{data}/videos", "repeats": 2.0, "loss_weight": 0.5,
                  "include_subdirectories": true, "enabled": true,
                  "image": {"enable_random_flip": true, "random_rotate_max_angle": 5.0}},
                 {"name": "off", "path": "{data}/more", "enabled": false}],
    "samples": [{"enabled": true, "prompt": "A dancer", "height": 512, "width": 512, "frames": 25, "seed": 7, "cfg_scale": 6.0}],
    "secrets": {"huggingface_token": "hf_abc"},"""
    + VIDEO_CONFIG
)

ONETRAINER_FINE_TUNE = (
    """{
    "training_method": "FINE_TUNE",
    "batch_size": 1,
    "learning_rate": 0.0001,
    "transformer": {"train": true},
    "text_encoder": {"train": true, "learning_rate": 0.00005},
    "model_type": "WAN_2_2","""
    + VIDEO_CONFIG
)

ONETRAINER_EMBEDDING = (
    """{
    "training_method": "EMBEDDING",
    "batch_size": 4,
    "learning_rate": 0.001,
    "embedding_learning_rate": 0.005,"""
    + VIDEO_CONFIG
)

# What belongs together: file names and texts of one import; the first file is given, those that it names lie beside it.
RUNS = {
    "diffusion-pipe": {"train.toml": PIPE_TRAINING, "dataset.toml": PIPE_DATASET},
    "musubi": {"musubi.toml": MUSUBI},
    "finetrainers script": {"train.sh": FINETRAINERS_SCRIPT},
    "finetrainers command": {"command.txt": FINETRAINERS_COMMAND},
    "finetrainers arrays": {"train.sh": FINETRAINERS_ARRAYS, "training.json": FINETRAINERS_DATASET, "validation.csv": VALIDATION_CSV},
    "FastVideo preprocessing": {"preprocess.sh": FASTVIDEO_PREPROCESS},
    "FastVideo training": {"finetune.sh": FASTVIDEO_TRAINING, "validation.json": VALIDATION_JSON},
    "OneTrainer LoRA": {"preset.json": ONETRAINER_LORA},
    "OneTrainer fine-tuning": {"preset.json": ONETRAINER_FINE_TUNE},
    "OneTrainer embedding": {"preset.json": ONETRAINER_EMBEDDING},
    "validation JSON": {"validation.json": VALIDATION_JSON},
    "validation CSV": {"validation.csv": VALIDATION_CSV},
}
