"""What every part of a job is made of: fields that carry their label, text, unit and range."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def setting(
    default: Any,
    label: str,
    text: str,
    *,
    unit: str = "",
    advanced: bool = False,
    step: float | None = None,
    auto: float | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
) -> Any:
    """A field with what nodes, docs and errors need: label, help text, unit, range, whether it is folded away.

    Of a number that may also be left open, `auto` is the value that says so: a node offers that by this word, and then only
    numbers from 0 by steps.
    """
    extra: dict[str, Any] = {"unit": unit, "advanced": advanced, "step": step, "auto": auto}
    kind: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**kind, title=label, description=text, json_schema_extra=extra, ge=ge, gt=gt, le=le, lt=lt)


def _whole(text: str) -> str:
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("it holds half of a character (a lone surrogate), which no text encoder reads")
    return text


Text = Annotated[str, AfterValidator(_whole)]  # what text encoders read; a path may hold halves, of a name that is not UTF-8


class Settings(BaseModel):
    """Base of all parts of a job: unknown keys are errors, values never change after checking."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def changed_settings(part: Settings, but: Collection[str] = ()) -> list[str]:
    """The fields whose value is not the default, without those in `but`."""
    fields = type(part).model_fields.items()
    return [name for name, field in fields if name not in but and getattr(part, name) != field.get_default(call_default_factory=True)]
