"""Station 5, Use: sample videos with and without the trained LoRA, and text conditioning for core's samplers."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from comfy_api.latest import InputImpl, Types, io

from ..trainer.packages import require
from .host import folders, running
from .host.listener import NodeListener
from .sockets import LoRASocket, ModelReference, ModelSocket, TrainedLoRA

if TYPE_CHECKING:
    from torch import Tensor

CATEGORY = "Video Trainer/5 Use"
LARGEST_SEED = 2**53 - 1


def _size(id: str, label: str, text: str, largest: int) -> io.Input:
    return io.Int.Input(id, display_name=label, optional=True, default=0, min=0, max=largest, tooltip=f"{text} 0 uses the model's own.")


class SampleVideo(io.ComfyNode):
    """Draws one video the way training draws its samples."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """What to show, how large, how carefully, and with which LoRA."""
        return io.Schema(
            node_id="VideoTrainerSampleVideo",
            display_name="Sample Video",
            category=CATEGORY,
            description="Draws a video with a model and, if linked, the LoRA trained on it: the quickest look at what was learned.",
            search_aliases=["test lora", "generate video", "text to video"],
            inputs=[
                ModelSocket.Input("model", "video model", tooltip="The model to draw with."),
                LoRASocket.Input("lora", "trained LoRA", optional=True, tooltip="A trained LoRA; unlinked draws with the plain model."),
                io.String.Input("prompt", display_name="Prompt", multiline=True, default="", tooltip="What to show."),
                io.String.Input("negative", display_name="Negative", optional=True, default="", tooltip="What to avoid.", advanced=True),
                _size("frames", "Frames", "Length of the video in frames.", 2048),
                _size("height", "Height", "Height of the video in px.", 8192),
                _size("width", "Width", "Width of the video in px.", 8192),
                io.Int.Input("steps", display_name="Steps", optional=True, default=20, min=1, max=1000, tooltip="Denoising steps."),
                io.Float.Input(
                    "guidance", display_name="Guidance", optional=True, default=0.0, min=0.0, max=30.0, step=0.1,
                    tooltip="Strength of classifier-free guidance. 0 uses the model's own.",
                ),
                io.Float.Input(
                    "shift", display_name="Shift", optional=True, default=0.0, min=0.0, max=100.0, step=0.1, advanced=True,
                    tooltip="Shift of the sampling noise levels. 0 uses the model's own.",
                ),
                io.Int.Input(
                    "seed", display_name="Seed", optional=True, default=0, min=0, max=LARGEST_SEED, control_after_generate=False,
                    tooltip="Seed of the starting noise: the same seed gives the same video.",
                ),
                io.Float.Input(
                    "strength", display_name="LoRA strength", optional=True, default=1.0, min=-10.0, max=10.0, step=0.05,
                    tooltip="How much of the LoRA is applied; 0 is the plain model.",
                ),
                io.Image.Input("first_frame", "first frame", optional=True, tooltip="Picture to start from, for models that take one."),
                io.Image.Input("last_frame", "last frame", optional=True, tooltip="Picture to end at, for models that take one."),
            ],
            outputs=[io.Video.Output("video", "VIDEO", tooltip="The video, at the model's frame rate.")],
        )  # fmt: skip

    @classmethod
    def execute(
        cls,
        model: ModelReference,
        lora: TrainedLoRA | None = None,
        strength: float = 1.0,
        first_frame: Tensor | None = None,
        last_frame: Tensor | None = None,
        **values: Any,
    ) -> io.NodeOutput:
        """Draws the video; pictures are kept as files in the temp folder."""
        require()
        from ..trainer.models import open_model
        from ..trainer.sampling import SampleRequest, VideoSampler

        spec = open_model(model.settings).spec
        own = dict(zip(("frames", "height", "width"), spec.default_bucket, strict=True))
        given = {"first_frame": first_frame, "last_frame": last_frame}
        pictures = {name: str(folders.save_temp_image(image)) for name, image in given.items() if image is not None}
        request = SampleRequest(**{**values, **pictures, **{name: values.get(name) or size for name, size in own.items()}})
        listener = NodeListener()
        with running.computing(listener):
            loras = lora.files if lora else None
            frames = VideoSampler(model.settings, running.compute_settings(), loras, strength, listener)(request)
        components = Types.VideoComponents(images=frames.float() / 255, frame_rate=Fraction(spec.fps).limit_denominator(1001))
        return io.NodeOutput(InputImpl.VideoFromComponents(components))


class EncodePrompt(io.ComfyNode):
    """Text conditioning from the model's own text encoder."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """A model and a text."""
        return io.Schema(
            node_id="VideoTrainerEncodePrompt",
            display_name="Encode Prompt",
            category=CATEGORY,
            description="Text conditioning for KSampler from the model's own text encoder, where ComfyUI does not load that encoder.",
            search_aliases=["clip text encode", "conditioning"],
            inputs=[
                ModelSocket.Input("model", "video model", tooltip="The model whose text encoder is used."),
                io.String.Input("text", display_name="Text", multiline=True, default="", tooltip="The prompt to encode."),
            ],
            outputs=[io.Conditioning.Output("conditioning", "CONDITIONING", tooltip="For KSampler's positive or negative input.")],
        )

    @classmethod
    def execute(cls, model: ModelReference, text: str) -> io.NodeOutput:
        """Encodes the text."""
        require()
        from ..trainer.sampling import encode_prompt

        with running.computing(NodeListener()):
            embedding = encode_prompt(model.settings, text, running.compute_settings())
        return io.NodeOutput([[embedding, {}]])
