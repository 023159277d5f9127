"""Names of a model's modules in diffusers and in ComfyUI, both ways, with the modules that ComfyUI keeps fused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Rule:
    """One or several diffusers modules and the ComfyUI module that holds them; `*` stands for a number, the same on both sides.

    The outputs of several modules lie in ComfyUI's one after the other. `swapped` exchanges the halves of the output.
    Names of parameters that belong to no linear layer, such as a table, are written in full.
    """

    diffusers: str | tuple[str, ...]
    comfy: str
    swapped: bool = False

    @property
    def modules(self) -> tuple[str, ...]:
        """The diffusers modules in order."""
        return (self.diffusers,) if isinstance(self.diffusers, str) else self.diffusers


@dataclass(frozen=True)
class Place:
    """Where a module lies in ComfyUI: it is `modules[number]` of what `comfy` holds."""

    comfy: str
    modules: tuple[str, ...]
    number: int = 0
    swapped: bool = False


class KeyMap:
    """Rules used both ways; of several that fit, the first counts.

    `original` rules name modules as the original release does where ComfyUI does not: LoRA files of other trainers use these.
    """

    def __init__(self, rules: Sequence[Rule], prefix: str = "diffusion_model.", original: Sequence[Rule] = ()) -> None:
        self.rules, self.prefix = tuple(rules), prefix
        self.original: KeyMap = KeyMap((*original, *rules), prefix) if original else self  # reads ComfyUI's names too
        self._ours = [(_pattern(module), rule, number) for rule in rules for number, module in enumerate(rule.modules)]
        self._comfy = [(_pattern(rule.comfy), rule) for rule in rules]

    def place(self, module: str) -> Place:
        """Where a diffusers module lies in ComfyUI; raises KeyError if ComfyUI has no such module."""
        for pattern, rule, number in self._ours:
            if match := pattern.fullmatch(module):
                return _place(rule, match.groups(), number)
        raise KeyError(module)

    def found(self, comfy: str) -> Place:
        """The diffusers modules that a ComfyUI module holds; raises KeyError for an unknown name."""
        for pattern, rule in self._comfy:
            if match := pattern.fullmatch(comfy):
                return _place(rule, match.groups(), 0)
        raise KeyError(comfy)

    def found_flat(self, name: str) -> Place:
        """What a name of this map or of diffusers holds, its dots written as underscores; raises KeyError if none or several fit."""
        found: dict[tuple[str, ...], Place] = {}
        for pattern, rule, alone in self._flat:
            if match := pattern.fullmatch(name):
                place = _place(rule, match.groups(), alone or 0)
                place = place if alone is None else single(place.modules[alone])
                found.setdefault(place.modules, place)
        if len(found) != 1:
            raise KeyError(name)
        return next(iter(found.values()))

    @cached_property
    def _flat(self) -> list[tuple[re.Pattern[str], Rule, int | None]]:
        """Patterns of this map's names, then those of diffusers with the module's number in its rule."""
        theirs = [(_pattern(rule.comfy.replace(".", "_")), rule, None) for rule in self.rules]
        ours = [(_pattern(module.replace(".", "_")), rule, number) for rule in self.rules for number, module in enumerate(rule.modules)]
        return [*theirs, *ours]


def below(ours: str, comfy: str, names: Mapping[str, str]) -> list[Rule]:
    """A rule for each of some names, with what stands before them in diffusers and in ComfyUI."""
    return [Rule(ours + own, comfy + other) for own, other in names.items()]


def single(module: str) -> Place:
    """The place of a module that is held alone, under its own name."""
    return Place(module, (module,))


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\*", r"(\d+)"))


def _place(rule: Rule, numbers: Sequence[str], number: int) -> Place:
    return Place(_filled(rule.comfy, numbers), tuple(_filled(module, numbers) for module in rule.modules), number, rule.swapped)


def _filled(name: str, numbers: Sequence[str]) -> str:
    values = iter(numbers)
    return re.sub(r"\*", lambda _: next(values), name)
