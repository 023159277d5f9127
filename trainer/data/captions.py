"""What text a clip is trained with. Dropout is not here: it is drawn by key at step time.

Each caption is edited in this order: an opening that says nothing is cut, tags are shuffled, trigger and template are
put around it, the suffix after it. A caption that tells what happens when is several texts, each edited by itself. A clip
without captions, and without one from its source's setting, gets trigger and suffix alone, or is left out if the settings
say so. Every text is known, and encoded, before the first step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import draws
from ..caption_settings import CaptionEdit
from .sources.record import ClipRecord
from .timed_captions import Span, is_timed, spans_seen, timed

if TYPE_CHECKING:
    from .plan import ClipPlan
    from .takes import Take

# "The video shows", "In this short clip, we can see", "This is a video of", "A video showing": an optional word of
# _KINDS may stand before one or two _MEDIA, and one of _VERBS or _ABOUT after it.
_KINDS = "short|brief|following|given|provided"
_MEDIA = "video|clip|footage|scene|animation|film|movie|recording|sequence|shot|image|picture|photo|photograph|gif"
_VERBS = (
    "shows|showcases|depicts|features|captures|presents|displays|portrays|illustrates|demonstrates|contains|highlights|"
    "focuses on|opens with|opens on|begins with|starts with|is of|is about"
)
_ABOUT = "of|showing|showcasing|depicting|featuring|capturing|presenting|displaying|portraying|that shows|that depicts|in which|where"
_SEEN = r"(?:(?:we|you|one) (?:can )?(?:see|observe)|there (?:is|are))"
_THING = rf"(?:(?:{_KINDS}) )?(?:{_MEDIA})(?: (?:{_MEDIA}))?"
_OPENING = re.compile(
    rf"(?:(?:in )?(?:the|this) {_THING},? (?:{_VERBS})"
    rf"|(?:in|throughout) (?:the|this) {_THING}(?:,? {_SEEN}|,)"
    rf"|(?:this|here|it) is (?:a|an|the) {_THING} (?:{_ABOUT})"
    rf"|(?:a|an|the|this) (?:{_KINDS} )?(?:video|clip|video clip|footage|animation|recording) (?:{_ABOUT})"
    r"|(?:we|you|one) (?:can )?(?:see|observe))"
    r"(?: that| how)?[,:]? +",
    re.IGNORECASE,
)


UNCAPTIONED = "has no caption, and such clips are to be skipped"  # why a clip is left out


def training_texts(record: ClipRecord, settings: CaptionEdit, seed: int) -> tuple[str, ...]:
    """Every text the clip may be trained with, at least one: its captions and those of their spans in all variants, without doubles.

    What its source does to captions comes first, then `settings`.
    """
    return _all_edited([text for caption in record.captions for text in timed(caption).texts], record, settings, seed)


def whole_texts(record: ClipRecord, settings: CaptionEdit, seed: int) -> tuple[str, ...]:
    """Those that are said of the clip as a whole, at least one."""
    return _all_edited([timed(caption).whole for caption in record.captions], record, settings, seed)


def example_texts(plan: ClipPlan, takes: Sequence[Take], settings: CaptionEdit, seed: int) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """For each variant of a clip, and each of its windows, the texts that this is trained with; nothing if no caption tells times.

    A caption without a word on a window is left to the clip's other captions, if it has others that say something.
    """
    if not is_timed(plan):
        return ()
    wholes, known = [timed(caption).text for caption in plan.record.captions], dict[tuple[str, ...], tuple[str, ...]]()

    def texts(spans: Sequence[Span | None]) -> tuple[str, ...]:
        said = tuple(filter(None, (span.text if span else whole for span, whole in zip(spans, wholes, strict=True))))
        if said not in known:
            known[said] = _all_edited(said, plan.record, settings, seed)
        return known[said]

    return tuple(tuple(map(texts, spans_seen(plan, take))) for take in takes)


def _all_edited(said: Sequence[str], record: ClipRecord, settings: CaptionEdit, seed: int) -> tuple[str, ...]:
    """What edits make of texts, of none what they make of an empty one."""
    texts = said or ("",)
    for edit in (*record.edits, settings):
        texts = list(dict.fromkeys(variant for text in texts for variant in edited(text, edit, seed)))
    return tuple(texts)


def is_left_out(record: ClipRecord, settings: CaptionEdit) -> bool:
    """Whether a clip is not to be trained on because it has no caption."""
    return not record.captions and any(edit.uncaptioned == "skip" for edit in (*record.edits, settings))


def edited(caption: str, edit: CaptionEdit, seed: int) -> list[str]:
    """The variants of a caption: one, or as many orders of its tags as the setting says, drawn by key."""
    body = without_opening(caption) if edit.remove_openings else caption
    if not edit.shuffle_tags:
        return [_framed(body, edit)]
    return [_framed(shuffled(body, edit.keep_tags, seed, variant), edit) for variant in range(edit.variants)]


def without_opening(caption: str) -> str:
    """The caption without an opening such as "The video shows", its first letter as large as before; never empty."""
    opening = _OPENING.match(caption)
    rest = caption[opening.end() :] if opening else ""
    if not rest:
        return caption
    return rest[0].upper() + rest[1:] if caption[0].isupper() else rest


def shuffled(caption: str, keep: int, seed: int, variant: int) -> str:
    """The tags between commas in an order drawn for seed, variant and caption; the first `keep` stay in their place."""
    tags = [tag for part in caption.split(",") if (tag := part.strip())]
    first, rest = tags[:keep], tags[keep:]
    return ", ".join([*first, *(rest[place] for place in draws.permutation(len(rest), seed, "tags", variant, caption))])


def _framed(body: str, edit: CaptionEdit) -> str:
    """Trigger, template and suffix around a caption; the template needs a caption, a trigger it does not place comes first."""
    trigger, text = edit.prefix.strip(), body
    if body and edit.template:
        text = edit.template.replace("{trigger}", trigger).replace("{caption}", body)
        trigger = "" if "{trigger}" in edit.template else trigger
    text = " ".join(f"{trigger} {text}".split())
    suffix = edit.suffix.strip()
    return text + ("" if not text or suffix[:1] in tuple(",.;:!?") else " ") + suffix if suffix else text
