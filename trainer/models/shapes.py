"""The shapes of a file's tensors by name, from which its kind is told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Shape = tuple[int, ...]


class Shapes(Mapping[str, Shape]):
    """Shapes by name, and the file's metadata."""

    def __init__(self, shapes: Mapping[str, Shape], metadata: Mapping[str, str] | None = None) -> None:
        self._shapes, self.metadata = shapes, metadata or {}

    def __getitem__(self, name: str) -> Shape:
        return self._shapes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def count(self, pattern: str) -> int:
        """How many numbers from 0 upwards stand at the `*` of a name's beginning, as in "blocks.*."."""
        before, _, after = pattern.partition("*")
        number = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
        seen = {int(match[1]) for name in self._shapes if (match := number.match(name))}
        return next(n for n in range(len(seen) + 1) if n not in seen)

    def below(self, prefix: str) -> Shapes:
        """The tensors whose names begin with `prefix`, it cut off."""
        if not prefix:
            return self
        return Shapes({name.removeprefix(prefix): shape for name, shape in self._shapes.items() if name.startswith(prefix)}, self.metadata)

    @property
    def told(self) -> dict[str, Any]:
        """What the metadata say of the diffusion model, as ComfyUI reads it: `config`, `transformer`."""
        try:
            config = json.loads(self.metadata.get("config", "{}"))
        except ValueError:
            return {}
        transformer = config.get("transformer", {}) if isinstance(config, dict) else {}
        return transformer if isinstance(transformer, dict) else {}
