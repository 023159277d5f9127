"""write_preview: from a job to files that show what its model will be trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .errors import fail
from .events import EventLog, Listener, Silent
from .files import check_can_write, complete_or_absent
from .job import TrainingJob
from .packages import require
from .preview_settings import PreviewSettings

if TYPE_CHECKING:
    from .data.report import DatasetReport
    from .run import Places


def write_preview(
    job: TrainingJob, places: Places, folder: Path, shown: PreviewSettings, listener: Listener | None = None, where: str = "folder"
) -> DatasetReport:
    """Writes dataset.json, dataset.txt and sheet.png, without loading any part of the model; the report.

    Steps per epoch and effective batch are those of the job's schedule, unless it also trains on Parquet files, which are not
    read here. Raises UserError, of the setting `where` if the folder cannot be written, or Interrupted.
    """
    from PIL import Image

    from .data.contact_sheet import contact_sheet
    from .data.preview import preview_dataset
    from .data.sampler import Sampler
    from .models import open_model
    from .source import find_model

    require()
    check_can_write(folder / "dataset.json", where)
    places.check()
    job = job.with_absolute_paths()
    family = open_model(find_model(job.model, places.models, places.downloads))
    found = preview_dataset(
        job.dataset, job.captions, family, places.cache, EventLog(listener or Silent()), shown,
        seed=job.schedule.seed, tiled=job.memory.vae_tiling, may_download=places.downloads is not None,
    )  # fmt: skip
    if found.items and job.dataset.clip_sources == job.dataset.sources:
        found.report.describe(Sampler.scheduled(found, job.schedule))
    try:
        found.report.write(folder)
        with complete_or_absent(folder / "sheet.png") as beside:
            Image.fromarray(contact_sheet(found.clips)).save(beside, format="png")
    except OSError as error:
        raise fail(where, f"'{folder}' cannot be written: {error}.", "Free space, or give another folder.") from None
    return found.report
