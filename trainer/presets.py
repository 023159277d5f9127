"""Presets: for a goal, a model and a card, the settings to begin with. They are plain values, shown and open to change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from .data.buckets import Shape, shapes_of_area
from .errors import fail, nearest
from .models.base import FamilySpec, FrameRule, GoalValues

if TYPE_CHECKING:
    from .job import ComputeSettings

Goal = Literal["character", "style", "motion"]
GOALS: tuple[Goal, ...] = get_args(Goal)
WITHOUT_CARD = 24  # GB that are taken for a machine with no card, the commonest of large ones
TEMPORAL_STRIDE = 4  # frames of a latent frame in most of the families
SHAPES = (1.0, 16 / 9, 9 / 16)  # width / height: square as in the table, lying, standing


@dataclass(frozen=True)
class Row:
    """What a card holds: examples of a batch, their frames and the side of their square, px."""

    batch: int
    frames: int
    side: int


# The table of this project's first specification: GB of the card -> what training may take of it.
TABLE = {8: Row(1, 8, 384), 16: Row(2, 16, 512), 24: Row(4, 16, 512), 48: Row(8, 32, 768)}

# Where they come from, as those trainers' own examples have them in 2025 and 2026:
# character: rank 16 of rs-nodes' preset "subject"; 2e-4 of musubi-tuner; 1500 steps of Lightricks' trainer; logit-normal, the middle of the
#   noise, of diffusion-pipe and finetrainers.
# style: rank 32, 1e-4, 2000 steps and all noise levels alike ("linear") of ai-toolkit's example for a model of two experts.
# motion: rank 32, 5e-5, 3000 steps and logit-normal of finetrainers' example of an effect.
# Which of these examples stands for which goal is our judgement, where its author does not say; so is that they are steps of each expert.
GENERAL: dict[Goal, GoalValues] = {
    "character": GoalValues(rank=16, learning_rate=2e-4, steps=1500, timesteps="logit-normal", shift=0.0),
    "style": GoalValues(rank=32, learning_rate=1e-4, steps=2000, timesteps="uniform", shift=0.0),
    "motion": GoalValues(rank=32, learning_rate=5e-5, steps=3000, timesteps="logit-normal", shift=0.0),
}
LONGER = {"motion": 2}  # times the table's frames, for half its batch: our judgement
LARGEST = 2  # times the area of the model's own default, which the table's sizes may have: our judgement; it reaches all releases


@dataclass(frozen=True)
class Preset:
    """The settings that a preset sets; `memory` is the row of the table in GB, sizes are frames, height and width."""

    goal: Goal
    model: str
    memory: int
    rank: int
    learning_rate: float
    steps: int
    batch_size: int
    timesteps: str
    shift: float  # 0 is the model's own
    sizes: tuple[tuple[int, int, int], ...]
    notes: tuple[str, ...] = ()

    @property
    def buckets(self) -> str:
        """The sizes one per line, as Frame Buckets takes them."""
        return "\n".join("x".join(map(str, size)) for size in self.sizes)

    def parts(self) -> dict[str, dict[str, Any]]:
        """The parts of a job that it sets, as a job file has them."""
        return {
            "dataset": {"buckets": self.buckets.split("\n")},
            "adapter": {"rank": self.rank},
            "objective": {"timesteps": self.timesteps, "shift": self.shift},
            "optimizer": {"learning_rate": self.learning_rate},
            "schedule": {"steps": self.steps, "batch_size": self.batch_size},
        }

    def lines(self) -> list[str]:
        """All that it sets, a line each, for people."""
        rows = {
            "rank": self.rank, "learning rate": f"{self.learning_rate:g}", "steps": self.steps, "batch size": self.batch_size,
            "timesteps": self.timesteps, "shift": f"{self.shift:g}" if self.shift else "the model's own",
            "buckets": ", ".join(self.buckets.split()),
        }  # fmt: skip
        table = [f"{name:15} {value}" for name, value in rows.items()]
        return [f"{self.goal} on {self.model}, with a card of {self.memory} GB", *table, *self.notes]


def memory_here(settings: ComputeSettings) -> float:
    """GB of the card that a job with these settings computes on; those of `WITHOUT_CARD` on a CPU. Raises UserError for no device."""
    from .compute import Compute
    from .memory.card import card_memory

    return card_memory(Compute(settings).device) or WITHOUT_CARD


def preset(spec: FamilySpec, goal: Goal, memory: float, experts: int | None = None) -> Preset:
    """The preset of a goal on a card of so many GB; `experts` is how many of the model's are trained, all if it is not said.

    Raises UserError for an unknown goal. A card between two rows of the table gets the lower one, a smaller one the lowest.
    """
    if goal not in GOALS:
        raise fail("goal", f"'{goal}' is unknown.", nearest(goal, GOALS))
    held = max((gb for gb in TABLE if gb <= memory), default=min(TABLE))
    values = GENERAL[goal].changed(spec.goals.get(goal))
    sizes, batch = _sizes(spec, TABLE[held], LONGER.get(goal, 1))
    taught = experts or len(spec.experts)
    return Preset(
        goal, f"{spec.family} {spec.variant}", held, values.rank or 0, values.learning_rate or 0.0, (values.steps or 0) * taught, batch,
        values.timesteps or "", values.shift or 0.0, sizes, tuple(_notes(spec, goal, taught)),
    )  # fmt: skip


def _sizes(spec: FamilySpec, row: Row, longer: int) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """The buckets, longest first, and the batch that holds about what the table's row does.

    Of `longer` frames the batch is smaller, and where it is one already the area. Clips that are too short for them have
    the row's own frames.
    """
    own = spec.default_bucket[0]
    usual = nearest_count(spec.frame_rule, row.frames, own)
    longest = nearest_count(spec.frame_rule, row.frames * longer, own)
    shapes = _shapes(spec, row, usual / longest if row.batch == 1 else 1.0)
    counts = dict.fromkeys((longest, usual))
    height, width = shapes[0]
    example = min(longest, spec.section_frames + spec.frame_rule.offset) if spec.section_frames else longest
    held = row.batch * row.frames * row.side**2 / (example * height * width)
    return tuple((count, *shape) for count in counts for shape in shapes), min(row.batch, max(round(held), 1))


def nearest_count(rule: FrameRule, frames: int, own: int) -> int:
    """The count nearest to `frames` that the model takes, no longer than its own clips; of two as near the lower."""
    below = rule.floor(min(frames, own))
    above = below + rule.multiple
    return above if rule.allows(above) and above <= own and above - frames < frames - below else below


def _shapes(spec: FamilySpec, row: Row, share: float) -> list[Shape]:
    """Heights and widths of that share of the row's area; a model of images has the room that the row's frames take in latents."""
    own, area = spec.default_bucket[1] * spec.default_bucket[2], row.side**2
    area = min(own, area * row.frames // TEMPORAL_STRIDE) if spec.frame_rule.most == 1 else min(own * LARGEST, area)
    side = round(math.sqrt(area * share))
    return shapes_of_area(spec, side, side, SHAPES)


def _notes(spec: FamilySpec, goal: Goal, taught: int) -> list[str]:
    found = []
    if goal == "motion" and spec.frame_rule.most == 1:
        found.append("This model makes images, so that no motion can be taught to it.")
    if taught > 1:
        found.append(f"The steps are for {taught} experts, which take turns.")
    if spec.step_distilled:
        found.append("This model was distilled to few steps, which training wears off: the one that it was made from learns better.")
    return found
