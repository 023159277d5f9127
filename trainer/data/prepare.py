"""prepare_dataset: from folders and settings to a dataset whose encodings are all cached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Problem, UserError, fail
from ..events import EventLog, Phase
from ..job import CaptionSettings, DatasetSettings
from ..models.base import ModelFamily, TextEncoder
from .cache import CACHE_FORMAT, TensorCache
from .captions import with_prefix
from .content import ContentIndex, component_identity, key_of
from .dataset import Dataset, Item, window_prefix
from .decode import DECODER_FORMAT, decode_frames
from .plan import ClipPlan, shaper
from .probe import probe
from .report import ClipReport, DatasetReport
from .sources.folder import CLIP_EXTENSIONS, scan_folders
from .sources.record import Scan, UnusableClip

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_NOTICES = 20  # clips named one by one in notices; the report names all


@dataclass(frozen=True)
class Encoders:
    """How to get the encoders, called at most once each and only if something is not cached."""

    vae: Callable[[], nn.Module]
    text_encoder: Callable[[], TextEncoder]
    device: torch.device
    vae_dtype: torch.dtype
    text_dtype: torch.dtype


@dataclass
class _Entry:
    """A planned clip on its way into the dataset."""

    plan: ClipPlan
    report: ClipReport
    digest: str
    key: str = ""


@dataclass
class _Preparation:
    """What the stages of preparing share."""

    family: ModelFamily
    encoders: Encoders
    log: EventLog
    index: ContentIndex
    cache: TensorCache
    report: DatasetReport
    skips: int = 0

    def notice(self, text: str, where: str = "") -> None:
        """Tells the user and keeps it in the report."""
        self.report.notices.append(f"{where}: {text}" if where else text)
        self.log.notice(text, where)

    def skip(self, path: Path, reason: str) -> None:
        """Tells the user that a clip is left out; after many, only the report does."""
        self.skips += 1
        if self.skips <= _NOTICES:
            self.log.notice(f"skipped: {reason}", str(path))


def prepare_dataset(
    dataset: DatasetSettings,
    captions: CaptionSettings,
    family: ModelFamily,
    cache: Path,
    encoders: Encoders,
    log: EventLog,
    texts: Sequence[str] = (),
) -> Dataset:
    """Scans, plans and encodes what is missing; `texts` are cached besides the captions and the empty one, as they are.

    Clips that cannot be used are skipped and reported. Raises UserError if none is left, Interrupted on cancel.
    """
    index = ContentIndex(cache / "index.json")
    shape, roundings = shaper(dataset, family.spec)
    work = _Preparation(family, encoders, log, index, TensorCache(cache, index), DatasetReport(shape.fps))
    for text in roundings:
        work.notice(text)
    log.emit(Phase("prepare", "Reading clips"))
    scan = scan_folders(dataset.folders)
    work.report.seen = dict(scan.seen)
    for problem in scan.notices:
        work.notice(f"{problem.found} {problem.cure}".strip(), problem.where)
    try:
        entries = _planned(work, scan, shape.plan)
        entries = _encoded_clips(work, entries)
        _require_some(work, dataset, scan)
        items = [_item(entry, with_prefix(captions.prefix, entry.plan.record.caption)) for entry in entries]
        text_keys = _encoded_texts(work, ["", *(item.caption for item in items), *texts])
    finally:
        index.save()
    _tell(work)
    return Dataset(items, text_keys, work.cache, work.report)


def _planned(work: _Preparation, scan: Scan, plan: Callable[..., ClipPlan]) -> list[_Entry]:
    """Every usable clip's plan and content hash."""
    entries = []
    done = work.log.progress(len(scan.clips), "clips read")
    for number, record in enumerate(scan.clips, 1):
        try:
            clip = plan(record, probe(record.path))
            digest = work.index.digest(record.path, work.log.check)
        except (UnusableClip, OSError) as error:
            work.report.skip(record, str(error))
            work.skip(record.path, str(error))
        else:
            entries.append(_Entry(clip, work.report.keep(clip), digest))
        done(number)
    return entries


def _encoded_clips(work: _Preparation, entries: list[_Entry]) -> list[_Entry]:
    """The entries whose latents are cached, missing ones encoded one clip at a time."""
    identity = component_identity(work.index, work.family.folder, ["vae"], work.log.check)
    for entry in entries:
        entry.key = _clip_key(work, entry, identity)
    missing = [entry for entry in entries if not work.cache.has("clips", entry.key)]
    if not missing:
        return entries
    work.log.emit(Phase("prepare", "Encoding clips"))
    vae = work.encoders.vae()
    done = work.log.progress(len(missing), "clips encoded")
    with _on_device(vae, work.encoders.device):
        for number, entry in enumerate(missing, 1):
            try:
                if not work.cache.has("clips", entry.key):  # a copy of this clip may have made it
                    work.cache.write("clips", entry.key, _encode_clip(work, vae, entry.plan))
            except UnusableClip as error:
                entry.report.skipped = str(error)
                work.skip(entry.plan.record.path, str(error))
            done(number)
    return [entry for entry in entries if not entry.report.skipped]


def _clip_key(work: _Preparation, entry: _Entry, identity: str) -> str:
    """The cache key: the file's bytes and everything that shapes its latents."""
    spec, size, plan = work.family.spec, entry.plan.example, entry.plan
    return key_of(
        content=entry.digest, fps=work.report.target_fps, frames=len(plan.indices), window=size.frames, starts=plan.starts,
        height=size.height, width=size.width, crop="cover centre", decoder=DECODER_FORMAT, format=CACHE_FORMAT,
        family=spec.family, variant=spec.variant, encoder=identity, dtype=str(work.encoders.vae_dtype),
    )  # fmt: skip


def _encode_clip(work: _Preparation, vae: nn.Module, plan: ClipPlan) -> dict[str, Tensor]:
    """The clip's latents, window by window; raises UnusableClip if it cannot be decoded or the encoder gives NaN."""
    size = plan.example
    frames = decode_frames(plan.record.path, plan.probe, plan.indices, size.height, size.width, work.log.check)
    tensors = {}
    for number, start in enumerate(plan.starts):
        work.log.check()
        window = frames[start : start + size.frames].to(work.encoders.device)
        for name, tensor in work.family.encode_video(vae, window).items():
            if not tensor.isfinite().all():
                raise UnusableClip(f"the VAE gives values that are not finite in {work.encoders.vae_dtype}; use another precision")
            tensors[window_prefix(number) + name] = tensor.cpu()
    return tensors


def _encoded_texts(work: _Preparation, texts: Sequence[str]) -> dict[str, str]:
    """The cache key of every text, missing ones encoded."""
    identity = component_identity(work.index, work.family.folder, ["text_encoder", "tokenizer"], work.log.check)
    spec, dtype = work.family.spec, str(work.encoders.text_dtype)
    shared = {"family": spec.family, "variant": spec.variant, "encoder": identity, "dtype": dtype, "format": CACHE_FORMAT}
    keys = {text: key_of(text=text, **shared) for text in texts}
    missing = [text for text, key in keys.items() if not work.cache.has("texts", key)]
    if not missing:
        return keys
    work.log.emit(Phase("prepare", "Encoding captions"))
    encoder = work.encoders.text_encoder()
    done = work.log.progress(len(missing), "captions encoded")
    with _on_device(encoder.module, work.encoders.device):
        for number, text in enumerate(missing, 1):
            tensors = work.family.encode_text(encoder, text)
            _require_finite(tensors, text, dtype)
            work.cache.write("texts", keys[text], tensors)
            done(number)
    return keys


def _require_finite(tensors: dict[str, Tensor], text: str, dtype: str) -> None:
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise fail("compute.dtype", f"the text encoder gives values that are not finite in {dtype} for '{text}'.", "Use another precision.")


@contextmanager
def _on_device(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Holds an encoder on the device without gradients, and takes it off whatever happens."""
    import torch

    module.to(device)
    try:
        with torch.no_grad():
            yield
    finally:
        module.to("cpu")
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _require_some(work: _Preparation, dataset: DatasetSettings, scan: Scan) -> None:
    """Raises UserError with every clip's reason if nothing can be trained on."""
    if work.report.kept:
        return
    where = ", ".join(folder.folder for folder in dataset.folders) or "dataset.folders"
    if not dataset.folders:
        raise fail(where, "no folder of clips is given.", "Add a folder that holds clips.")
    if not scan.clips:
        seen = ", ".join(f"{count} {extension}" for extension, count in sorted(scan.seen.items())) or "nothing"
        raise fail(where, f"no clip was found; the folder holds {seen}.", f"Clips end in {', '.join(CLIP_EXTENSIONS)}.")
    problems = [Problem(clip.path, f"{clip.skipped}.") for clip in work.report.skipped]
    raise UserError([Problem(where, "none of the clips can be used:"), *problems])


def _item(entry: _Entry, caption: str) -> Item:
    plan = entry.plan
    return Item(plan.record.name, plan.record.path, caption, plan.example, len(plan.starts), plan.record.repeats, entry.key)


def _tell(work: _Preparation) -> None:
    """Notices about the dataset as a whole."""
    kept = work.report.kept
    if work.skips > _NOTICES:
        work.log.notice(f"{work.skips - _NOTICES} more clips are skipped; the dataset report says why.")
    if uncaptioned := sum(clip.caption == "none" for clip in kept):
        work.notice(f"{uncaptioned} of {len(kept)} clips have no caption and are trained with the trigger alone or none.")
    if hdr := sum(bool(clip.hdr) for clip in kept):
        work.notice(f"{hdr} of {len(kept)} clips are HDR and are used without tone mapping; their colours will look flat.")
    if enlarged := sum(clip.enlarged for clip in kept):
        work.notice(f"{enlarged} of {len(kept)} clips are smaller than their bucket and are enlarged.")
