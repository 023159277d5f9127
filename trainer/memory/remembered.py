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
    """What was made for the key before, or else is made now; of too many the oldest is forgotten."""
    if key in _known:
        known: T = _known[key]
        return known
    made = make()
    if len(_known) >= MOST:
        _known.pop(next(iter(_known)), None)
    _known[key] = made
    return made


def model_key(family: ModelFamily, config: dict[str, Any]) -> tuple[object, ...]:
    """What is the same for all models of which a part, such as the VAE, computes alike; `config` is the part's."""
    return type(family), family.spec.family, family.spec.variant, json.dumps(config, sort_keys=True)
