"""The command line: train, resume, sample, preview, plan, preset, import, cache, demo, LoRA. Runs by path too, where -m is ignored."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import_module("trainer")
    __package__ = "trainer"

import argparse
import io

from .errors import Interrupted, UserError, fail
from .packages import require

try:
    require("pydantic", "tqdm")  # what the lines below import
except UserError as missing:
    sys.exit(f"error: {missing}")

from .console import Console
from .files import check_can_write
from .job import Bucket, ComputeSettings, TrainingJob
from .lora_commands import add_lora_commands
from .options import add_numbers, at_least_one, checked, seed, within
from .preset_command import add_preset_command
from .preview_settings import PreviewSettings
from .prune_settings import PruneSettings
from .run import Places, run


def main(argv: list[str] | None = None) -> int:
    """Runs one command; 0 if it succeeded, 1 on a user error, 2 if what it wrote needs work, 130 if it was interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file name may hold what this terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        return arguments.command(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Interrupted:
        print("interrupted: progress is saved, the same command goes on from there", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("stopped at once: a training goes on from its newest checkpoint when the same command is given", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer", description="Trains video diffusion LoRAs.")
    commands = parser.add_subparsers(required=True, metavar="command")

    train = commands.add_parser("train", help="train a job file, or resume it")
    train.add_argument("job", type=Path, help="job.json")
    train.add_argument("--set", action="append", default=[], metavar="part.setting=value", help="overrides a setting of the job")
    train.set_defaults(command=_train)

    resume = commands.add_parser("resume", help="go on with a run")
    resume.add_argument("run", type=Path, help="the run's folder")
    resume.set_defaults(command=_resume)

    sample = commands.add_parser("sample", help="draw a video")
    sample.add_argument("prompt")
    sample.add_argument("--model", required=True, help="diffusers folder, hub id, or a job file whose model is used")
    sample.add_argument(
        "--lora",
        type=Path,
        action="append",
        default=[],
        help="LoRA file; of a model with two experts one for each: as their names say, else high first",
    )
    sample.add_argument("--strength", type=within(-10, 10), default=1.0)
    sample.add_argument("--size", default="", help="frames x height x width, such as 81x480x832; default: the model's own")
    sample.add_argument("--negative", default="")
    sample.add_argument("--first-frame", default="", help="picture to start from, for models that take one")
    sample.add_argument("--last-frame", default="", help="picture to end at, for models that take one")
    sample.add_argument("--steps", type=at_least_one, default=20)
    sample.add_argument("--guidance", type=within(0, 100), default=0.0, help="0 is the model's own")
    sample.add_argument("--shift", type=within(0, 100), default=0.0, help="0 is the model's own")
    sample.add_argument("--seed", type=seed, default=0)
    sample.add_argument("--to", type=Path, default=Path("sample.mp4"), help="file to write")
    sample.set_defaults(command=_sample)

    preview = commands.add_parser("preview", help="show what a job will train on: report and contact sheet; loads no weights")
    preview.add_argument("job", type=Path, help="job.json")
    preview.add_argument("--to", type=Path, default=Path("preview"), help="folder to write dataset.json, dataset.txt and sheet.png into")
    add_numbers(preview, PreviewSettings, ("clips", "frames", "first"))
    preview.set_defaults(command=_preview)

    plan = commands.add_parser("plan", help="predict memory and time of a job and show what is chosen; loads no weights and no clips")
    plan.add_argument("job", help="job.json, or a model alone: diffusers folder, hub id, or family/variant")
    plan.add_argument("--set", action="append", default=[], metavar="part.setting=value", help="overrides a setting of the job")
    plan.add_argument("--card", default="", help="plan for this card, such as 4090 or H100, rather than for the one here")
    plan.add_argument("--fit", type=within(0, 1024), default=0.0, help="GB of the card that training may take; default: the job's setting")
    plan.set_defaults(command=_plan)

    imports = commands.add_parser("import", help="turn another trainer's configuration into a job file")
    imports.add_argument(
        "files", type=Path, nargs="+", metavar="file", help="its TOML, JSON, CSV or shell script; several of one run together"
    )
    imports.add_argument(
        "--dataset", type=Path, action="append", default=[], help="its dataset or validation file, if it has one of its own"
    )
    imports.add_argument("--output", type=Path, help="job file to write; default: job.json, if there is none yet")
    imports.set_defaults(command=_import)

    cache = commands.add_parser("cache", help="tell what lies in the cache; with --prune, remove what is not used")
    add_numbers(cache, PruneSettings, ("unused_for",))
    cache.add_argument("--prune", action="store_true", dest="remove", help="remove those files")
    cache.set_defaults(command=_cache)

    add_preset_command(commands)
    add_lora_commands(commands)

    demo = commands.add_parser("demo", help="train the shipped small model on a new concept and report")
    demo.add_argument("--steps", type=int, default=0, help="training steps; default: as many as the demo needs")
    demo.set_defaults(command=_demo)

    for command in (train, resume, sample, preview, plan, cache, demo):
        command.add_argument("--output", type=Path, default=Path("output"), help="folder that runs, LoRA files and the cache go below")
    for command in (train, resume, sample, preview, plan, demo):
        command.add_argument("--models", type=Path, action="append", default=[], help="folder holding diffusers model folders")
        command.add_argument("--allow-downloads", action="store_true", help="let hub ids be downloaded")
    for command in (train, resume, sample, demo):
        command.add_argument("--device", default="auto")
    return parser


def _places(arguments: argparse.Namespace) -> Places:
    output = arguments.output.resolve()
    models = (*arguments.models, output / "models")
    return Places.under(output, models, models[0] if arguments.allow_downloads else None)


def _train(arguments: argparse.Namespace) -> int:
    return _run(TrainingJob.load(arguments.job).overridden(arguments.set), arguments)


def _resume(arguments: argparse.Namespace) -> int:
    from .runfolder import RunFolder

    folder = arguments.run.resolve()
    places = Places.under(folder.parent.parent)
    if RunFolder.open(folder) is None or folder.parent != places.runs:
        cure = f"Give the folder of a run, such as {arguments.output / places.runs.name / 'my-run'}; a job file is for train."
        raise fail(str(arguments.run), "is not the folder of a run.", cure)
    job = TrainingJob.load(folder / "job.json")
    job = job.model_copy(update={"output": job.output.model_copy(update={"name": folder.name, "if_exists": "continue"})})
    arguments.output = folder.parent.parent
    return _run(job, arguments)


def _run(job: TrainingJob, arguments: argparse.Namespace) -> int:
    if arguments.device != "auto":
        job = job.model_copy(update={"compute": job.compute.model_copy(update={"device": arguments.device})})
    places = _places(arguments)
    with Console(places.runs) as console:
        result = run(job, places, console)
    print("\n".join(f"LoRA: {file}" for file in result.loras.values()), f"\nrun:  {result.folder}", sep="")
    return 0


def _sample(arguments: argparse.Namespace) -> int:
    from .experts import files_by_expert
    from .models import open_model
    from .sampling import SampleRequest, VideoSampler
    from .source import find_model, job_or_model
    from .video import write_mp4

    check_can_write(arguments.to, "--to")
    places = _places(arguments)
    model = find_model(job_or_model(arguments.model).model, places.models, places.downloads)
    spec = open_model(model).spec
    size = Bucket.parse(arguments.size or "x".join(map(str, spec.default_bucket)), "--size")
    request = SampleRequest(
        arguments.prompt, size.frames, size.height, size.width, arguments.negative,
        arguments.steps, arguments.guidance, arguments.shift, arguments.seed, arguments.first_frame, arguments.last_frame,
    )  # fmt: skip
    loras = files_by_expert(arguments.lora, spec, "--lora")
    for name, file in loras.items() if len(spec.experts) > 1 else ():
        print(f"LoRA for {name} noise: {file}", file=sys.stderr)
    with Console() as console:
        draw = VideoSampler(model, ComputeSettings(device=arguments.device), loras, arguments.strength, console)
        write_mp4(draw(request), arguments.to, spec.fps)
    print(arguments.to)
    return 0


def _preview(arguments: argparse.Namespace) -> int:
    from .preview_files import write_preview

    shown, job = checked(PreviewSettings, arguments), TrainingJob.load(arguments.job)
    with Console() as console:
        report = write_preview(job, _places(arguments), arguments.to, shown, console, where="--to")
    print("\n".join(report.totals()))
    print(f"report and contact sheet: {arguments.to}")
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from .memory.command import plan_of_job
    from .source import job_or_model

    job, said = job_or_model(arguments.job).overridden(arguments.set), list[str]()

    def say(text: str) -> None:
        if text not in said[-1:]:
            said.append(text)
            print(f"{text} ...", file=sys.stderr, flush=True)

    print(plan_of_job(job, _places(arguments), arguments.card, arguments.fit, say).table())
    return 0


def _cache(arguments: argparse.Namespace) -> int:
    from .data.pruning import prune, survey

    settings, cache = checked(PruneSettings, arguments), Places.under(arguments.output.resolve()).cache
    report = (prune if settings.remove else survey)(cache, settings.unused_for)
    print("\n".join(report.lines()))
    return 1 if report.failed else 0


def _import(arguments: argparse.Namespace) -> int:
    from .importers.command import run_import

    return run_import([*arguments.files, *arguments.dataset], arguments.output)


def _demo(arguments: argparse.Namespace) -> int:
    from .demo.command import run_demo

    return run_demo(_places(arguments), arguments.steps, arguments.device)


if __name__ == "__main__":
    sys.exit(main())
