"""Dataset Preview in a real ComfyUI: it shows without loading a model, and only captions that it listed can be written, in their place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import CLIPS, FRAMES, SIZE, write_clips

pytestmark = [pytest.mark.host, pytest.mark.slow]

SHOWN = 2


@pytest.fixture(scope="module")
def clips(server: ComfyServer) -> Path:
    """Clips of this module alone, one of which cannot be read."""
    folder = server.folder / "input/previewed"
    write_clips(folder)
    (folder / "broken.mp4").write_bytes(b"no video")
    return folder


def graph(folder: str, **settings: Any) -> dict[str, Any]:
    return {
        "model": {"class_type": "VideoTrainerLoadModel", "inputs": {"source": "tiny", "path": ""}},
        "clips": {"class_type": "VideoTrainerVideoFolder", "inputs": {"folder": folder}},
        "buckets": {"class_type": "VideoTrainerFrameBuckets", "inputs": {"dataset": ["clips", 0], "sizes": f"{FRAMES}x{SIZE}x{SIZE}"}},
        "preview": {
            "class_type": "VideoTrainerDatasetPreview",
            "inputs": {
                "model": ["model", 0], "dataset": ["buckets", 0], "clips": SHOWN, "frames": 3, "caption_prefix": "zorp", **settings,
            },
        },
        "sheet": {"class_type": "PreviewImage", "inputs": {"images": ["preview", 0]}},
        "text": {"class_type": "PreviewAny", "inputs": {"source": ["preview", 1]}},
    }  # fmt: skip


def preview(client: Client, folder: str = "previewed", **settings: Any) -> dict[str, Any]:
    history = client.run(graph(folder, **settings))
    assert errors(history) == []
    return history["outputs"]["preview"]["video_trainer_preview"][0]


@pytest.fixture
def shown(client: Client, clips: Path) -> Iterator[dict[str, Any]]:
    yield preview(client)
    for index in range(CLIPS):
        (clips / f"{index}.txt").write_text(f"pattern {index} moving", encoding="utf-8")
    for kept in clips.glob("*.bak"):
        kept.unlink()


def edit(server: ComfyServer, id: str, text: object) -> tuple[int, Any]:
    return server.post(f"/video_trainer/captions/{quote(id, safe='')}", {"text": text})


def test_clips_are_shown_with_captions_counts_and_reasons(server: ComfyServer, client: Client, clips: Path) -> None:
    history = client.run(graph("previewed"))
    seen = history["outputs"]["preview"]["video_trainer_preview"][0]
    assert [(clip["name"], clip["texts"], clip["locked"]) for clip in seen["clips"]] == [
        (f"{index}.mp4", [f"zorp pattern {index} moving"], "") for index in range(SHOWN)
    ]
    assert (seen["kept"], seen["skipped"], seen["buckets"]) == (CLIPS, 1, [[f"{FRAMES}x{SIZE}x{SIZE}", CLIPS]])
    [left_out] = seen["dropped"]
    assert left_out["name"] == "broken.mp4" and left_out["why"] and left_out["cure"]
    with Image.open(server.folder / "temp" / seen["clips"][0]["strip"]) as strip:
        assert strip.size == (3 * SIZE, SIZE)
    assert f"{CLIPS} clips kept, 1 skipped" in str(history["outputs"]["text"])
    assert history["outputs"]["sheet"]["images"]


def test_a_page_that_was_loaded_again_finds_its_preview(server: ComfyServer, shown: dict[str, Any]) -> None:
    assert server.get(f"/video_trainer/previews/{shown['id']}") == (200, shown)
    assert server.get("/video_trainer/previews/0123")[0] == 404


def test_an_edit_is_written_kept_and_seen_by_the_next_run(server: ComfyServer, client: Client, clips: Path, shown: dict[str, Any]) -> None:
    (clips / "0.txt").write_bytes("pattern 0 moving".encode("utf-16"))
    shown = preview(client)
    status, answer = edit(server, shown["clips"][0]["id"], "  one\nthing: é ")
    assert status == 200 and answer["texts"] == ["zorp one thing: é"] and answer["text"] == "one thing: é"
    assert (clips / "0.txt").read_bytes() == "one thing: é\n".encode()
    assert (clips / "0.txt.bak").read_bytes() == "pattern 0 moving".encode("utf-16")
    assert edit(server, shown["clips"][0]["id"], "another")[0] == 200
    assert (clips / "0.txt").read_text(encoding="utf-8") == "another\n"
    assert (clips / "0.txt.bak").read_bytes() == "pattern 0 moving".encode("utf-16")
    assert [path.name for path in clips.iterdir() if path.name.startswith(".")] == []
    assert server.get(f"/video_trainer/previews/{shown['id']}")[1]["clips"][0]["texts"] == ["zorp another"]
    assert preview(client)["clips"][0]["texts"] == ["zorp another"]


def test_a_clip_without_caption_gets_a_file(server: ComfyServer, client: Client, clips: Path, shown: dict[str, Any]) -> None:
    (clips / "1.txt").unlink()
    clip = preview(client)["clips"][1]
    assert clip["texts"] == ["zorp"] and edit(server, clip["id"], "new")[0] == 200
    assert (clips / "1.txt").read_text(encoding="utf-8") == "new\n" and not (clips / "1.txt.bak").exists()


def test_what_changed_meanwhile_is_not_overwritten(server: ComfyServer, clips: Path, shown: dict[str, Any]) -> None:
    (clips / "0.txt").write_text("written elsewhere", encoding="utf-8")
    status, answer = edit(server, shown["clips"][0]["id"], "lost")
    assert status == 409 and "changed" in answer["error"]
    assert (clips / "0.txt").read_text(encoding="utf-8") == "written elsewhere"


def test_unknown_ids_and_paths_are_refused(server: ComfyServer, clips: Path, shown: dict[str, Any]) -> None:
    known = shown["id"]
    for id in (f"{known}.9", f"{known}.-1", f"{known}.", known, ".0", "0.0", str(clips / "0.txt"), "../0.txt", f"{known}.0/../0.txt"):
        assert edit(server, id, "no")[0] == 404, id
    assert (clips / "0.txt").read_text(encoding="utf-8") == "pattern 0 moving"


@pytest.mark.parametrize("text", ["", " \n", "x" * 10_001, 5, None])
def test_only_text_is_a_caption(server: ComfyServer, clips: Path, shown: dict[str, Any], text: object) -> None:
    assert edit(server, shown["clips"][0]["id"], text)[0] == 400
    assert server.post(f"/video_trainer/captions/{shown['clips'][0]['id']}", b"not json")[0] == 400
    assert (clips / "0.txt").read_text(encoding="utf-8") == "pattern 0 moving"


def test_clips_outside_input_and_output_are_locked(server: ComfyServer, client: Client, tmp_path: Path) -> None:
    write_clips(tmp_path)
    seen = preview(client, str(tmp_path))
    assert ["input or output folder" in clip["locked"] for clip in seen["clips"]] == [True] * SHOWN
    assert [clip["id"] for clip in seen["clips"]] == [""] * SHOWN
    assert edit(server, f"{seen['id']}.0", "no")[0] == 404
    assert (tmp_path / "0.txt").read_text(encoding="utf-8") == "pattern 0 moving"


def test_a_link_that_leads_outside_is_not_followed(server: ComfyServer, clips: Path, shown: dict[str, Any], tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("pattern 0 moving", encoding="utf-8")
    (clips / "0.txt").unlink()
    (clips / "0.txt").symlink_to(outside)
    try:
        assert edit(server, shown["clips"][0]["id"], "no")[0] == 403
    finally:
        (clips / "0.txt").unlink()
    assert outside.read_text(encoding="utf-8") == "pattern 0 moving"


def test_captions_of_a_list_are_locked(server: ComfyServer, client: Client, clips: Path, shown: dict[str, Any]) -> None:
    (clips / "metadata.csv").write_text("file_name,text\n0.mp4,of a table\n", encoding="utf-8")
    made = graph("previewed")
    made["clips"] = {"class_type": "VideoTrainerMetadataTable", "inputs": {"file": "previewed/metadata.csv"}}
    history = client.run(made)
    assert errors(history) == []
    [clip] = history["outputs"]["preview"]["video_trainer_preview"][0]["clips"]
    assert clip["texts"] == ["zorp of a table"] and "edit it in the list" in clip["locked"]
