"""Routes of the dataset preview: what one showed, and writing the caption of a clip that it showed."""

from __future__ import annotations

from aiohttp import web

from . import previews
from .host import folders, routes


def register() -> None:
    """Adds the routes; ids are those that a preview of this session gave out, a path is never taken."""
    routes.add("GET", "/video_trainer/previews/{id}", _get_preview)
    routes.add("POST", "/video_trainer/captions/{id}", _post_caption)


async def _get_preview(request: web.Request) -> web.Response:
    found = previews.shown(request.match_info["id"])
    return routes.error(404, "there is no such preview") if found is None else web.json_response(found)


async def _post_caption(request: web.Request) -> web.Response:
    clip = previews.editable(request.match_info["id"])
    if clip is None:
        return routes.error(404, "This preview is not of this session. Run again, then edit.")
    text = await routes.asked(request, "text")
    if not isinstance(text, str):
        return routes.error(400, "text must be the caption")
    try:
        return web.json_response(await routes.in_thread(clip.write, text, folders.is_ours))
    except previews.Refused as refused:
        return routes.error(refused.status, str(refused))
