"""Routes of the browser half: what runs told, which run is training now and what is asked of it, and where a prompt came from."""

from __future__ import annotations

from typing import Any, get_args

from aiohttp import web

from ..trainer.events import Request, read_log
from .host import folders, routes, running
from .host.listener import json_ready


def register() -> None:
    """Adds the routes: all read-only but the requests to the run that is training now."""
    routes.add("GET", "/video_trainer/runs/{run}/events", _get_events)
    routes.add("GET", "/video_trainer/active", _get_active)
    routes.add("GET", "/video_trainer/prompts/{prompt}", _get_prompt)
    routes.add("POST", "/video_trainer/runs/{run}/request", _post_request)


async def _get_events(request: web.Request) -> web.Response:
    try:
        after = max(int(request.query.get("after", "-1")), -1)
    except ValueError:
        return routes.error(400, "after must be a whole number")
    answer = await routes.in_thread(_told, request.match_info["run"], after)
    return routes.error(404, "there is no such run") if answer is None else web.json_response(answer)


def _told(run: str, after: int) -> dict[str, Any] | None:
    """Events of a run whose line number is above `after`, and its folder below output; None for an unknown run."""
    from ..trainer.runfolder import find_run

    folder = find_run(folders.places().runs, run)
    if folder is None:
        return None
    events = [json_ready(event) for event in read_log(folder.events) if event["index"] > after]
    return {"events": events, "folder": folders.below_output(folder.path)}


async def _get_active(_: web.Request) -> web.Response:
    active = running.active_run()
    found = (active.run or None, active.node, active.prompt) if active else (None,) * 3
    return web.json_response(dict(zip(("run", "node", "prompt"), found, strict=True)))


async def _get_prompt(request: web.Request) -> web.Response:
    return web.json_response({"workflow": running.workflow_of(request.match_info["prompt"])})


async def _post_request(request: web.Request) -> web.Response:
    wanted = await routes.asked(request, "request")
    allowed: list[Request] = [name for name in get_args(Request) if name != "cancel"]
    if wanted not in allowed:
        return routes.error(400, f"request must be one of {', '.join(allowed)}")
    active = running.active_run()
    if active is None or active.run != request.match_info["run"]:
        return routes.error(409, "this run is not training now")
    active.requests.append(wanted)
    return web.json_response({}, status=202)
