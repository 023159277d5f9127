"""What ComfyUI marks a node with before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..trainer.errors import UserError


def verdict(read: Callable[..., object], *values: Any) -> bool | str:
    """True if `read` accepts the values of a node's inputs, else all that is wrong with them."""
    try:
        read(*values)
    except UserError as error:
        return str(error)
    return True
