"""Captions to cached embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import fail
from ..events import EventLog, Phase
from .cache import CACHE_FORMAT, TensorCache
from .content import changed_model, component_identity, key_of

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.base import ModelFamily
    from .encoders import Encoders

TEXT_PARTS = ("text_encoder", "tokenizer")  # parts of the model that shape embeddings


class TextCache:
    """Embeddings by text; a text is encoded once for each text encoder and dtype."""

    def __init__(self, family: ModelFamily, encoders: Encoders, cache: TensorCache, log: EventLog) -> None:
        self._family, self._encoders, self._cache, self._log = family, encoders, cache, log
        self._shared = {
            "family": family.spec.family, "variant": family.spec.variant, "length": family.spec.text_length,
            "encoder": self._identity(),
            "dtype": str(encoders.compute.dtype), "format": CACHE_FORMAT,
        }  # fmt: skip
        self._ready = set[str]()

    def _identity(self) -> str:
        return component_identity(self._cache.index, self._family.files.paths(TEXT_PARTS), self._log.check)

    def key(self, text: str) -> str:
        """Name of the text's cache entry."""
        return key_of(text=text, **self._shared)

    def add(self, texts: Iterable[str]) -> None:
        """Encodes those not cached; the encoder is loaded only if there are any."""
        import torch

        texts = dict.fromkeys(texts)
        missing = [text for text in texts if text not in self._ready and not self._cache.has("texts", self.key(text))]
        self._ready.update(text for text in texts if text not in missing)
        self._cache.used.save()  # before the encoder is loaded, as pruning may come at any time
        if not missing:
            return
        self._log.emit(Phase("prepare", "Encoding captions"))
        try:
            encoder = self._encoders.text_encoder()
            if self._identity() != self._shared["encoder"]:
                raise changed_model(self._family.files.name)
            done = self._log.progress(len(missing), "captions encoded")
            for number, text in enumerate(missing, 1):
                with torch.no_grad():
                    tensors = self._family.encode_text(encoder, text)
                self._require_finite(tensors, text)
                self._cache.write("texts", self.key(text), tensors)
                self._ready.add(text)
                done(number)
            if encoder.truncated:
                first = encoder.truncated[0][:80]
                found = f"{len(encoder.truncated)} texts are longer than the model reads: their ends are not used. The first: '{first}…'"
                self._log.notice(found, "captions")
        finally:
            self._encoders.park_text_encoder()
            self._cache.save()

    def read(self, text: str) -> dict[str, Tensor]:
        """The embeddings of a text that was added; raises KeyError for any other."""
        if text not in self._ready:
            raise KeyError(text)
        return self._cache.read("texts", self.key(text))

    def _require_finite(self, tensors: dict[str, Tensor], text: str) -> None:
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            found = f"the text encoder gives values that are not finite in {self._encoders.compute.dtype} for '{text}'."
            raise fail("compute.dtype", found, "Use another precision.")
