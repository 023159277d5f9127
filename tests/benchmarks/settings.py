"""Choices of how a transformer is held and computed, in words such as "fp8 products compiled selective swap 0.75"."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

if TYPE_CHECKING:
    from trainer.memory.choices import Choices

WEIGHTS = {"bf16": "unquantized", "fp8": "fp8", "int8": "int8", "nf4": "nf4"}
PLAIN = "plain"  # diffusers, peft and gradient checkpointing, which is none of ours
AUTO = "auto"  # what the planner chooses; before words for weights it chooses the rest
EAGER, BF16, FP8 = "bf16 eager full", "bf16 compiled selective", "fp8 products compiled selective"
USUAL = (PLAIN, EAGER, BF16, "fp8 compiled selective", FP8)


def choices_of(words: str) -> Choices:
    """What the words say: weights, products, eager or compiled, checkpointing, shares of the blocks after lighter and swap, and after
    `by` how many examples are computed together.

    Unsaid: bf16 eager full.
    """
    from trainer.memory.choices import Checkpointing, Choices

    weights, checkpointing, lighter, offload, compiled, products, at_once = "unquantized", "full", 0.0, 0.0, False, False, 0
    rest = iter(words.split())
    for word in rest:
        if word in WEIGHTS:
            weights = WEIGHTS[word]
        elif word in get_args(Checkpointing):
            checkpointing = word
        elif word in ("eager", "compiled"):
            compiled = word == "compiled"
        elif word == "products":
            products = True
        elif word == "lighter":
            lighter = float(next(rest))
        elif word == "swap":
            offload = float(next(rest))
        elif word == "by":
            at_once = int(next(rest))
        else:
            known = [*WEIGHTS, *get_args(Checkpointing), "eager", "compiled", "products", "lighter", "swap", "by"]
            raise ValueError(f"'{word}' of '{words}' is none of {known}")
    return Choices(weights, offload, checkpointing, lighter, compiled, products, at_once=at_once)  # type: ignore[arg-type]


def words_of(choices: Choices) -> str:
    """Choices in words."""
    held = next((word for word, weights in WEIGHTS.items() if weights == choices.weights), choices.weights)
    words = [held, "products" * choices.fp8_products, "compiled" if choices.compile else "eager", choices.checkpointing]
    shares = {"lighter": choices.lighter, "swap": choices.offload, "by": choices.at_once}
    return " ".join(filter(None, [*words, *(f"{word} {share:g}" for word, share in shares.items() if share)]))
