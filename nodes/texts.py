"""What comes where a node takes a text: ComfyUI hands on whatever stands in a graph of its API, or a link of any type gives."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Mapping
from typing import Any

from comfy_api.latest import io

from ..trainer.errors import Problem, UserError
from .schema import Shares

CURE = "Give a text, or link a node that gives one."


def with_checked_texts(node: type[io.ComfyNode]) -> type[io.ComfyNode]:
    """The node, which then raises UserError before it runs, and is marked before anything runs, for text inputs that hold none."""
    run: Any = node.execute.__func__  # type: ignore[attr-defined]  # of a class method

    @functools.wraps(run)
    def execute(cls: type[io.ComfyNode], *args: Any, **values: Any) -> Any:
        if problems := _no_texts(node, values):
            raise UserError(problems)
        return run(cls, *args, **values)

    node.execute = classmethod(execute)  # type: ignore[method-assign]
    validate: Any = node.validate_inputs.__func__  # type: ignore[attr-defined]
    if validate is io.ComfyNode.validate_inputs.__func__:  # type: ignore[attr-defined]  # the node has none
        return node

    @functools.wraps(validate)
    def validate_inputs(cls: type[io.ComfyNode], **values: Any) -> bool | str:
        given = {name: value for name, value in values.items() if value is not None}  # the others are linked: known only when it runs
        return "\n".join(map(str, _no_texts(node, given))) or validate(cls, **values)

    validate_inputs.__signature__ = inspect.signature(validate)  # type: ignore[attr-defined]  # by which ComfyUI knows what to give it
    node.validate_inputs = classmethod(validate_inputs)  # type: ignore[method-assign]
    return node


def _no_texts(node: type[io.ComfyNode], values: Mapping[str, Any]) -> list[Problem]:
    """A problem for each text input that holds something else; of a node that takes lists, that has something else in its list."""
    schema = node.define_schema()
    found = []
    for name in (item.id for item in schema.inputs if _is_text(item)):
        given = values.get(name, []) if schema.is_input_list else [values[name]] if name in values else []
        found += [Problem(name, f"{reprlib.repr(value)} is no text.", CURE) for value in given if not isinstance(value, str)]
    return found


def _is_text(item: Any) -> bool:
    return isinstance(item, (io.String.Input, io.Combo.Input)) and not isinstance(getattr(item, "options", None), Shares)
