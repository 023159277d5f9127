"""The commands of a script, of a shell, cmd or PowerShell, as programs with settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import fail
from .doubts import Uses, notes
from .shell_blocks import Script
from .shell_cmd import CmdScript
from .shell_windows import PowerShellScript, of_windows
from .shell_words import Statement

MOST = 1000  # commands of a script
_PRINTING = {"echo", "printf", "cat", "#", "write-host", "write-output"}
_MODULE = ("-m", "--module")  # that run a module: Python's, and what accelerate calls it too
_LAUNCHERS = ("accelerate", "torch.distributed", "deepspeed")  # modules that run the program named behind them


@dataclass(frozen=True)
class Command:
    """A program and its settings; `data` also has what its launcher got ("launcher") and exported variables ("environment")."""

    program: str
    data: dict[str, Any]
    unread: tuple[str, ...] = ()  # of a script's first command: what of the script was not followed


def commands(text: str, path: Path | None = None) -> list[Command]:
    """The commands of a script that have settings (--name value …), in order, each once; `path` tells what language it is in."""
    kind = of_windows(text, path)
    script = CmdScript() if kind == "cmd" else PowerShellScript() if kind else Script()
    script.run(text)
    found: list[Command] = []
    uses = Uses()
    for statement in script.statements:
        command = _command(statement)
        if len(found) >= MOST:
            raise fail("commands", f"are more than {MOST}, each with other settings.", "Keep the one to import.")
        if command and all((command.program, _own(command.data)) != (other.program, _own(other.data)) for other in found):
            found.append(command)
        if command:
            uses.add(statement.uses)
    if found and script.exported:
        environment = {**script.exported, **found[0].data.get("environment", {})}
        found[0].data["environment"] = environment
    unread = [*script.unread, *notes(uses, " ".join(_texts([_own(command.data) for command in found])))]
    return [replace(found[0], unread=tuple(unread)), *found[1:]] if found else []


def _texts(data: Any) -> list[str]:
    """All text in settings."""
    parts = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [data] if isinstance(data, str) else [text for part in parts for text in _texts(part)]


def _own(data: dict[str, Any]) -> dict[str, Any]:
    """A command's settings without its launcher's."""
    return {name: value for name, value in data.items() if name not in ("launcher", "environment")}


def _command(statement: Statement) -> Command | None:
    """A statement as a program with settings; None if it is something else."""
    words = statement.words
    first = next((n for n, word in enumerate(words) if word.startswith("--")), None)
    if first is None or words[0].lower() in _PRINTING:
        return None
    at = next((n for n, word in enumerate(words) if word.endswith(".py") or _is_module(words, n)), -1)
    if at < 0 and first != 0:
        return None
    program = words[at] if at >= 0 else ""
    data = flags(words[at + 1 :])
    launcher = [word for word in words[: max(at, 0)] if word not in _MODULE]
    if given := flags(launcher):
        data["launcher"] = given
    if statement.environment:
        data["environment"] = dict(statement.environment)
    return Command(re.split(r"[\\/]", program)[-1] if program.endswith(".py") else program, data)


def _is_module(words: list[str], place: int) -> bool:
    """Whether a word is the module that is run, by Python or through a launcher."""
    return place > 0 and words[place - 1] in _MODULE and not words[place].startswith(_LAUNCHERS)


def flags(words: list[str]) -> dict[str, Any]:
    """Settings of a command line: none, one or several words after --name give True, text or a list; dashes become underscores."""
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, separator, value = word[2:].partition("=")
            name = name.replace("-", "_")
            found[name] = value if separator else True
        elif name:
            known = found[name]
            found[name] = word if known is True else [*(known if isinstance(known, list) else [known]), word]
    return found
