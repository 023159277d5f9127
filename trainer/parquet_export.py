"""save_parquet: from a model and a dataset to FastVideo's Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .events import EventLog, Listener, Phase, Silent
from .job import CaptionSettings, ComputeSettings, DatasetSettings, ModelSettings
from .packages import require

if TYPE_CHECKING:
    from .data.parquet.export import ExportKind
    from .run import Places


def save_parquet(
    model: ModelSettings, dataset: DatasetSettings, out: Path, places: Places, compute: ComputeSettings, kind: ExportKind = "t2v",
    listener: Listener | None = None,
) -> list[Path]:  # fmt: skip
    """Encodes the dataset with the model's own encoders, as a run does, and writes it into a folder of its own; the files.

    Raises UserError, first of all if the folder holds anything else, or Interrupted; running again goes on from there.
    """
    from .components import Components
    from .compute import Compute
    from .data.cache import TensorCache
    from .data.cache_use import working_from
    from .data.opening import open_dataset
    from .data.parquet.export import export_dataset
    from .data.parquet.write import require_own
    from .models import open_model
    from .source import find_model

    require()
    require("pyarrow")
    places.check()
    require_own(out)
    log = EventLog(listener or Silent())
    log.emit(Phase("prepare", "Opening the model"))
    family = open_model(find_model(model, places.models, places.downloads, log))
    components = Components(family, Compute(compute), log)
    try:
        with working_from(places.cache):
            allowed = places.downloads is not None
            data = open_dataset(dataset, CaptionSettings(), family, TensorCache(places.cache), components, log, may_download=allowed)
            return export_dataset(data, out, log, kind)
    finally:
        components.drop_all()
