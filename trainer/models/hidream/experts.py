"""The feed-forwards of several experts, kept on the path that can be differentiated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def make_differentiable(transformer: Any) -> None:
    """Makes a HiDreamImageTransformer2DModel compute the same in training and in evaluation mode, with gradients everywhere.

    Diffusers runs the experts without gradients unless in training mode, in which it lays the output out as patches
    and computes a loss of the routing that it does not use.
    """
    transformer.register_to_config(force_inference_output=True)  # the output is always laid out as latents
    for module in transformer.modules():
        if hasattr(module, "moe_infer"):
            _keep_training(module)


def _keep_training(routed: Any) -> None:
    """Holds the routing layer, not its parts, in training mode."""

    def train(mode: bool = True) -> nn.Module:
        for part in routed.children():
            part.train(mode)
        return routed

    routed.training, routed.train, routed._force_inference_output = True, train, False
    routed.gate.alpha = 0.0
