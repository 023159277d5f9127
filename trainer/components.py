"""The loaded parts of one model: absent, parked on the host, or resident on the device."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from .errors import UserError, fail
from .job import MemorySettings
from .packages import without_broken

if TYPE_CHECKING:
    from diffusers import ModelMixin
    from torch import nn

    from .compute import Compute
    from .events import EventLog
    from .memory.assembly import Assembly
    from .memory.choices import Choices, Decoding
    from .models.base import Expert, ImageEncoder, ModelFamily, TextEncoder

T = TypeVar("T")


class Components:
    """Loads each part when first asked for, and moves or frees it when told.

    Transformers are held and computed as `choices` say, those of the settings until others are `choose`n. `draws_random`:
    their adapters draw random numbers in training. `scratch` is a folder for weights that neither card nor host can hold.
    """

    def __init__(
        self, family: ModelFamily, compute: Compute, log: EventLog, memory: MemorySettings | None = None, draws_random: bool = False,
        scratch: Path | None = None,
    ) -> None:  # fmt: skip
        from .memory.choices import Decoding, settled

        self.family, self.compute, self.log = family, compute, log
        self._memory, self._draws_random, self._scratch = memory or MemorySettings(), draws_random, scratch
        self.choices = settled(self._memory, compute.settings)
        self.decoding: Decoding = Decoding()  # how the VAE works beside transformers, as planned or as a shortage taught
        family.files.check = log.check  # so that a cancel is heard while a large file is read
        self._transformers: dict[str, ModelMixin] = {}  # by part
        self._assemblies: dict[str, Assembly] = {}  # by part
        self._placed = ""  # the part whose transformer was placed last
        self._image_encoder: ImageEncoder | None = None
        self._vae: nn.Module | None = None
        self._text_encoder: TextEncoder | None = None

    def transformer(self, expert: Expert | None = None) -> ModelMixin:
        """An expert's transformer, put together for computing and placed on the device, the others parked; the first if none is named."""
        from .memory.assembly import Assembly

        part = self._part(expert)
        transformer = self._transformers[part] if part in self._assemblies else self.frozen_transformer(expert)
        for other, assembly in self._assemblies.items():
            if other != part:
                assembly.park()
        if part not in self._assemblies:
            module = cast("nn.Module", transformer)
            self._assemblies[part] = Assembly(module, self.choices, self.compute.device, self.log, self._scratch, self._draws_random)
        self._placed = part
        self._assemblies[part].place()
        return transformer

    @contextmanager
    def without_transformers(self) -> Iterator[None]:
        """All transformers lie on the host inside the block; the one that was on the device comes back, unless memory ran out."""
        from .memory.stepping_down import is_shortage

        self.park_transformers()
        try:
            yield
        except Exception as error:
            if not is_shortage(error):
                self._place_again()
            raise
        self._place_again()

    def _place_again(self) -> None:
        if self._placed in self._assemblies:
            self._assemblies[self._placed].place()

    def frozen_transformer(self, expert: Expert | None = None) -> ModelMixin:
        """An expert's transformer in the run's precision, loaded onto the host if it was not yet: the one to attach an adapter to."""
        part = self._part(expert)
        if part not in self._transformers:
            self._transformers[part] = self._loaded(
                part, lambda: self.family.load_transformer(self.compute.dtype, part, self.choices.weights)
            )
            self.compute.keep_float32(cast("nn.Module", self._transformers[part]))
        if part in self._assemblies:
            self._assemblies[part].placed = False  # what is attached may lie elsewhere
        return self._transformers[part]

    def choose(self, choices: Choices) -> None:
        """Holds and computes transformers otherwise from now on; those that are loaded are taken apart, on the host."""
        self.choices = choices
        for assembly in self._assemblies.values():
            assembly.undo()
        self._assemblies.clear()
        self._release()

    def _part(self, expert: Expert | None) -> str:
        return (expert or self.family.spec.experts[0]).part

    def vae(self) -> nn.Module:
        """The VAE on the device."""
        return self.vae_module().to(self.compute.device)

    def vae_module(self) -> nn.Module:
        """The VAE where it lies, loaded onto the host if it was not yet."""
        if self._vae is None:
            self._vae = self._sparing(self._loaded("vae", self.family.load_vae))
        return self._vae

    @property
    def tiled(self) -> bool:
        """Whether the VAE works in tiles of the frame, which gives other latents."""
        return self._memory.vae_tiling

    def _sparing(self, vae: nn.Module) -> nn.Module:
        """The VAE with its memory savings switched on as the settings say; raises UserError if it has none."""
        from .memory.vae_memory import missing_savings

        if problems := missing_savings(vae, self._memory):
            raise UserError(problems)
        for name, wanted in (("tiling", self._memory.vae_tiling), ("slicing", self._memory.vae_slicing)):
            if wanted:
                getattr(vae, f"enable_{name}")()
        return vae

    def text_encoder(self) -> TextEncoder:
        """Tokenizer and text encoder, on the device if they fit there, if need be while transformers are on the host."""
        if self._text_encoder is None:
            self._text_encoder = self._loaded("text_encoder", lambda: self.family.load_text_encoder(self.compute.dtype))
        if self.decoding.parked:
            self.park_transformers()
        if not self._moved(self._text_encoder.module):
            self.park_transformers()
            if not self._moved(self._text_encoder.module):
                self.log.notice(
                    "The text encoder does not fit into the card's free memory: it computes on the CPU, which is slower.", "memory", "info"
                )
        return self._text_encoder

    def _moved(self, module: nn.Module) -> bool:
        """Moves a module to the device, or tells that it has no room there and leaves it on the host."""
        import torch

        try:
            module.to(self.compute.device)
        except torch.OutOfMemoryError:
            module.to("cpu")
        else:
            return True
        self._release()
        return False

    def image_encoder(self) -> ImageEncoder:
        """Processor and image encoder, on the device."""
        if self._image_encoder is None:
            self._image_encoder = self._loaded("image_encoder", lambda: self.family.load_image_encoder(self.compute.dtype))
        self._image_encoder.module.to(self.compute.device)
        return self._image_encoder

    def _loaded(self, part: str, load: Callable[[], T]) -> T:
        """What `load` gives; broken optional packages stay out of its imports, and its errors name the model's part."""
        self.log.check()
        try:
            with without_broken() as reasons:
                loaded = load()
        except (UserError, MemoryError):
            raise
        except Exception as error:  # whatever the libraries raise on files that do not fit
            found = f"could not be loaded ({type(error).__name__}: {error})."
            cure = "Install what it names." if isinstance(error, ImportError) else "Download this part of the model again."
            raise fail(f"{self.family.files.name}, {part}", found, cure) from error
        for reason in reasons:
            self.log.notice(reason, "packages")
        return loaded

    def park_transformers(self) -> None:
        """Moves all transformers to the host, from where `transformer` brings one back."""
        for assembly in self._assemblies.values():
            assembly.park()
        self._empty_cache()

    def park_vae(self) -> None:
        """Moves the VAE to the host, if it is loaded."""
        if self._vae is not None:
            self._vae.to("cpu")
            self._empty_cache()

    def park_image_encoder(self) -> None:
        """Moves the image encoder to the host, if it is loaded."""
        if self._image_encoder is not None:
            self._image_encoder.module.to("cpu")
            self._empty_cache()

    def park_text_encoder(self) -> None:
        """Moves the text encoder to the host, if it is loaded."""
        if self._text_encoder is not None:
            self._text_encoder.module.to("cpu")
            self._empty_cache()

    def drop_text_encoder(self) -> None:
        """Frees the text encoder; the next use loads it again."""
        self._text_encoder = None
        self._release()

    def drop_all(self) -> None:
        """Frees everything."""
        for assembly in self._assemblies.values():
            assembly.close()
        self._assemblies.clear()
        self._transformers.clear()
        self._vae = self._text_encoder = self._image_encoder = None
        self._release()

    def _release(self) -> None:
        """Gives back what is not used any more: modules hold each other in circles."""
        gc.collect()
        self._empty_cache()

    def _empty_cache(self) -> None:
        if self.compute.device.type == "cuda":
            import torch

            torch.cuda.empty_cache()
