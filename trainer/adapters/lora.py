"""A LoRA on the linear layers of a frozen transformer, through PEFT, its weights kept in float32, or in bfloat16 if told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

from .. import draws
from ..errors import fail
from ..packages import without_broken
from .weights import LoraPair, LoraWeights

if TYPE_CHECKING:
    import torch
    from peft import LoraConfig
    from torch import Tensor, nn

    from ..events import EventLog
    from ..job import AdapterSettings
    from ..models.base import FamilySpec

NAME = "default"  # PEFT's name of the adapter
LoraPrecision = Literal["fp32", "bf16"]


class Lora:
    """The LoRA attached to one transformer.

    Each targeted layer computes W·x + (alpha / rank) · B·A·x; B starts at zero, so step 0 changes nothing.
    """

    def __init__(
        self, transformer: nn.Module, config: LoraConfig, seed: int, log: EventLog | None = None, precision: LoraPrecision = "fp32"
    ) -> None:
        import torch
        from peft import inject_adapter_in_model

        from ..memory.frozen import weight_dtype, weights_unread

        with draws.module_randomness(torch.device("cpu"), seed, "adapter"), without_broken() as reasons, weights_unread():
            inject_adapter_in_model(config, transformer, NAME)
        for reason in reasons:
            if log:
                log.notice(reason, "packages")
        self.layers: dict[str, Any] = {name: layer for name, layer in transformer.named_modules() if hasattr(layer, "lora_A")}
        self._dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        for layer in self.layers.values():
            layer.lora_A[NAME].to(self._dtype)
            layer.lora_B[NAME].to(self._dtype)
            # PEFT would copy half-precision inputs to the LoRA's float32; autocast brings the small LoRA to them instead.
            layer.cast_input_dtype_enabled = weight_dtype(layer.get_base_layer()) == torch.float32
        self.strength = 1.0

    @classmethod
    def attach(cls, transformer: nn.Module, spec: FamilySpec, settings: AdapterSettings, seed: int, log: EventLog | None = None) -> Lora:
        """A fresh LoRA on the layers that `settings.targets` names for this family."""
        from peft import LoraConfig

        alpha = cast(int, settings.effective_alpha)  # PEFT takes fractions too, whatever it declares
        targets = spec.adapter_targets[settings.targets]
        config = LoraConfig(r=settings.rank, lora_alpha=alpha, lora_dropout=settings.dropout, target_modules=targets)
        return cls(transformer, config, seed, log, settings.precision)

    @classmethod
    def from_weights(
        cls, transformer: nn.Module, weights: LoraWeights, where: str, dropout: float = 0.0, precision: LoraPrecision = "fp32"
    ) -> Lora:
        """A LoRA on exactly the layers of loaded weights, of their ranks, holding them; raises UserError naming their file `where`."""
        from peft import LoraConfig

        layers = {re.escape(name): pair for name, pair in weights.pairs.items()}
        config = LoraConfig(
            target_modules="|".join(layers), lora_dropout=dropout, rank_pattern={name: pair.rank for name, pair in layers.items()},
            alpha_pattern={name: cast(int, pair.alpha) for name, pair in layers.items()},
        )  # fmt: skip
        lora = cls(transformer, config, seed=0, precision=precision)
        lora.load(weights, where)
        return lora

    def parameters(self) -> list[nn.Parameter]:
        """All trainable parameters, in the order of the model's modules."""
        return [p for layer in self.layers.values() for p in (layer.lora_A[NAME].weight, layer.lora_B[NAME].weight)]

    def up_parameters(self) -> list[nn.Parameter]:
        """Those of them that are the second matrix of a layer, B."""
        return [layer.lora_B[NAME].weight for layer in self.layers.values()]

    def weights(self) -> LoraWeights:
        """The weights as plain float32 CPU tensors by module name."""
        return LoraWeights({
            name: LoraPair(_plain(layer.lora_A[NAME].weight), _plain(layer.lora_B[NAME].weight), float(layer.lora_alpha[NAME]))
            for name, layer in self.layers.items()
        })  # fmt: skip

    def load(self, weights: LoraWeights, where: str) -> None:
        """Takes over loaded weights; raises UserError if layers or shapes differ."""
        import torch

        missing, extra = sorted(self.layers.keys() - weights.pairs.keys()), sorted(weights.pairs.keys() - self.layers.keys())
        if missing or extra:
            found = f"trains other layers: {len(missing)} missing (such as {missing[:1]}), {len(extra)} unexpected (such as {extra[:1]})."
            raise fail(where, found, "Choose the same Layers setting as that LoRA's.")
        with torch.no_grad():
            for name, pair in weights.pairs.items():
                layer = self.layers[name]
                for target, source in ((layer.lora_A[NAME].weight, pair.down), (layer.lora_B[NAME].weight, pair.up)):
                    if target.shape != source.shape:
                        found = f"{name} has shape {tuple(source.shape)}, this model and rank need {tuple(target.shape)}."
                        raise fail(where, found, "Choose a LoRA trained for this model and size.")
                    target.data = source.to(target.device, self._dtype, copy=True)  # an update that was cut short may have left it wider

    def train(self, mode: bool) -> None:
        """Switches the LoRA's dropout on for training, off for sampling."""
        for layer in self.layers.values():
            layer.lora_dropout.train(mode)

    def set_strength(self, strength: float) -> None:
        """Scales the LoRA's effect; 1 is as trained, 0 the base model."""
        self.strength = strength
        for layer in self.layers.values():
            layer.scaling[NAME] = strength * layer.lora_alpha[NAME] / layer.r[NAME]

    @contextmanager
    def at_strength(self, strength: float) -> Iterator[None]:
        """The given strength inside the block, the earlier one after it."""
        before = self.strength
        self.set_strength(strength)
        try:
            yield
        finally:
            self.set_strength(before)


def _plain(parameter: Tensor) -> torch.Tensor:
    import torch

    return parameter.detach().to("cpu", torch.float32, copy=True).contiguous()
