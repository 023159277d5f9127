"""What was rehearsed in this process: models that are configured alike are rehearsed once, however often they are opened and planned."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..models.base import ModelFamily

T = TypeVar("T")
MOST = 1000  # results of some kilobytes
_known: dict[tuple[object, ...], Any] = {}


def remembered(key: tuple[object, ...], make: Callable[[], T]) -> T:
    """What was made for the key before; it is made if nothing was, and of too many the oldest is forgotten."""
    if key not in _known:
        made = make()
        if len(_known) >= MOST:
            _known.pop(next(iter(_known)), None)
        _known[key] = made
    found: T = _known[key]
    return found


def alike(family: ModelFamily, config: dict[str, Any]) -> tuple[object, ...]:
    """What models have in common whose part of this configuration computes alike."""
    return type(family), family.spec.family, family.spec.variant, json.dumps(config, sort_keys=True)
