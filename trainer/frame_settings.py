"""Settings of frame sampling: which frames of a clip become training examples, and what is drawn at random of them."""

from __future__ import annotations

from typing import Literal

from .settings import Settings, setting

LONGEST_CLIP = 86400  # s, a day


class FrameSampling(Settings):
    """Which frames of a clip are trained on, in this order: duration, scenes, bucket, strategy, dropout, order."""

    frame_sample_strategy: Literal["head", "chunk", "slide", "uniform", "random", "keyframe"] = setting(
        "head", "Frame sampling",
        "Which frames of a clip its bucket takes. head: the first. chunk: pieces one after the other, each an example of its own. "
        "slide: the same with overlap, a piece every `frame stride` frames. uniform: frames evenly spaced from the first to the last; "
        "this speeds motion up. random: a run that begins at a random frame, drawn once for each variant. keyframe: pieces that begin "
        "at the file's keyframes and do not overlap, each an example of its own.",
    )  # fmt: skip
    frame_stride: int = setting(
        8, "Frame stride", "Frames between the starts of pieces; for slide only.", unit="frames", ge=1, le=2048, advanced=True
    )
    max_frames: int = setting(
        0, "Most frames", "A clip counts as having at most so many frames, at the target rate, when its bucket is chosen; windows lie "
        "within them. 0: no limit.", unit="frames", ge=0, le=100000,
    )  # fmt: skip
    max_duration: float = setting(
        0.0, "Longest duration", "Only so many seconds from a clip's beginning are used; 0: the whole clip.",
        unit="s", ge=0, le=LONGEST_CLIP,
    )  # fmt: skip
    temporal_augmentation: Literal["off", "crop", "reverse", "crop and reverse"] = setting(
        "off", "Temporal augmentation",
        "Drawn once for each variant. crop: frames are taken from a random part of the clip, at least half of it, and at least as long as "
        "its bucket; for head and uniform. reverse: every second variant on average plays backwards, which is wrong for motion that has "
        "a direction.",
    )  # fmt: skip
    variants: int = setting(
        1, "Variants", "Times that a clip's random start, crop, reversal, dropout and order are drawn. Each variant is encoded ahead, and "
        "one of them is drawn each time the clip is seen. Nothing random: one variant.", ge=1, le=64,
    )  # fmt: skip
    scene_cuts: Literal["off", "split"] = setting(
        "off", "Scene cuts",
        "split: clips are searched for cuts, and no example, whole bucket or window, has frames of two scenes. It needs the package "
        "scenedetect and decodes each clip once more, the first time.",
    )  # fmt: skip
    scene_threshold: float = setting(
        27.0, "Scene threshold", "Change between two frames that counts as a cut: mean change of hue, saturation and brightness.",
        ge=1, le=255, step=0.5, advanced=True,
    )  # fmt: skip
    frame_dropout_probability: float = setting(
        0.0, "Frame dropout", "Share of frames that are dropped, drawn for each variant: a dropped frame shows the one before it, "
        "the first frame of a scene is never dropped.", ge=0, le=0.95, step=0.01, advanced=True,
    )  # fmt: skip
    frame_shuffling: bool = setting(
        False, "Shuffle frames", "Puts the frames of each example into a random order, drawn for each variant. It destroys motion.",
        advanced=True,
    )  # fmt: skip
    dataloader_threads: int = setting(
        2, "Decoding threads", "Clips that are decoded ahead of the one that is being encoded; each holds two or three examples in memory. "
        "0 decodes and encodes in turn: best where the VAE runs on the CPU, whose cores threads would take. The result is the same.",
        unit="threads", ge=0, le=64, advanced=True,
    )  # fmt: skip

    @property
    def crops(self) -> bool:
        """Whether a random part of each clip is taken: where all parts are trained on, or the start is random, that adds nothing."""
        return "crop" in self.temporal_augmentation and self.frame_sample_strategy in ("head", "uniform")

    @property
    def reverses(self) -> bool:
        """Whether some variants play backwards."""
        return "reverse" in self.temporal_augmentation

    @property
    def is_random(self) -> bool:
        """Whether variants differ from each other."""
        drawn = self.frame_sample_strategy == "random" or self.crops or self.reverses
        return drawn or self.frame_shuffling or self.frame_dropout_probability > 0

    @property
    def gives_pieces(self) -> bool:
        """Whether a clip gives several examples, each of its own."""
        return self.frame_sample_strategy in ("chunk", "slide", "keyframe")
