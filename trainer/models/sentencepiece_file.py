"""SentencePiece models as the `tokenizers` library takes them; transformers itself would need the package protobuf for it.

The layout of the file is that of sentencepiece_model.proto (ModelProto), read by protocol buffers' wire format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PIECES, TRAINER, NORMALIZER = 1, 2, 3  # fields of ModelProto
TEXT, SCORE, KIND = 1, 2, 3  # of a piece
UNKNOWN, BYTE = 2, 6  # kinds of pieces
MODEL_TYPE, UNIGRAM = 3, 1  # of TrainerSpec
CHARSMAP = 2  # of NormalizerSpec
END = "</s>"


def unigram_tokenizer(model: bytes) -> Tokenizer:
    """The tokenizer of a SentencePiece unigram model, which ends each text with `</s>`; raises ValueError for any other bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    pieces: list[tuple[str, float]] = []
    kinds: list[int] = []
    charsmap, model_type = b"", UNIGRAM
    for field, value in _fields(model):
        if field == PIECES:
            piece = dict(_fields(_bytes(value)))
            pieces.append((_bytes(piece[TEXT]).decode(), struct.unpack("<f", _bytes(piece.get(SCORE, bytes(4))))[0]))
            kinds.append(int(piece.get(KIND, 1)))  # type: ignore[arg-type]
        elif field == TRAINER:
            model_type = int(dict(_fields(_bytes(value))).get(MODEL_TYPE, UNIGRAM))  # type: ignore[arg-type]
        elif field == NORMALIZER:
            charsmap = _bytes(dict(_fields(_bytes(value))).get(CHARSMAP, b""))
    if model_type != UNIGRAM or UNKNOWN not in kinds or (END, 0.0) not in pieces:
        raise ValueError("it is not a unigram model that ends its texts")
    made = Tokenizer(models.Unigram(pieces, unk_id=kinds.index(UNKNOWN), byte_fallback=BYTE in kinds))
    if charsmap:
        made.normalizer = normalizers.Precompiled(charsmap)  # type: ignore[assignment]
    split = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    made.pre_tokenizer = pre_tokenizers.Sequence(split)  # type: ignore[assignment]
    made.decoder = decoders.Metaspace(prepend_scheme="always")  # type: ignore[assignment]
    made.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, pieces.index((END, 0.0)))]
    )
    return made


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a message: whole numbers, or bytes; raises ValueError where it is none."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _number(message, place)
            yield field, value
            continue
        length = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            length, place = _number(message, place)
        if length is None or place + length > len(message):
            raise ValueError("it is not a SentencePiece model")
        yield field, message[place : place + length]
        place += length


def _number(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message):
        byte = message[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place
    raise ValueError("it is not a SentencePiece model")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("it is not a SentencePiece model")
    return value
