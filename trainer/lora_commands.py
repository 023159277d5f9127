"""Commands on LoRA files: convert-lora, merge-lora, resize-lora, extract-lora."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .adapters.names import LABELS
from .console import Console
from .errors import fail
from .events import EventLog
from .files import check_can_write
from .job import ComputeSettings
from .options import at_least_one, within

if TYPE_CHECKING:
    from .adapters.combining import Size
    from .models.base import ModelFamily

DEFAULT_RANK = 32  # of an extracted LoRA


def add_lora_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands to the command line."""
    convert = _command(commands, "convert-lora", _convert, "write a LoRA file in another program's names")
    convert.add_argument("file", type=Path, help="LoRA file in any of these names")
    merge = _command(commands, "merge-lora", _merge, "add up LoRA files of one model")
    merge.add_argument("file", type=Path, nargs="+", help="LoRA files in any names")
    merge.add_argument("--weights", type=within(-100, 100), nargs="+", default=[], metavar="W", help="one for each file; default: 1")
    resize = _command(commands, "resize-lora", _resize, "write a LoRA of lower rank that does nearly the same")
    resize.add_argument("file", type=Path, help="LoRA file in any names")
    extract = _command(commands, "extract-lora", _extract, "write as a LoRA what a model was changed by")
    extract.add_argument("base", type=Path, help="the original model: a diffusers folder, or a .safetensors file of its transformer")
    extract.add_argument("tuned", type=Path, help="the changed model")
    extract.add_argument("--device", default="auto")
    for command in (merge, resize, extract):
        rank = DEFAULT_RANK if command is extract else None
        command.add_argument("--rank", type=at_least_one, default=rank, help=f"highest rank of a layer; default: {rank or 'all'}")
        share = "share of each layer's squared singular values to keep; default: all"
        command.add_argument("--energy", type=within(0.01, 1), default=1.0, help=share)
    for command in (convert, merge, resize, extract):
        words = "whose names the file is written in"
        if command is convert:
            command.add_argument("--to", choices=list(LABELS), required=True, help=words)
        else:
            command.add_argument("--to", choices=list(LABELS), default="comfyui", help=f"{words}; default: comfyui")
        command.add_argument("--model", default="", help="the model's folder, or its family; default: told from the file")
        command.add_argument("--models", type=Path, action="append", default=[], help="folder holding diffusers model folders")
        command.add_argument("--output", type=Path, help="file to write; default: beside the first, with a name of its own")


def _command(commands: Any, name: str, run: Any, about: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=about)
    command.set_defaults(command=run)
    return command


def _convert(arguments: argparse.Namespace) -> int:
    from .adapters.converting import convert

    print(convert(arguments.file, arguments.to, _output(arguments, arguments.file, arguments.to), _model(arguments)))
    return 0


def _merge(arguments: argparse.Namespace) -> int:
    from .adapters.making import merge_files

    files = arguments.file
    weights = arguments.weights or [1.0] * len(files)
    if len(weights) != len(files):
        raise fail("--weights", f"are {len(weights)}, and there are {len(files)} files.", "Give one weight for each file, in their order.")
    smaller = _size(arguments) if arguments.rank or arguments.energy < 1 else None
    written, loss = merge_files(files, weights, _output(arguments, files[0], "merged"), _model(arguments), smaller, arguments.to)
    print(written, *([loss] if loss else []), sep="\n")
    return 0


def _resize(arguments: argparse.Namespace) -> int:
    from .adapters.making import resize_file

    if arguments.rank is None and arguments.energy == 1:
        raise fail("--rank", "is not given, and --energy neither.", "Give a rank such as --rank 16, or a share such as --energy 0.95.")
    output = _output(arguments, arguments.file, "resized")
    print(*resize_file(arguments.file, output, _size(arguments), _model(arguments), arguments.to), sep="\n")
    return 0


def _extract(arguments: argparse.Namespace) -> int:
    from .adapters.making import extract_files
    from .compute import Compute

    output, device = _output(arguments, arguments.tuned, "lora"), Compute(ComputeSettings(device=arguments.device)).device
    with Console() as console:
        made = extract_files(
            arguments.base, arguments.tuned, output, _size(arguments), device, EventLog(console), _model(arguments), arguments.to
        )
    for written, found in made:
        print(written, found.loss, sep="\n")
        if found.left_out:
            print(f"not in the LoRA: {len(found.left_out)} tensors that differ and are no linear layers, such as {found.left_out[0]}")
    return 0


def _size(arguments: argparse.Namespace) -> Size:
    from .adapters.combining import Size

    return Size(arguments.rank, arguments.energy)


def _output(arguments: argparse.Namespace, source: Path, word: str) -> Path:
    """The file to write; raises UserError if it cannot be written."""
    output = arguments.output or source.with_name(f"{source.stem}-{word}.safetensors")
    check_can_write(output, "--output")
    return output


def _model(arguments: argparse.Namespace) -> ModelFamily | str:
    """The family's name or the model that --model gives; empty leaves it to the file."""
    from .models import FAMILIES, open_model
    from .source import find_folder

    if not arguments.model or arguments.model in FAMILIES:
        return arguments.model
    return open_model(find_folder(arguments.model, arguments.models, None))
