"""Prune Cache in a real ComfyUI: it looks at the disk each time it is queued, and removes only when told."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tests.host.comfy_server import Client, ComfyServer, errors

pytestmark = [pytest.mark.host, pytest.mark.slow]

DAYS = 1000  # what other tests of this server keep in the cache is newer


def report(client: Client, remove: bool) -> str:
    graph: dict[str, Any] = {"prune": {"class_type": "VideoTrainerPruneCache", "inputs": {"unused_for": DAYS, "remove": remove}}}
    history = client.run(graph)
    assert errors(history) == []
    (text,) = history["outputs"]["prune"]["text"]
    return text


def test_it_looks_each_time_and_removes_only_when_told(server: ComfyServer, client: Client) -> None:
    entry = server.folder / "output/video_trainer/cache/clips/00" / f"{'0' * 40}.safetensors"
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_bytes(bytes(2048))
    os.utime(entry, times=(time.time() - 86400 * (DAYS + 1),) * 2)
    assert "unused for 1,000 days: 1 file, 2.0 KiB" in report(client, remove=False) and entry.is_file()
    assert "removed: 1 file, 2.0 KiB" in report(client, remove=True) and not entry.exists()
    assert "removed: none" in report(client, remove=True)
