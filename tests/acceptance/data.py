"""Issue 3, "Must show": each line of it, measured.

    python tests/acceptance/data.py [--gpu] [line ...]

Run it in the environment that `make test` makes (.venv). Line 4 needs fork and SIGKILL (not Windows), 6 a ComfyUI; 8 takes
many minutes, and its ratios are right only on an idle machine. With --gpu line 8 measures how busy the encoder keeps a card.
With VIDEO_TRAINER_SEEDS set to a folder of the documents that the examples of line 7 come from, they are imported word by word.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.acceptance.lines import Check, Skipped, at_least, at_most, main, passed_tests  # noqa: E402

KILLS, BUSY = 20, 0.9
DECODING, BUCKETS, CACHE = "tests/data/test_cases_decode.py::", "tests/data/test_cases_buckets.py::", "tests/data/test_cases_cache.py::"
CAPTIONS, PREPARE, READING = "tests/data/test_captions.py::", "tests/data/test_prepare.py::", "tests/importers/test_reading.py::"

CASES = {
    "D1": (f"{DECODING}test_d1_a_clip_shorter_than_its_estimate_is_skipped_with_the_reason",),
    "D2": (f"{DECODING}test_d2_ntsc_film_says_its_frames_and_rates",),
    "D4": (f"{DECODING}test_d4_av1_decodes", f"{DECODING}test_d4_a_stream_without_frames_names_its_codec"),
    "D5": (f"{DECODING}test_d5_a_turned_phone_recording_is_upright",),
    "D6": (f"{DECODING}test_d6_hlg_of_ten_bits_gives_bt709_of_eight",),
    "D9": (f"{DECODING}test_d9_sound_of_any_kind_does_not_lose_the_picture",),
    "D11": (
        f"{DECODING}test_d11_system_files_taken_for_clips_are_refused_with_a_reason",
        "tests/data/test_folder.py::test_only_clips_are_taken_whatever_lies_beside_them",
    ),
    "D13": (
        f"{PREPARE}test_without_buckets_a_short_clip_takes_its_own_length",
        f"{PREPARE}test_folder_of_pictures_says_what_it_saw",
    ),
    "D14": (f"{PREPARE}test_folder_of_pictures_says_what_it_saw",),
    "C1": (f"{CAPTIONS}test_c1_windows_1252_is_read_before_step_0_and_the_file_is_named",),
    "C2": (f"{CAPTIONS}test_c2_byte_order_marks_never_reach_the_caption",),
    "C3": (f"{CAPTIONS}test_c3_missing_empty_and_blank_captions_obey_one_rule_and_are_counted",),
    "C5": ("tests/test_run.py::test_prompts_edited_while_training_change_nothing",),
    "F1": (f"{BUCKETS}test_f1_the_largest_window_that_fits_is_told",),
    "F2": (f"{BUCKETS}test_f2_no_clip_is_dropped_to_fill_batches",),
    "F4": (f"{BUCKETS}test_f4_a_clip_that_is_too_short_is_told_and_nothing_left_is_an_error",),
    "F5": (f"{BUCKETS}test_f5_frame_counts_are_never_zero_or_negative", f"{BUCKETS}test_f5_a_bucket_of_no_frames_is_refused"),
    "F6": (
        f"{BUCKETS}test_f6_48_frames_are_rounded_and_told",
        f"{BUCKETS}test_f6_the_shipped_workflows_ask_for_sizes_their_models_take",
    ),
    "F8": (f"{BUCKETS}test_f8_a_batch_has_the_losses_of_its_clips_alone",),
    "F9": (f"{BUCKETS}test_f9_clips_of_different_length_are_never_in_one_batch",),
    "F10": (f"{BUCKETS}test_f10_a_circle_stays_a_circle",),
    "F12": (f"{BUCKETS}test_f12_rates_and_picked_frames_are_told",),
    "K1": (f"{PREPARE}test_other_encoder_weights_encode_again", f"{CACHE}test_k1_another_text_encoder_width_reaches_the_dataset"),
    "K2": (f"{CACHE}test_k2_two_families_share_a_cache_folder",),
    "K4": (f"{CACHE}test_k4_what_lies_in_the_cache_is_not_the_dataset",),
    "K5": (f"{CACHE}test_k5_one_new_file_is_one_encoding_and_another_size_is_all",),
    "K8": (f"{CACHE}test_k8_a_mode_set_later_is_encoded_then_and_both_stay",),
    "W1": (
        f"{CACHE}test_w1_windows_paths_round_trip_in_every_path_setting",
        f"{READING}test_a_windows_path_in_double_quotes",
        f"{READING}test_a_windows_path_in_json",
    ),
    "W2": (f"{CACHE}test_w2_no_file_stays_mapped_after_it_was_read",),
    "W4": (f"{DECODING}test_w4_spaces_accents_and_long_paths", f"{CACHE}test_w4_clips_cache_and_model_in_folders_of_such_names"),
    "W6": (f"{CACHE}test_w6_clips_are_decoded_in_threads_of_this_process",),
}
ELSEWHERE = {
    "D8": "needs environments of the oldest and the newest packages: line 10 of main_job.py trains in two",
    "W2": "that a mapped file cannot be replaced is so on Windows only; what is shown is that none stays mapped",
    "W6": "the error itself is one of Windows; what is shown is that there are no worker processes",
}
FRAMES = ("tests/data/test_against_ffmpeg.py", "tests/data/test_tone.py")
SOURCES = "tests/host/test_sources.py"
EXAMPLES = ("diffusion-pipe", "OneTrainer LoRA", "OneTrainer fine-tuning", "OneTrainer embedding", "finetrainers script")


def cases() -> list[Check]:
    """A test for each row that can be made here, then frames against ffmpeg and HDR against the reference."""
    for row, reason in ELSEWHERE.items():
        print(f"  {row} {'in part' if row in CASES else 'not made here'}: {reason}")
    each = list(dict.fromkeys(test for tests in CASES.values() for test in tests))
    found = passed_tests(*each)
    rows = Check(f"{len(CASES)} rows: {', '.join(CASES)}", found.figure, found.bar, found.ok)
    return [rows, *(passed_tests(file) for file in FRAMES)]


def report() -> list[Check]:
    """30 mixed files: all accounted for, every drop with its reason and cure."""
    return [passed_tests("tests/data/test_report.py")]


def exact_work() -> list[Check]:
    """What each change encodes again, counted at the encoders of a random Wan; then every setting and kind of damage by itself."""
    return [
        passed_tests("tests/data/test_exact_work.py"),
        passed_tests("tests/data/test_prepare.py", "tests/data/test_frame_sampling.py", "-k", "encode or encoded or cached or again"),
    ]


def killed() -> list[Check]:
    """SIGKILL at random moments of the cache stage, each time with a restart."""
    if not hasattr(os, "fork"):
        raise Skipped("this system has no fork")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "tests/acceptance/killed.py"), folder, str(KILLS)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        print(done.stderr[-3000:])
        return [Check("killed.py", f"exit {done.returncode}", "exit 0", False)]
    found = json.loads(done.stdout.splitlines()[-1])
    rounds: list[dict[str, Any]] = found["rounds"]
    kept = [one["kept"] for one in rounds]
    return [
        at_least(f"kills in a stage of {found['seconds']:.1f} s", len(rounds), KILLS, "d"),
        Check("items finished at each kill", str(kept), f"of {found['items']}, not all alike", len(set(kept)) > 1),
        at_least("restarts that complete", sum(one["status"] == 0 for one in rounds), KILLS, "d"),
        at_most("finished items encoded or written again", sum(one["again"] for one in rounds), 0, "d"),
        at_most("half-written files left after the restart", sum(one["half_written"] for one in rounds), 0, "d"),
        at_least("final caches byte-identical to the uninterrupted one", sum(one["identical"] for one in rounds), KILLS, "d"),
    ]


def parquet() -> list[Check]:
    """Columns one by one, bytes read back, and losses of a run from Parquet equal to those of the run from clips."""
    file, training = "tests/data/test_parquet.py::", "tests/data/test_parquet_training.py::"
    return [
        passed_tests(f"{file}test_columns_are_fastvideos_one_by_one"),
        passed_tests(
            f"{file}test_65_samples_are_two_files_and_come_back_bit_for_bit",
            f"{file}test_rows_decode_the_way_fastvideo_decodes_them",
            f"{file}test_other_precisions_are_stored_as_float32",
            f"{file}test_image_parts_are_kept_and_missing_ones_are_empty_bytes",
            f"{file}test_text_only_samples_have_no_latent",
        ),
        passed_tests(f"{training}test_an_export_holds_latents_and_texts_as_they_are_cached"),
        passed_tests(f"{training}test_a_run_from_our_parquet_has_the_losses_of_the_run_from_clips"),
    ]


def in_comfyui() -> list[Check]:
    """Each source trains the demo model through /prompt and notices a replaced clip; all of them combined; Parquet; the preview."""
    from tests.conftest import lacking

    if reason := lacking("host"):
        raise Skipped(reason)
    checks = [
        passed_tests(f"{SOURCES}::test_each_source_trains_the_demo_model_and_a_replaced_clip_runs_again"),
        passed_tests(f"{SOURCES}::test_all_sources_combined_train_and_a_replaced_clip_is_noticed"),
        passed_tests("tests/host/test_parquet.py"),
        passed_tests("tests/host/test_config.py"),
    ]
    shown = sorted(file.name for file in (ROOT / "tests/browser").glob("test_*preview*.py"))
    if not shown:
        return [*checks, Check("the preview in a screenshot", "no test in tests/browser names it", "one that takes the screenshot", False)]
    return [*checks, *(passed_tests(f"tests/browser/{name}") for name in shown)]


def imports() -> list[Check]:
    """Two TOML files, three JSON presets and two command lines become jobs that validate."""
    named = [f"tests/importers/test_import.py::test_the_job_validates_and_every_setting_has_one_line[{run}]" for run in EXAMPLES]
    checks = [passed_tests(*named, "tests/importers/test_command.py")]
    seeds = os.environ.get("VIDEO_TRAINER_SEEDS")
    if not seeds:
        print("  skipped: the documents themselves; VIDEO_TRAINER_SEEDS names no folder of them")
        return checks
    return checks + [_imported(name, files) for name, files in _examples(Path(seeds)).items()]


def _examples(seeds: Path) -> dict[str, dict[str, str]]:
    """The documents' examples: files by name, the first being the one to import."""

    def blocks(number: str, language: str) -> list[str]:
        text = next(seeds.glob(f"{number}*")).read_text(encoding="utf-8")
        return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)

    training, dataset = [text for text in blocks("000", "toml") if "dataset" in text or "directory" in text]
    found = {"000, two TOML": {"train.toml": training, "dataset.toml": dataset}}
    found |= {f"001, JSON {number}": {"preset.json": text} for number, text in enumerate(blocks("001", "json"), 1)}
    scripts = [text for text in blocks("003", "bash") if "--model_name" in text]
    return found | {f"003, command line {number}": {"train.sh": text} for number, text in enumerate(scripts, 1)}


def _imported(name: str, files: dict[str, str]) -> Check:
    from trainer.importers import import_config
    from trainer.job import TrainingJob

    with tempfile.TemporaryDirectory() as folder:
        for file, text in files.items():
            (Path(folder) / file).write_text(text.replace("/path/to", Path(folder).as_posix()), encoding="utf-8")
        imported = import_config([Path(folder) / next(iter(files))])
        TrainingJob.parse(imported.job)  # raises what it does not accept
    kinds = [line.kind for line in imported.lines]
    told = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return Check(name, told, "validates, every setting told", bool(kinds))


def benchmark() -> list[Check]:
    """Decoding beside the plain way; the cache stage beside decoding and encoding in turn; memory; a large folder."""
    from tests.benchmarks import caching
    from tests.benchmarks.decoding import table

    rows = table()
    print(*(f"  {row}" for row in rows), sep="\n")
    checks = [at_least(f"{row.case}: times the plain way's speed", row.ratio, row.bar, ".2f") for row in rows]
    return checks + [check for part in caching.PARTS.values() for check in part()]


def encoder_busy() -> list[Check]:
    """Share of the cache stage in which a full-size Wan VAE of random weights is at work on the card, with threads and without."""
    import torch
    from diffusers import AutoencoderKLWan

    from tests.benchmarks.caching import unlike
    from tests.benchmarks.decoding import write_clips
    from tests.tiny.wan import write_tiny_wan

    if not torch.cuda.is_available():
        raise Skipped("no CUDA device")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_tiny_wan(folder / "model")
        AutoencoderKLWan().save_pretrained(folder / "model/vae")
        (folder / "clips").mkdir()
        unlike(write_clips(folder / "clips", 24))
        in_turn, ahead = (_busy(folder, threads) for threads in (0, 2))
    print(f"  24 clips of 33x480x832 on {torch.cuda.get_device_name()}; decoding and encoding in turn: {in_turn:.1%}")
    return [at_least("encoder at work", ahead, BUSY, ".1%")]


def _busy(folder: Path, threads: int) -> float:
    """The encoder's share of the time between its second clip and its last."""
    import torch

    from tests.data.synthetic import Watcher, watched
    from trainer.components import Components
    from trainer.compute import Compute
    from trainer.data.cache import TensorCache
    from trainer.data.prepare import prepare_dataset
    from trainer.job import Bucket, CaptionSettings, ComputeSettings, DatasetSettings, VideoFolder
    from trainer.models import open_model

    spans: list[tuple[float, float]] = []

    def timed(encode: Callable[..., Any]) -> Callable[..., Any]:
        def encoding(*given: Any) -> Any:
            torch.cuda.synchronize()
            start = time.perf_counter()
            made = encode(*given)
            torch.cuda.synchronize()
            spans.append((start, time.perf_counter()))
            return made

        return encoding

    log, family = watched(Watcher()), open_model(folder / "model")
    family.encode_video = timed(family.encode_video)  # type: ignore[method-assign]
    components = Components(family, Compute(ComputeSettings(device="cuda")), log)
    settings = DatasetSettings(
        sources=[VideoFolder(folder=str(folder / "clips"))], buckets=[Bucket(frames=33, height=480, width=832)], fps=30,
        dataloader_threads=threads,
    )  # fmt: skip
    prepare_dataset(settings, CaptionSettings(), family, TensorCache(folder / f"cache {threads}"), components, log)
    return sum(end - start for start, end in spans[1:]) / (spans[-1][1] - spans[1][0])  # the first warms the card up


LINES = {
    1: ("A test per case", cases),
    2: ("The report on mixed files", report),
    3: ("Encoded again is what changed", exact_work),
    4: ("Killed in the cache stage", killed),
    5: ("FastVideo's Parquet", parquet),
    6: ("In a real ComfyUI", in_comfyui),
    7: ("Other trainers' examples", imports),
    8: ("The benchmark table", benchmark),
}
ON_GPU = {8: ("The encoder's share of the time", encoder_busy)}

if __name__ == "__main__":
    sys.exit(main(LINES, ON_GPU))
