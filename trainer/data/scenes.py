"""Scene cuts, found by PySceneDetect on our own decoded frames and remembered in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..packages import require
from .cache import TensorCache
from .content import Content, key_of
from .decode import DECODER_FORMAT, decode_frames
from .kept import keep, kept
from .probe import Probe
from .sources.record import UnusableClip

_AREA = 128 * 72  # px that frames are looked at in


class SceneCuts:
    """Finds cuts by the change of hue, saturation and brightness from frame to frame."""

    def __init__(self, cache: TensorCache, threshold: float) -> None:
        require("scenedetect")
        self._cache, self._threshold = cache, threshold

    def __call__(self, path: Path, probe: Probe, content: Content, check: Callable[[], None]) -> tuple[int, ...]:
        """The file's frames that begin a new scene, ascending, up to where decoding breaks off, if it does.

        Raises ChangedFile if the file no longer has this content.
        """
        key = key_of(content=content.digest, threshold=self._threshold, decoder=DECODER_FORMAT, detector="content", area=_AREA)
        known = self._cache.folder / "scenes" / f"{key}.json"
        self._cache.used.mark(known)
        cuts = kept(known)
        if cuts is None:
            with content.steady(path, check):
                cuts = self._found(path, probe, check)
            keep(known, cuts)
        return tuple(cuts)

    def _found(self, path: Path, probe: Probe, check: Callable[[], None]) -> list[int]:
        from scenedetect import ContentDetector, FrameTimecode

        detector = ContentDetector(threshold=self._threshold, min_scene_len=0)
        scale = min(1.0, math.sqrt(_AREA / (probe.height * probe.width)))
        height, width = (max(1, round(side * scale)) for side in (probe.height, probe.width))
        cuts = []
        with suppress(UnusableClip):  # whether what is left of the clip can be used shows when it is encoded
            for index, frame in enumerate(decode_frames(path, probe, range(len(probe.times)), height, width, check)):
                if detector.process_frame(FrameTimecode(index, 25.0), frame[..., ::-1].copy()):  # it takes BGR
                    cuts.append(index)
        return cuts
