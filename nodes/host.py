"""The only file that touches ComfyUI services: folders, memory, interrupt, events, routes."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import comfy.model_management
import comfy.utils
import folder_paths
from aiohttp import web
from comfy_execution.utils import get_executing_context
from server import PromptServer

from ..trainer.errors import Interrupted, fail
from ..trainer.events import Event, Notice, Phase, Progress, Request, Step, Stopped
from ..trainer.files import lies_in
from ..trainer.job import ComputeSettings

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from ..trainer.run import Places

T = TypeVar("T")
EVENT = "video_trainer.event"
TEXT_INTERVAL = 0.25  # seconds between lines of text on a node

# folders -------------------------------------------------------------------------------------------------------------


def places() -> Places:
    """Where runs may write and models lie: ComfyUI's output folder and models/diffusers; hub downloads only if allowed."""
    from ..trainer.run import Places

    models = tuple(map(Path, folder_paths.get_folder_paths("diffusers")))
    downloads = models[0] if models and downloads_allowed() else None
    return Places.under(Path(folder_paths.get_output_directory()), models, downloads)


def downloads_allowed() -> bool:
    """Whether whoever started ComfyUI allows hub downloads; a workflow cannot."""
    return os.environ.get("VIDEO_TRAINER_ALLOW_DOWNLOADS", "") not in ("", "0")


def compute(settings: ComputeSettings | None = None) -> ComputeSettings:
    """The settings with device "auto" replaced by the device that ComfyUI was started for."""
    settings = settings or ComputeSettings()
    device = comfy.model_management.get_torch_device()
    ours = settings.device == "auto" and device.type in ("cpu", "cuda")
    return settings.model_copy(update={"device": str(device)}) if ours else settings


def input_path(text: str) -> Path:
    """A file or folder as the user wrote it: absolute, or relative to ComfyUI's input folder."""
    from ..trainer.data.sources.paths import folder_path

    return Path(folder_paths.get_input_directory()) / folder_path(text)


def output_folder(text: str) -> Path:
    """A folder below ComfyUI's output folder; raises UserError for any other, wherever links lead."""
    from ..trainer.data.sources.paths import folder_path

    root = Path(folder_paths.get_output_directory()).resolve()
    try:
        folder = (root / folder_path(text)).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # no name that a folder could have, or a link to itself
        raise fail("folder", f"'{text}' cannot be a folder: {error}.", "Give a name such as parquet/my_clips.") from None
    if root not in folder.parents:
        raise fail("folder", f"'{text}' does not lie inside ComfyUI's output folder.", "Give a name such as parquet/my_clips.")
    return folder


def own_folders() -> tuple[Path, Path]:
    """ComfyUI's input and output folders, the only ones that a workflow may write into."""
    return Path(folder_paths.get_input_directory()), Path(folder_paths.get_output_directory())


def is_ours(path: Path) -> bool:
    """Whether a path lies inside ComfyUI's input or output folder, wherever links lead."""
    return lies_in(path, own_folders())


def output_file(kind: str, name: str) -> Path:
    """output/<kind>/<name>, a folder that ComfyUI's own loaders list for `kind`."""
    return Path(folder_paths.get_output_directory()) / kind / name


def model_names() -> list[str]:
    """Diffusers folders in models/diffusers, by name or owner/name."""
    roots = [Path(root) for root in folder_paths.get_folder_paths("diffusers")]
    found = ((root, index) for root in roots for depth in ("*", "*/*") for index in root.glob(f"{depth}/model_index.json"))
    return sorted({index.parent.relative_to(root).as_posix() for root, index in found})


def lora_names() -> list[str]:
    """LoRA files that ComfyUI lists."""
    return folder_paths.get_filename_list("loras")


def lora_file(name: str) -> Path:
    """The path of a listed LoRA file; raises FileNotFoundError if it is gone."""
    return Path(folder_paths.get_full_path_or_raise("loras", name))


def save_temp_image(image: Tensor) -> Path:
    """Writes the first image [B, H, W, 3] in 0..1 to the temp folder."""
    return save_temp_pixels((image[0, ..., :3].clamp(0, 1) * 255).round().byte().cpu().numpy())


def save_temp_pixels(pixels: np.ndarray) -> Path:
    """Writes a picture [H, W, 3] uint8 to the temp folder, named by its content so that the same picture is the same file."""
    from PIL import Image

    name = hashlib.sha256(pixels.tobytes() + str(pixels.shape).encode()).hexdigest()[:16]
    file = Path(folder_paths.get_temp_directory()) / f"video_trainer_{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)
    return file


# models --------------------------------------------------------------------------------------------------------------


def load_diffusion_model(file: Path) -> Any:
    """A core MODEL, loaded as UNETLoader does."""
    import comfy.sd

    return comfy.sd.load_diffusion_model(str(file))


def load_vae(file: Path) -> Any:
    """A core VAE, loaded as VAELoader does."""
    import comfy.sd

    state, metadata = comfy.utils.load_torch_file(str(file), return_metadata=True)
    vae = comfy.sd.VAE(sd=state, metadata=metadata)
    vae.throw_exception_if_invalid()
    return vae


def load_lora(file: Path) -> dict[str, Tensor]:
    """A LoRA's state dict, as core's Load LoRA Model expects."""
    return comfy.utils.load_torch_file(str(file), safe_load=True)


# the running graph ---------------------------------------------------------------------------------------------------


def linked_outputs(node: str) -> tuple[int, ...]:
    """Which outputs of `node` other nodes of the running prompt take."""
    running, _ = PromptServer.instance.prompt_queue.get_current_queue_volatile()
    links = [value for item in running for other in item[2].values() for value in other.get("inputs", {}).values()]
    return tuple(sorted({link[1] for link in links if isinstance(link, list) and len(link) == 2 and str(link[0]) == str(node)}))


class NodeListener:
    """Shows a computation on the node that runs it: a progress bar and a line of text; ComfyUI's Cancel cancels it."""

    def __init__(self) -> None:
        context = get_executing_context()
        assert context is not None, "listeners are made while a node runs"
        self.node, self.prompt = context.node_id, context.prompt_id
        self.notices: list[str] = []
        self._bar = comfy.utils.ProgressBar(1, node_id=self.node)
        self._told = 0.0  # when the line was last written
        self._phase = ""

    def emit(self, event: Event) -> None:
        """Moves the bar and rewrites the line; notices are kept for a result's text."""
        if isinstance(event, Phase):
            self._phase = event.name
            self._told = 0.0  # a new phase is told at once
            self._tell(" · ".join(filter(None, (event.name, event.detail))))
        elif isinstance(event, Progress):
            self._move(event.done, event.total)
            self._tell(f"{self._phase} · {event.done}/{event.total} {event.unit}{_left(event.seconds_left)}")
        elif isinstance(event, Step):
            self._move(event.step, event.total)
            self._tell(f"step {event.step}/{event.total} · loss {event.loss:.4f}{_left(event.seconds_left)}")
        elif isinstance(event, Notice):
            self.notices.append(f"{event.where}: {event.text}" if event.where else event.text)

    def conclude(self, text: str) -> None:
        """Writes the line that stays."""
        self._told = 0.0
        self._tell(text)

    def request(self) -> Request | None:
        """Cancel, once ComfyUI is asked to interrupt."""
        return "cancel" if comfy.model_management.processing_interrupted() else None

    def _move(self, done: int, total: int) -> None:
        try:
            self._bar.update_absolute(done, total)
        except comfy.model_management.InterruptProcessingException:
            # The bar raises on Cancel and clears the flag. A listener must not raise: `request` answers it, after a save.
            comfy.model_management.interrupt_current_processing(True)

    def _tell(self, text: str) -> None:
        if (now := time.monotonic()) - self._told < TEXT_INTERVAL:
            return  # quick steps would keep the browser busy with nothing else
        self._told = now
        server = PromptServer.instance
        server.send_progress_text(text, self.node, server.client_id)


class RunListener(NodeListener):
    """Also sends each event of the run to the browser, and passes on what the browser asks for."""

    def __init__(self, prompt: dict[str, Any] | None, extra: dict[str, Any] | None) -> None:
        super().__init__()
        self.run = ""  # until the run has a folder
        self.requests: deque[Request] = deque()
        self._graph = {"prompt": prompt, **(extra or {})}

    @property
    def workflow(self) -> str | None:
        """The id of the canvas graph that was queued, if the browser sent it along."""
        return (self._graph.get("workflow") or {}).get("id")

    def emit(self, event: Event) -> None:
        """Sends the event; what came before the run had an id is only shown, and is in the log when the browser asks for it."""
        super().emit(event)
        if not event.run:
            return
        if not self.run:
            self.run = event.run
            self._keep_graph()
        message = {"node": self.node, "prompt": self.prompt, "event": _json_ready(event.as_dict())}
        PromptServer.instance.send_sync(EVENT, message, PromptServer.instance.client_id)
        if isinstance(event, Stopped):
            _stopped.append(event.run)

    def request(self) -> Request | None:
        """Cancel, or else the oldest unanswered request."""
        return super().request() or (self.requests.popleft() if self.requests else None)

    def _keep_graph(self) -> None:
        from ..trainer.runfolder import find_run

        folder = find_run(places().runs, self.run)
        if folder is not None:
            with suppress(OSError):  # the run itself will tell of a full disk
                (folder.path / "graph.json").write_text(json.dumps(self._graph), encoding="utf-8")


def _json_ready(event: dict[str, Any]) -> dict[str, Any]:
    """The event with None for NaN and infinity, which browsers do not read."""
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in event.items()}


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, seconds = divmod(round(seconds), 60)
    return f" · {minutes // 60}:{minutes % 60:02}:{seconds:02} left" if minutes >= 60 else f" · {minutes}:{seconds:02} left"


_active: RunListener | None = None
_stopped: list[str] = []


def stopped_runs() -> int:
    """How many runs were stopped early since ComfyUI started: when it changes, cached results may be those of half a run."""
    return len(_stopped)


@contextmanager
def computing(listener: NodeListener) -> Iterator[None]:
    """The card to ourselves, outside inference mode; a training run inside is the active one and has autograd on.

    A cancel inside becomes ComfyUI's interrupt.
    """
    import torch

    global _active
    comfy.model_management.unload_all_models()
    comfy.model_management.soft_empty_cache()
    _active = listener if isinstance(listener, RunListener) else None
    try:
        with cancelling(), torch.inference_mode(False), torch.set_grad_enabled(_active is not None):
            yield
    finally:
        _active = None
        comfy.model_management.soft_empty_cache()


@contextmanager
def cancelling() -> Iterator[None]:
    """A cancel inside becomes ComfyUI's interrupt."""
    try:
        yield
    except Interrupted:
        comfy.model_management.throw_exception_if_processing_interrupted()
        raise comfy.model_management.InterruptProcessingException() from None


# routes --------------------------------------------------------------------------------------------------------------


def register_routes() -> None:
    """Adds our routes to ComfyUI's server: all read-only but the requests to the run that is training now."""
    routes = PromptServer.instance.routes
    routes.get("/video_trainer/runs/{run}/events")(_get_events)
    routes.get("/video_trainer/active")(_get_active)
    routes.post("/video_trainer/runs/{run}/request")(_post_request)


def add_route(method: str, path: str, answer: Callable[[web.Request], Awaitable[web.Response]]) -> None:
    """Adds a route to ComfyUI's server."""
    PromptServer.instance.routes.route(method, path)(answer)


async def in_thread(call: Callable[..., T], *values: Any) -> T:
    """The result of a call that reads or writes files, made outside the server's loop."""
    return await PromptServer.instance.loop.run_in_executor(None, call, *values)


async def _get_events(request: web.Request) -> web.Response:
    try:
        after = max(int(request.query.get("after", "-1")), -1)
    except ValueError:
        return web.json_response({"error": "after must be a whole number"}, status=400)
    answer = await in_thread(read_log, request.match_info["run"], after)
    if answer is None:
        return web.json_response({"error": "there is no such run"}, status=404)
    return web.json_response(answer)


def read_log(run: str, after: int) -> dict[str, Any] | None:
    """Events of a run whose line number is above `after`, and its folder below output; None for an unknown run."""
    from ..trainer.events import read_log as events_of
    from ..trainer.runfolder import find_run

    folder = find_run(places().runs, run)
    if folder is None:
        return None
    events = [_json_ready(event) for event in events_of(folder.events) if event["index"] > after]
    return {"events": events, "folder": folder.path.relative_to(folder_paths.get_output_directory()).as_posix()}


async def _get_active(_: web.Request) -> web.Response:
    active = _active
    found = (active.run or None, active.node, active.prompt, active.workflow) if active else (None,) * 4
    return web.json_response(dict(zip(("run", "node", "prompt", "workflow"), found, strict=True)))


async def _post_request(request: web.Request) -> web.Response:
    try:
        wanted = (await request.json())["request"]
    except (ValueError, KeyError, TypeError, RecursionError):
        wanted = None
    allowed = [name for name in get_args(Request) if name != "cancel"]
    if wanted not in allowed:
        return web.json_response({"error": f"request must be one of {', '.join(allowed)}"}, status=400)
    active = _active
    if active is None or active.run != request.match_info["run"]:
        return web.json_response({"error": "this run is not training now"}, status=409)
    active.requests.append(cast("Request", wanted))
    return web.json_response({}, status=202)
