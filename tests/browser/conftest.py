"""A browser on a real ComfyUI that has this pack and the demo's workflow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.canvas import Canvas
from tests.host.comfy_server import ComfyServer

VIEW = {"width": 1600, "height": 1000}
RENDERERS = ("classic", "nodes 2.0")


@pytest.fixture(scope="session")
def server(comfyui: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    running = ComfyServer(comfyui, root, tmp_path_factory.mktemp("browser_comfyui"))
    try:
        running.wait_until_up()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def browser(chromium: Path) -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright here: pip install playwright")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=str(chromium), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go; VIDEO_TRAINER_SCREENSHOTS names a folder to keep them in."""
    folder = Path(os.environ.get("VIDEO_TRAINER_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def opened(renderer: str, server: ComfyServer, browser: Any, pictures: Path) -> Iterator[Canvas]:
    context = browser.new_context(viewport=VIEW)
    canvas = Canvas(context.new_page(), server, pictures, renderer)
    canvas.open()
    yield canvas
    context.close()


@pytest.fixture(params=RENDERERS)
def canvas(request: pytest.FixtureRequest, server: ComfyServer, browser: Any, pictures: Path) -> Iterator[Canvas]:
    """A fresh page in one of the two renderers."""
    with opened(request.param, server, browser, pictures) as fresh:
        yield fresh
        fresh.picture(f"end of {request.node.originalname}")
        server.post("/interrupt", {})


@pytest.fixture(scope="module", params=RENDERERS)
def shared_page(request: pytest.FixtureRequest, server: ComfyServer, browser: Any, pictures: Path) -> Iterator[Canvas]:
    with opened(request.param, server, browser, pictures) as page:
        yield page


@pytest.fixture
def shared_canvas(request: pytest.FixtureRequest, shared_page: Canvas) -> Iterator[Canvas]:
    """A page for tests that only open workflows: a fresh one takes about ten seconds."""
    shared_page.errors.clear()
    yield shared_page
    shared_page.picture(f"end of {request.node.name}")
