"""Settings of captions: what is done to their text, how often they are dropped, and how they are made."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import field_validator

from .settings import Settings, Text, setting


class CaptionEdit(Settings):
    """What is done to captions, in this order: opening removed, tags shuffled, trigger and template, suffix."""

    prefix: Text = setting("", "Trigger", "Text put before every caption with one space, such as a trigger word or an id token.")
    suffix: Text = setting("", "Suffix", "Text put after every caption with one space, or none if it begins with a punctuation mark.")
    template: Text = setting(
        "", "Template", "Where trigger and caption go, such as '{trigger}, a film of {caption}'. Empty: '{trigger} {caption}'."
    )
    remove_openings: bool = setting(
        False, "Remove openings", "Cuts openings that say nothing of the clip, such as 'The video shows' or 'In this clip, we see'."
    )
    shuffle_tags: bool = setting(False, "Shuffle tags", "Takes captions as tags between commas and puts them in a random order.")
    keep_tags: int = setting(0, "Keep first tags", "Tags at the beginning that stay in their place.", unit="tags", ge=0, le=1000)
    variants: int = setting(
        1, "Variants", "Random orders made of each caption; all are encoded ahead, and one is drawn each time the clip is seen.",
        ge=1, le=64,
    )  # fmt: skip
    uncaptioned: Literal["train", "skip"] = setting(
        "train", "Clips without caption",
        "train: clips without a caption, and without one from their source's setting, are trained with trigger and suffix alone. "
        "skip: they are left out and reported.",
    )  # fmt: skip

    @field_validator("template")
    @classmethod
    def _known_places(cls, template: str) -> str:
        places = re.findall(r"{.*?}|[{}]", template)
        if template and ("{caption}" not in places or set(places) - {"{caption}", "{trigger}"}):
            raise ValueError("a template holds {caption}, may hold {trigger}, and nothing else in braces")
        return template


class CaptionSettings(CaptionEdit):
    """How all captions are used; what a source's own edits make of its captions comes first."""

    dropout: float = setting(
        0.05, "Caption dropout", "Share of examples trained with an empty caption, which keeps guidance working.", ge=0, le=1, step=0.01
    )


class CaptionWriting(Settings):
    """How captions are made for clips and written beside them."""

    instruction: str = setting(
        "Describe this clip in one paragraph of at most 80 words: who or what is seen, what it does and how it moves, the place, the light "
        "and the camera. Write only the description, and do not begin with words such as 'The video shows'.",
        "Instruction", "What the language model is asked to write. That it is shown frames of one clip is said to it before this.",
    )  # fmt: skip
    max_length: int = setting(256, "Longest caption", "Tokens after which the language model is stopped.", unit="tokens", ge=16, le=4096)
    frames: int = setting(8, "Frames shown", "Frames of each clip that the language model sees, evenly spaced.", unit="frames", ge=1, le=64)
    existing: Literal["keep", "overwrite"] = setting(
        "keep", "Existing captions",
        "keep: a caption file that is there is never touched, even an empty one. "
        "overwrite: it is replaced; what it held is kept beside it as .bak.",
    )  # fmt: skip
    seed: int = setting(0, "Seed", "Another one words the captions differently.", ge=0, le=2**53 - 1, advanced=True)
