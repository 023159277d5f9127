"""The columns of FastVideo's Parquet files, as its reader expects them: names, types, order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["t2v", "i2v", "text_only"]

TENSOR_PARTS = (("bytes", "binary"), ("shape", "list<int64>"), ("dtype", "string"))  # a tensor is three columns, <name>_<part>
_ROWS: tuple[tuple[str, str, str], ...] = (
    # name                 type      kinds of file that have it
    ("id",                 "string", "t2v i2v text_only"),
    ("vae_latent",         "tensor", "t2v i2v"),  # [C, T, h, w], not normalised
    ("text_embedding",     "tensor", "t2v i2v text_only"),  # [L, D], not padded
    ("clip_feature",       "tensor", "i2v"),
    ("first_frame_latent", "tensor", "i2v"),
    ("pil_image",          "tensor", "i2v"),
    ("file_name",          "string", "t2v i2v"),
    ("caption",            "string", "t2v i2v text_only"),
    ("media_type",         "string", "t2v i2v"),  # "image" or "video"
    ("width",              "int64",  "t2v i2v"),  # px
    ("height",             "int64",  "t2v i2v"),  # px
    ("num_frames",         "int64",  "t2v i2v"),  # latent frames
    ("duration_sec",       "double", "t2v i2v"),
    ("fps",                "double", "t2v i2v"),
)  # fmt: skip
IMAGE_PARTS = tuple(name for name, _, kinds in _ROWS if kinds == "i2v")  # empty bytes where a model has no use for them


def tensors(kind: Kind) -> tuple[str, ...]:
    """The tensors of a file of this kind, in order."""
    return tuple(name for name, type_name, kinds in _ROWS if type_name == "tensor" and kind in kinds.split())


def columns(kind: Kind) -> tuple[tuple[str, str], ...]:
    """Name and Arrow type of every column of a file of this kind, in order."""
    found: list[tuple[str, str]] = []
    for name, type_name, kinds in _ROWS:
        if kind in kinds.split():
            parts = [(f"{name}_{part}", part_type) for part, part_type in TENSOR_PARTS]
            found += parts if type_name == "tensor" else [(name, type_name)]
    return tuple(found)


def arrow_schema(kind: Kind) -> pa.Schema:
    """The columns as a pyarrow schema."""
    import pyarrow as pa

    types = {"string": pa.string(), "binary": pa.binary(), "int64": pa.int64(), "double": pa.float64(), "list<int64>": pa.list_(pa.int64())}
    return pa.schema([pa.field(name, types[type_name]) for name, type_name in columns(kind)])


def columns_kind(names: Iterable[str]) -> Kind | None:
    """What a file with these columns holds; None if it lacks what training or distilling needs of it."""
    there = set(names)
    if not {"text_embedding_bytes", "text_embedding_shape"} <= there:
        return None
    if not {"vae_latent_bytes", "vae_latent_shape"} <= there:
        return "text_only" if not any(name.startswith(("vae_latent", "trajectory")) for name in there) else None
    return "i2v" if any(f"{part}_bytes" in there for part in IMAGE_PARTS) else "t2v"
