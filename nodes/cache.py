"""Station 2, Dataset: what training keeps on the disk, and freeing it."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io, ui

from ..trainer.events import EventLog
from ..trainer.packages import require
from ..trainer.prune_settings import PruneSettings
from . import schema
from .host import folders, running
from .host.listener import NodeListener
from .sources import CATEGORY


class PruneCache(io.ComfyNode):
    """Tells what lies in the cache, and removes what was not used for long."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The fields of `PruneSettings`."""
        return io.Schema(
            node_id="VideoTrainerPruneCache",
            display_name="Prune Cache",
            category=CATEGORY,
            description="Tells how much room encoded clips and captions take, and removes those that no dataset used for some time.",
            search_aliases=["clear cache", "delete cache", "free disk space", "latents", "clean up"],
            inputs=schema.inputs(PruneSettings),
            outputs=[io.String.Output("report", "report", tooltip="What lies in the cache, by kind, and what was or can be removed.")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **_: Any) -> Any:
        """Never the same: it looks at the disk, and acts, each time it is queued."""
        return float("nan")

    @classmethod
    def execute(cls, **values: Any) -> io.NodeOutput:
        """Looks, and removes only if told to; raises UserError if everything is to go while something works from the cache."""
        require()
        from ..trainer.data.pruning import prune, survey

        settings, cache, log = schema.build(PruneSettings, values), folders.places().cache, EventLog(NodeListener())
        with running.cancelling():
            found = prune(cache, settings.unused_for, log.check) if settings.remove else survey(cache, settings.unused_for)
        text = "\n".join(found.lines())
        return io.NodeOutput(text, ui=ui.PreviewText(text))
