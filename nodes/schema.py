"""Turns the fields of a settings model into node inputs, so that each setting is described in one place: `trainer/job.py` and its parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from comfy_api.latest import io
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from ..trainer.errors import from_validation
from ..trainer.job import Settings

FINEST_STEP = 0.001  # the front end rounds a float to its step's decimals, 0.5 unless told otherwise


class Shares(list[str]):
    """Choices of a share, among which ComfyUI finds every other value too that its setting takes: a graph may give any number.

    So it checks the share itself, and tells of a wrong one once; what `validate_inputs` says it tells of each input named there.
    It shows lists of up to 20 choices as their text.
    """

    def __init__(self, choices: Iterable[str], accepted: Callable[[Any], bool] = lambda _: False) -> None:  # copies only show the choices
        super().__init__(choices)
        self._accepted = accepted

    def __str__(self) -> str:
        """What is taken, in words."""
        return f"{self[0]} or any number from {self[1]} to {self[-1]}"

    def __contains__(self, value: object) -> bool:
        """Whether it is a choice or the setting takes it; nothing at all is no share."""
        return super().__contains__(value) or (value is not None and self._accepted(value))


def inputs(
    part: type[Settings],
    *,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    fold: Collection[str] = (),
    multiline: Collection[str] = (),
    required: Collection[str] = (),
    prefix: str = "",
) -> list[io.Input]:
    """One input per field of `part`, its id the field's name after `prefix`; fields in `fold` are folded away too.

    `only` chooses fields and gives their order.

    Inputs are optional, so that a graph saved before a setting existed still runs, with the setting's default.
    """
    chosen = [name for name in only or part.model_fields if name not in skip]
    made = [_input(prefix + name, name, part, name in multiline) for name in chosen]
    for name, item in zip(chosen, made, strict=True):
        item.optional = name not in required
        item.advanced = True if item.advanced or name in fold else None
    return made


def values(part: type[Settings], given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The node's values that belong to `part`, by field name."""
    return {name: given[prefix + name] for name in part.model_fields if prefix + name in given}


def build(part: type[Settings], given: Mapping[str, Any], prefix: str = "") -> Any:
    """A checked `part` from a node's values; raises UserError listing every problem."""
    try:
        return part.model_validate(values(part, given, prefix))
    except ValidationError as error:
        raise from_validation(error, lambda _: list(part.model_fields)) from None


def refusal(part: type[Settings], given: Mapping[str, Any]) -> str:
    """Why a value of a node is not accepted, for its `validate_inputs`; empty if all are, or are linked and known only when it runs."""
    try:
        part.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        found = error.errors()[0]
        return f"{part.model_fields[str(found['loc'][0])].title}: {found['msg'].removeprefix('Value error, ')}."
    return ""


def _input(id: str, name: str, part: type[Settings], multiline: bool) -> io.Input:
    field = part.model_fields[name]
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    text = field.description or ""
    common: dict[str, Any] = {
        "display_name": field.title or name,
        "tooltip": f"{text} In {extra['unit']}." if extra.get("unit") else text,
        "default": field.get_default(call_default_factory=True),
        "advanced": extra.get("advanced"),
    }
    kind = _kind(field.annotation)
    if get_origin(kind) is Literal:
        return io.Combo.Input(id, options=list(get_args(kind)), **common)
    if kind is bool:
        return io.Boolean.Input(id, **common)
    step: Any = extra.get("step")
    low, high = _limits(field, step)
    if extra.get("auto") is not None:
        choices = ["auto", *(f"{number * step:g}" for number in range(round(high / step) + 1))]
        shares = Shares(choices, lambda value: not refusal(part, {name: value}))
        return io.Combo.Input(id, options=shares, **{**common, "default": "auto"})
    if kind is int:
        fixed = False if name.endswith("seed") else None
        return io.Int.Input(id, min=low, max=high, step=int(step or 1), control_after_generate=fixed, **common)
    if kind is float:
        return io.Float.Input(id, min=low, max=high, step=step or FINEST_STEP, **common)
    if kind is str:
        return io.String.Input(id, multiline=multiline, **common)
    raise TypeError(f"{name}: a setting of type {kind} has no widget; leave it out with skip=")


def _kind(annotation: Any) -> Any:
    """The type itself of an optional type."""
    if isinstance(annotation, UnionType):
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def _limits(field: FieldInfo, step: float | None) -> tuple[Any, Any]:
    """Smallest and largest value that a widget offers; where the limit itself is not accepted, a step inside of it."""
    low = high = None
    inside = step or FINEST_STEP
    for limit in field.metadata:
        low = limit.gt + inside if hasattr(limit, "gt") else getattr(limit, "ge", low)
        high = limit.lt - inside if hasattr(limit, "lt") else getattr(limit, "le", high)
    return low, high
