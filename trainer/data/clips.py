"""Planned clips to cached latents: decoded in threads, encoded one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UserError, fail
from ..events import EventLog, Phase
from .cache import CACHE_FORMAT, TensorCache
from .content import Content, changed_model, component_identity, key_of, known_identity
from .decode import DECODER_FORMAT, decode_frames
from .fit import CENTRE, offset
from .likeness import thumbnails
from .pictures import Picture, pixel_digest
from .plan import ClipPlan
from .prefetch import ahead
from .report import ClipReport
from .sources.record import ChangedFile, UnusableClip
from .takes import Take

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..models.base import ModelFamily
    from .encoders import Encoders

VAE_PARTS = ("vae",)  # parts of the model that shape latents
IMAGE_PARTS = ("image_encoder", "image_processor", "feature_extractor")  # those that shape what is seen of pictures
_LOOK = "thumbnails"  # name of the look inside an entry; older entries have none
_FIRST = "first frames"  # name of the hashes of the examples' first frames, where texts see them: [examples, 20] uint8


@dataclass
class Entry:
    """A planned clip on its way into the dataset; `content` is what its file held then, `keys` name the latents of its variants.

    `takes` are those variants, in the order of the keys. `look` are the thumbnails of its first example, once they are known.
    """

    plan: ClipPlan
    report: ClipReport
    content: Content
    keys: tuple[str, ...] = ()
    takes: tuple[Take, ...] = ()
    look: np.ndarray | None = field(default=None, compare=False)


@dataclass
class _Job:
    """A cache entry to make, and the clips that wait for it: copies of a clip share one."""

    key: str
    plan: ClipPlan
    take: Take
    content: Content
    waiting: list[Entry] = field(default_factory=list)

    def windows(self, check: Callable[[], None]) -> Generator[tuple[int, np.ndarray], None, None]:
        """The variant's examples; raises ChangedFile after the last if the clip's file is no longer the one that was planned."""
        with self.content.steady(self.plan.record.path, check):
            yield from examples(self.plan, self.take, check)


class ClipCache:
    """Latents by content: the file's bytes and everything that shaped them."""

    def __init__(self, family: ModelFamily, encoders: Encoders, cache: TensorCache, log: EventLog, threads: int = 0) -> None:
        self._family, self._encoders, self._cache, self._log, self._threads = family, encoders, cache, log, threads
        self._identity = self._identified()

    def _identified(self) -> str:
        """Hash of what the model encodes clips with."""
        return component_identity(self._cache.index, self._family.files.paths(shaping_parts(self._family)), self._log.check)

    def key(self, plan: ClipPlan, take: Take, digest: str) -> str:
        """Name of the cache entry of one variant."""
        return _key(plan, take, digest, self._family, self._identity, self._encoders.tiled)

    def add(self, entries: Sequence[Entry], drop: Callable[[ClipReport, UnusableClip], None]) -> list[Entry]:
        """Encodes those not cached and sets all keys; the VAE is loaded only if there are any.

        `drop` is called once with the report of each clip that turns out unusable, and sets its `skipped`. The clips that
        were not encoded because a file changed since it was planned are returned, to be planned anew.
        """
        jobs: dict[str, _Job] = {}
        for entry in entries:
            made = {self.key(entry.plan, take, entry.content.digest): take for take in reversed(entry.plan.takes)}
            entry.keys = tuple(reversed(made))  # variants whose pixels are the same are one
            entry.takes = tuple(made[key] for key in entry.keys)
            entry.report.variants = len(entry.keys)
            for key, take in made.items():
                if key in jobs or not self._cache.has("clips", key):
                    jobs.setdefault(key, _Job(key, entry.plan, take, entry.content)).waiting.append(entry)
        self._cache.used.save()  # before encoding, which may take hours: pruning may come at any time
        if not jobs:
            return []
        self._log.emit(Phase("prepare", "Encoding clips"))
        changed = dict[int, Entry]()
        try:
            vae = self._encoders.vae()
            if self._identified() != self._identity:
                raise changed_model(self._family.files.name)
            done = self._log.progress(len(jobs), "clips encoded")
            decoded = ahead([job.windows for job in jobs.values()], self._threads, self._log.check)
            with closing(decoded):
                for number, (job, windows) in enumerate(zip(jobs.values(), decoded, strict=True), 1):
                    waiting = [entry for entry in job.waiting if not entry.report.skipped and id(entry) not in changed]
                    try:
                        if waiting:  # none is if another variant of the clip was in vain
                            self._cache.write("clips", job.key, self._encode(vae, windows))
                    except ChangedFile:
                        changed |= {id(entry): entry for entry in waiting}
                    except UnusableClip as error:
                        for entry in waiting:
                            drop(entry.report, error)
                    done(number)
        finally:
            self._encoders.park_vae()
            self._encoders.park_image_encoder()
            self._cache.save()
        return list(changed.values())

    def _encoded(self, vae: nn.Module, frames: Tensor) -> dict[str, Tensor]:
        """An example's latents, and what the model is given of its own first and last frame; frames [F, H, W, 3] uint8."""
        spec = self._family.spec
        encoded = self._family.encode_video(vae, frames)
        if spec.conditions:
            own = {"first_frame": frames[0], "last_frame": frames[-1]}
            seer = self._encoders.image_encoder() if spec.image_encoder else None
            count, height, width, _ = frames.shape
            encoded |= self._family.encode_conditions(vae, seer, {name: own[name] for name in spec.conditions}, (count, height, width))
        return encoded

    def pictures(self, entry: Entry) -> dict[str, list[Picture]]:
        """The first frame of every example, by the key of its variant; nothing for models whose texts see none.

        Raises UserError if an entry was damaged since.
        """
        found = dict[str, list[Picture]]()
        for take in reversed(entry.plan.takes) if self._family.spec.text_sees_image else ():
            key = self.key(entry.plan, take, entry.content.digest)
            digests = [bytes(digest.tolist()).hex() for digest in self._cache.read("clips", key, _FIRST)[""]]
            frames = [partial(first_frame, entry, take, number, self._log.check) for number in range(len(digests))]
            found[key] = [Picture(*picture) for picture in zip(digests, frames, strict=True)]
        return found

    def look(self, entry: Entry) -> np.ndarray | None:
        """The clip's thumbnails, None if its entry holds none; raises UserError if the entry was damaged since."""
        found = self._cache.read("clips", entry.keys[0], _LOOK)
        return found[""].numpy() if found else None

    def _encode(self, vae: nn.Module, windows: Iterator[tuple[int, np.ndarray]]) -> dict[str, Tensor]:
        """The clip's latents, example by example; raises UnusableClip if it cannot be decoded or the VAE gives NaN."""
        import torch

        tensors: dict[str, Tensor] = {}
        firsts: dict[int, Tensor] = {}
        for number, frames in windows:
            self._log.check()
            if number == 0:
                tensors[_LOOK] = torch.from_numpy(thumbnails(frames))
            if self._family.spec.text_sees_image:
                firsts[number] = torch.frombuffer(bytearray(pixel_digest(frames[0])), dtype=torch.uint8)
            with torch.no_grad():
                encoded = self._encoded(vae, torch.from_numpy(frames).to(self._encoders.compute.device))
            for name, tensor in encoded.items():
                if not tensor.isfinite().all():
                    raise UnusableClip(f"its {name} are not finite", "Look at the clip; if it is sound, use another VAE.")
                tensors[window_prefix(number) + name] = tensor.cpu()
        if firsts:
            tensors[_FIRST] = torch.stack([firsts[number] for number in sorted(firsts)])
        return tensors


def shaping_parts(family: ModelFamily) -> tuple[str, ...]:
    """The parts of the model that shape a clip's encoding."""
    return VAE_PARTS + (IMAGE_PARTS if family.spec.image_encoder else ())


def _key(plan: ClipPlan, take: Take, digest: str, family: ModelFamily, encoder: str, tiled: bool) -> str:
    """Name of the cache entry of one variant, which holds all its examples; settings that change no pixel are not in it."""
    spec, more = family.spec, dict[str, object]()
    if tiled:
        more["tiled"] = True
    return key_of(
        content=digest, **pixels_of(plan, take), crop="cover centre", decoder=DECODER_FORMAT, **more,
        family=spec.family, variant=spec.variant, encoder=encoder, dtype=str(family.vae_dtype), format=CACHE_FORMAT,
    )  # fmt: skip


def take_known_looks(entries: Sequence[Entry], family: ModelFamily, cache: TensorCache, tiled: bool, check: Callable[[], None]) -> None:
    """Sets the look of the clips that were encoded before; nothing of the model is read, nor is a file that was not encoded with it."""
    encoder = known_identity(cache.index, family.files.paths(shaping_parts(family)))
    for entry in entries if encoder else ():
        check()
        if entry.look is None:
            key = _key(entry.plan, entry.plan.takes[0], entry.content.digest, family, encoder, tiled)
            with suppress(UserError, KeyError):  # not encoded yet, damaged, or without a look
                entry.look = cache.read("clips", key, _LOOK)[""].numpy()


def pixels_of(plan: ClipPlan, take: Take) -> dict[str, object]:
    """All that shapes a variant's pixels beside the file and the decoder; variants of which it is the same are one."""
    size, shown = plan.example, (plan.probe.height, plan.probe.width)
    made: dict[str, object] = {
        "indices": take.indices, "window": size.frames, "starts": take.starts, "height": size.height, "width": size.width,
    }  # fmt: skip
    cut = offset(shown, size.height, size.width, take.place)
    if cut != offset(shown, size.height, size.width, CENTRE):
        made["cut"] = cut
    if take.order:
        made["order"] = take.order
    return made


def examples(plan: ClipPlan, take: Take, check: Callable[[], None]) -> Generator[tuple[int, np.ndarray], None, None]:
    """A variant's examples as the model sees them, each with its number, in the order of their ends: [F, H, W, 3] uint8.

    No more of the clip is held than one example. Raises UnusableClip if it cannot be decoded.
    """
    size = plan.example
    numbers = {start + size.frames - 1: number for number, start in enumerate(take.starts)}  # by last frame
    wanted = take.indices[: max(numbers) + 1]
    recent: deque[np.ndarray] = deque(maxlen=size.frames)
    for last, frame in enumerate(decode_frames(plan.record.path, plan.probe, wanted, size.height, size.width, check, take.place)):
        recent.append(frame)
        if last in numbers:
            yield numbers[last], np.stack([recent[place] for place in take.order] if take.order else recent)


def first_frame(entry: Entry, take: Take, number: int, check: Callable[[], None]) -> np.ndarray:
    """The first frame of one of a variant's examples as the model sees it, [H, W, 3] uint8; raises UserError if it cannot be decoded."""
    place = take.starts[number] + (take.order[0] if take.order else 0)
    plan, path, size = entry.plan, entry.plan.record.path, entry.plan.example
    try:
        with entry.content.steady(path, check):
            (frame,) = decode_frames(path, plan.probe, take.indices[place : place + 1], size.height, size.width, check, take.place)
            return frame
    except UnusableClip as error:  # it was decoded before
        raise fail(str(path), f"cannot be read any more: {error}.", "Run again.") from error


def window_prefix(window: int) -> str:
    """How the tensors of a window are named inside a clip's entry."""
    return f"{window:05d}."
