"""open_dataset: all sources of a dataset to what a run trains on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Problem, UserError
from ..events import EventLog
from ..job import CaptionSettings, DatasetSettings
from ..settings import changed_settings
from ..source_settings import ParquetFolder
from .dataset import TrainingData
from .joined import joined
from .parquet.opening import open_parquet
from .prepare import prepare_dataset

if TYPE_CHECKING:
    from ..models.base import ModelFamily
    from .cache import TensorCache
    from .encoders import Encoders


def open_dataset(
    dataset: DatasetSettings,
    captions: CaptionSettings,
    family: ModelFamily,
    store: TensorCache,
    encoders: Encoders,
    log: EventLog,
    *,
    seed: int = 0,
    may_download: bool = False,
) -> TrainingData:
    """Encodes the clips that are not in `store`, and takes Parquet as it is; clips come first.

    `seed` is that of the captions' variants. Raises UserError if a source cannot be used, Interrupted on cancel.
    """
    parts: list[TrainingData] = []
    problems: list[Problem] = []
    for number, source in enumerate(dataset.sources):
        if isinstance(source, ParquetFolder):
            try:
                parts.append(open_parquet(source, family, store, encoders, log, captions=captions, where=f"dataset.sources.{number}"))
            except UserError as error:
                problems += error.problems
    if problems:
        raise UserError(problems)
    if dataset.clip_sources or not dataset.sources:
        clips = prepare_dataset(dataset, captions, family, store, encoders, log, seed=seed, may_download=may_download)
        parts.insert(0, clips)
    else:
        for name in changed_settings(dataset, but=("sources",)):
            log.notice("is not used: the clips in Parquet files are cut and encoded already.", f"dataset.{name}")
    return joined(parts)
