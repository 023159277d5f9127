"""Routes of ComfyUI's server: adding one, what a request asks for, and an answer that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web
from server import PromptServer

T = TypeVar("T")


def add(method: str, path: str, answer: Callable[[web.Request], Awaitable[web.Response]]) -> None:
    """Adds a route."""
    PromptServer.instance.routes.route(method, path)(answer)


async def in_thread(call: Callable[..., T], *values: Any) -> T:
    """The result of a call that reads or writes files, made outside the server's loop."""
    return await PromptServer.instance.loop.run_in_executor(None, call, *values)


async def asked(request: web.Request, name: str) -> Any:
    """A value of the JSON object that a request brings along; None if it brings none."""
    try:
        return (await request.json())[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def error(status: int, text: str) -> web.Response:
    """The answer to a request that cannot be followed."""
    return web.json_response({"error": text}, status=status)
