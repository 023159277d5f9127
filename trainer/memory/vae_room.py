"""with_vae: the VAE at work in the middle of a run, with as much of the card as was planned or turns out to be needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import UserError, fail, first_line
from .stepping_down import is_shortage
from .vae_memory import can_tile

if TYPE_CHECKING:
    from ..components import Components

T = TypeVar("T")


def with_vae(components: Components, work: Callable[[Any], T], where: str, decodes: bool = True) -> T:
    """What `work` gives of the VAE on the device, which lies on the host afterwards.

    Transformers are on the host meanwhile if `components.decoding` says so, and come back. If memory runs out it is done
    again with less from then on, first with them on the host, then, for work that `decodes`, in tiles; the log says so.
    Raises UserError naming `where` if it still does not fit.
    """
    while True:
        try:
            return _once(components, work, decodes)
        except Exception as error:
            if isinstance(error, UserError) or not is_shortage(error):
                raise
            said = first_line(error)
        # only here do the error and what its frames hold let go of the memory
        components.park_vae()
        decoding = components.decoding.smaller(tiles=decodes and can_tile(components.vae_module()))
        if decoding is None:
            cure = "Set samples.prompts to fewer frames or a smaller size, or close other programs that use the card."
            raise fail(where, f"the VAE's work does not fit into the card's memory ({said}).", cure)
        components.decoding = decoding
        components.log.notice(f"The card's memory ran out while the VAE worked ({said}); from now on with {decoding}.", where)


def _once(components: Components, work: Callable[[Any], T], decodes: bool) -> T:
    decoding = components.decoding
    with components.without_transformers() if decoding.parked else nullcontext():
        vae = components.vae()
        with in_tiles(vae) if decodes and decoding.tiled else nullcontext():
            result = work(vae)
        components.park_vae()
        return result


@contextmanager
def in_tiles(vae: Any) -> Iterator[None]:
    """Inside the block the VAE works in tiles of the frame, afterwards as it did."""
    before = vae.use_tiling
    vae.enable_tiling()
    try:
        yield
    finally:
        if not before:
            vae.disable_tiling()
