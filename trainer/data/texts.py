"""Captions to cached embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import fail
from ..events import EventLog, Phase
from .cache import CACHE_FORMAT, TensorCache
from .clips import IMAGE_PARTS
from .content import changed_model, component_identity, key_of

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.base import ModelFamily
    from .encoders import Encoders
    from .pictures import Picture

TEXT_PARTS = ("text_encoder", "tokenizer")  # parts of the model that shape embeddings


class TextCache:
    """Embeddings by text, and by picture where a text is encoded with one: once for each text encoder and dtype.

    A text without picture is what models whose texts see none know, and the negative prompt of those whose texts do.
    """

    def __init__(self, family: ModelFamily, encoders: Encoders, cache: TensorCache, log: EventLog) -> None:
        self._family, self._encoders, self._cache, self._log = family, encoders, cache, log
        self._shared = {
            "family": family.spec.family, "variant": family.spec.variant, "length": family.spec.text_length,
            "encoder": self._identity(),
            "dtype": str(encoders.compute.dtype), "format": CACHE_FORMAT,
        }  # fmt: skip
        self._ready = set[tuple[str, str]]()

    def _identity(self) -> str:
        parts = TEXT_PARTS + (IMAGE_PARTS if self._family.spec.text_sees_image else ())
        return component_identity(self._cache.index, self._family.files.paths(parts), self._log.check)

    def key(self, text: str, picture: str = "") -> str:
        """Name of the text's cache entry; `picture` is the hash of the picture that it is encoded with."""
        return key_of(text=text, **self._shared, **({"picture": picture} if picture else {}))

    def add(self, texts: Iterable[str | tuple[str, Picture | None]]) -> None:
        """Encodes those not cached, with their pictures; the encoder is loaded, and pictures are read, only if there are any."""
        import torch

        pairs = [(text, None) if isinstance(text, str) else text for text in texts]
        wanted = {(text, picture.digest if picture else ""): picture for text, picture in pairs}
        missing = [name for name in wanted if name not in self._ready and not self._cache.has("texts", self.key(*name))]
        self._ready.update(wanted.keys() - missing)
        self._cache.used.save()  # before the encoder is loaded, as pruning may come at any time
        if not missing:
            return
        self._log.emit(Phase("prepare", "Encoding captions"))
        try:
            encoder = self._encoders.text_encoder()
            if self._identity() != self._shared["encoder"]:
                raise changed_model(self._family.files.name)
            done = self._log.progress(len(missing), "captions encoded")
            seen: tuple[Tensor, ...] = ()
            shown: Picture | None = None
            for number, name in enumerate(missing, 1):
                if shown != (shown := wanted[name]):  # the texts of one picture follow each other
                    seen = (torch.from_numpy(shown.pixels()),) if shown else ()
                with torch.no_grad():
                    tensors = self._family.encode_text(encoder, name[0], *seen)
                self._require_finite(tensors, name[0])
                self._cache.write("texts", self.key(*name), tensors)
                self._ready.add(name)
                done(number)
            if encoder.truncated:
                first = encoder.truncated[0][:80]
                found = f"{len(encoder.truncated)} texts are longer than the model reads: their ends are not used. The first: '{first}…'"
                self._log.notice(found, "captions")
        finally:
            self._encoders.park_text_encoder()
            self._cache.save()

    def read(self, text: str, picture: str = "") -> dict[str, Tensor]:
        """The embeddings of a text that was added, with the picture of a hash; raises KeyError for any other."""
        if (text, picture) not in self._ready:
            raise KeyError(text)
        return self._cache.read("texts", self.key(text, picture))

    def _require_finite(self, tensors: dict[str, Tensor], text: str) -> None:
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            found = f"the text encoder gives values that are not finite in {self._encoders.compute.dtype} for '{text}'."
            raise fail("compute.dtype", found, "Use another precision.")
