"""The micro-batches that a job's steps are made of: from its settings, or from the prepared clips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .prediction import Micro
from .rehearsal import Shapes

if TYPE_CHECKING:
    from ..data.dataset import Item, TrainingData
    from ..job import TrainingJob
    from ..models.base import ModelFamily

MOST = 6  # sizes that are looked at: the largest, and the commonest of the others


def shapes_at(family: ModelFamily, size: tuple[int, int, int]) -> Shapes:
    """What the family encodes a clip of frames, height and width and a caption to; of models of sections, what one is given."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from .twin import twin_of

    with FakeTensorMode():
        whole = {name: torch.empty(shape) for name, shape in family.clip_shapes(*size).items()}
        encoding = {name: tuple(tensor.shape) for name, tensor in twin_of(family).section(whole, 0).items()}
    return Shapes(encoding, family.text_shapes())


def planned_micros(job: TrainingJob, family: ModelFamily) -> tuple[list[Micro], tuple[int, int, int]]:
    """By the buckets of the settings, else the family's default; all alike often. With the largest size.

    Raises UserError for sizes and windows that a run refuses too.
    """
    from ..data.plan import shaper

    shaped, _ = shaper(job.dataset, family.spec)
    found, windows = shaped.sizes, shaped.windows
    buckets = [bucket.shape for bucket in found.buckets] or [
        (count, *shape)
        for count in found.counts or (family.spec.default_bucket[0],)
        for shape in found.shapes or (family.spec.default_bucket[1:],)
    ]
    if windows:  # which are what a step takes of a clip
        buckets = [(windows.size, height, width) for _, height, width in buckets]
    return _micros(job, dict.fromkeys(buckets, 1), {size: shapes_at(family, size) for size in _kept(Counter(buckets))})


def prepared_micros(job: TrainingJob, dataset: TrainingData) -> tuple[list[Micro], tuple[int, int, int]]:
    """By the clips that are trained on, with the shapes that they are encoded to, and their longest caption's. With the largest size."""
    visits: Counter[tuple[int, int, int]] = Counter()
    examples: Counter[tuple[int, int, int]] = Counter()
    example: dict[tuple[int, int, int], Item] = {}
    for item in dataset.items:
        visits[item.size.shape] += item.repeats
        examples[item.size.shape] += item.repeats * item.windows
        example.setdefault(item.size.shape, item)
    shapes = {size: _shapes(dataset, example[size]) for size in _kept(visits)}
    return _micros(job, visits, shapes, examples)


def _shapes(dataset: TrainingData, item: Item) -> Shapes:
    encoding = {name: tuple(tensor.shape) for name, tensor in dataset.latents(item).items()}
    text = dataset.text(max(item.texts, key=len), dataset.picture(item))
    return Shapes(encoding, {name: tuple(tensor.shape) for name, tensor in text.items()})


def _kept(visits: Counter[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    largest = max(visits, key=_volume)
    return [largest, *(size for size, _ in visits.most_common() if size != largest)][:MOST]


def _micros(
    job: TrainingJob,
    visits: Mapping[tuple[int, int, int], int],
    shapes: Mapping[tuple[int, int, int], Shapes],
    examples: Mapping[tuple[int, int, int], int] | None = None,
) -> tuple[list[Micro], tuple[int, int, int]]:
    schedule, total = job.schedule, sum(visits[size] for size in shapes)
    micros = []
    for size, found in shapes.items():
        batch = schedule.batch_size if size[0] == 1 else schedule.video_batch_size
        batch = min(batch, examples[size]) if examples else batch  # of few clips
        # A step averages over batch size × accumulation examples, in as many micro-batches as that takes.
        count = schedule.batch_size / batch * visits[size] / total
        micros.append(Micro(found, batch, count, "x".join(map(str, size))))
    return micros, max(shapes, key=_volume)


def _volume(size: tuple[int, int, int]) -> int:
    frames, height, width = size
    return frames * height * width
