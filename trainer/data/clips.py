"""Planned clips to cached latents, one clip at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..events import EventLog, Phase
from .cache import CACHE_FORMAT, TensorCache
from .content import component_identity, key_of
from .decode import DECODER_FORMAT, decode_frames
from .plan import ClipPlan
from .report import ClipReport
from .sources.record import UnusableClip

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..models.base import ModelFamily
    from .encoders import Encoders

VAE_PARTS = ("vae",)  # subfolders of the model that shape latents


@dataclass
class Entry:
    """A planned clip on its way into the dataset; `digest` is the hash of its file, `key` names its latents."""

    plan: ClipPlan
    report: ClipReport
    digest: str
    key: str = ""


class ClipCache:
    """Latents by content: the file's bytes and everything that shaped them."""

    def __init__(self, family: ModelFamily, encoders: Encoders, cache: TensorCache, log: EventLog) -> None:
        self._family, self._encoders, self._cache, self._log = family, encoders, cache, log
        self._identity = component_identity(cache.index, family.folder, VAE_PARTS, log.check)

    def key(self, entry: Entry) -> str:
        """Name of the clip's cache entry, which holds all its windows."""
        spec, size = self._family.spec, entry.plan.example
        return key_of(
            content=entry.digest, indices=entry.plan.indices, window=size.frames, starts=entry.plan.starts,
            height=size.height, width=size.width, crop="cover centre", decoder=DECODER_FORMAT,
            family=spec.family, variant=spec.variant, encoder=self._identity, dtype=str(self._family.vae_dtype), format=CACHE_FORMAT,
        )  # fmt: skip

    def add(self, entries: Sequence[Entry], skip: Callable[[ClipPlan, str], None]) -> None:
        """Encodes those not cached and sets all keys; the VAE is loaded only if there are any.

        A clip that turns out unusable gets its report's `skipped` set, and `skip` is told.
        """
        for entry in entries:
            entry.key = self.key(entry)
        missing = [entry for entry in entries if not self._cache.has("clips", entry.key)]
        if not missing:
            return
        self._log.emit(Phase("prepare", "Encoding clips"))
        try:
            vae = self._encoders.vae()
            done = self._log.progress(len(missing), "clips encoded")
            for number, entry in enumerate(missing, 1):
                try:
                    if not self._cache.has("clips", entry.key):  # a copy of this clip may have made it
                        self._cache.write("clips", entry.key, self._encode(vae, entry.plan))
                except UnusableClip as error:
                    entry.report.skipped = str(error)
                    skip(entry.plan, str(error))
                done(number)
        finally:
            self._encoders.park_vae()
            self._cache.index.save()

    def _encode(self, vae: nn.Module, plan: ClipPlan) -> dict[str, Tensor]:
        """The clip's latents, window by window; raises UnusableClip if it cannot be decoded or the VAE gives NaN."""
        import torch

        size, compute = plan.example, self._encoders.compute
        frames = decode_frames(plan.record.path, plan.probe, plan.indices, size.height, size.width, self._log.check)
        recent: deque[np.ndarray] = deque(maxlen=size.frames)  # no more of the clip is held than one window
        windows = {start + size.frames - 1: number for number, start in enumerate(plan.starts)}  # by last frame
        tensors = {}
        for place, frame in enumerate(frames):
            recent.append(frame)
            if place not in windows:
                continue
            self._log.check()
            with torch.no_grad():
                encoded = self._family.encode_video(vae, torch.from_numpy(np.stack(recent)).to(compute.device))
            for name, tensor in encoded.items():
                if not tensor.isfinite().all():
                    raise UnusableClip("the VAE gives values that are not finite")
                tensors[window_prefix(windows[place]) + name] = tensor.cpu()
        return tensors


def window_prefix(window: int) -> str:
    """How the tensors of a window are named inside a clip's entry."""
    return f"{window:05d}."
