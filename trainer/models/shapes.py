"""The shapes of a file's tensors by name, from which its kind is told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .tensor_file import json_object

Shape = tuple[int, ...]
OWN_CONFIG = "video_trainer.config"


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
    def config(self) -> dict[str, Any]:
        """What the metadata say of the model's configuration, as ComfyUI reads them: parts of "transformer", "vae", …"""
        return _object(self.metadata.get("config", ""))

    def own(self, part: str) -> dict[str, Any]:
        """The configuration that `with_config` put into the metadata."""
        config = _object(self.metadata.get(OWN_CONFIG, "")).get(part, {})
        return config if isinstance(config, dict) else {}


def with_config(part: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Metadata of a single file that we write: the part's configuration in diffusers, for sizes that no release has."""
    return {OWN_CONFIG: json.dumps({part: dict(config)})}


def _object(text: str) -> dict[str, Any]:
    """A JSON object, empty if the text is none."""
    try:
        return json_object(text)
    except ValueError:
        return {}
