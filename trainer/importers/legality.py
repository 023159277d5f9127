"""An imported job holds nothing that training refuses: where settings exclude each other, the way out of the table is taken."""

from __future__ import annotations

from ..combinations import ILLEGAL
from ..errors import UserError
from ..job import TrainingJob
from .result import Report


def make_legal(report: Report) -> None:
    """Changes settings of the job until none exclude each other, and says so of each; a job whose values cannot be is left as it is."""
    for _ in ILLEGAL:  # a way out may lead into another line
        try:
            job = TrainingJob.parse(report.job)
        except UserError:
            return
        line = next((line for line in ILLEGAL if line.excluded(job)), None)
        if line is None:
            return
        setting, value = line.way_out
        report.put(setting, value)
        shown = str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, str) else f"{value:g}"
        report.withdraw(setting, f"{' and '.join(line.settings)} do not go together, as {line.why}: {setting} is {shown} instead")
