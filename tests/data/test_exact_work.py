"""A real (random) Wan's encoders, counted: what is encoded again is exactly what changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.footage import scene
from tests.data.synthetic import Watcher, watched, write_clip
from tests.tiny.wan import write_tiny_wan
from trainer.components import Components
from trainer.compute import Compute
from trainer.data.cache import TensorCache
from trainer.data.prepare import prepare_dataset
from trainer.job import Bucket, CaptionSettings, ComputeSettings, DatasetSettings, VideoFolder
from trainer.models import open_model

SIZES = [Bucket(frames=5, height=32, width=32)]


class Counted:
    """A folder of clips prepared again and again; `work` holds the clips and texts that the last time encoded."""

    def __init__(self, root: Path) -> None:
        self.model, self.clips, self.cache = write_tiny_wan(root / "model"), root / "clips", root / "cache"
        self.fps: float | None = None
        for number, name in enumerate(("a", "b", "c")):
            self.clip(name, number, f"caption {name}")

    def clip(self, name: str, number: int, caption: str) -> None:
        write_clip(self.clips / f"{name}.mp4", [scene(n + 30 * number, 32, 32) for n in range(12)])
        self.caption(name, caption)

    def caption(self, name: str, text: str) -> None:
        (self.clips / f"{name}.txt").write_text(text, encoding="utf-8")

    def prepare(self) -> tuple[int, int]:
        log, calls = watched(Watcher()), {"encode_video": 0, "encode_text": 0}
        family = open_model(self.model)

        def counting(name: str, encode: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*given: Any) -> Any:
                calls[name] += 1
                return encode(*given)

            return counted

        for name in calls:
            setattr(family, name, counting(name, getattr(family, name)))
        components = Components(family, Compute(ComputeSettings(device="cpu")), log)
        settings = DatasetSettings(sources=[VideoFolder(folder=str(self.clips))], buckets=SIZES)
        settings = settings if self.fps is None else settings.model_copy(update={"fps": self.fps})
        self.dataset = prepare_dataset(settings, CaptionSettings(), family, TensorCache(self.cache), components, log)
        return calls["encode_video"], calls["encode_text"]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    made = Counted(tmp_path_factory.mktemp("counted"))
    assert made.prepare() == (3, 4)  # the empty text is one
    return made


def test_each_change_encodes_what_it_changed(counted: Counted) -> None:
    """In turn: nothing, a caption edited, a clip added, one deleted, another rate, another text encoder, the folder renamed."""
    assert counted.prepare() == (0, 0)
    counted.caption("a", "another caption")
    assert counted.prepare() == (0, 1)
    counted.clip("d", 3, "caption b")
    assert counted.prepare() == (1, 0)
    for file in counted.clips.glob("b.*"):
        file.unlink()
    assert counted.prepare() == (0, 0) and [item.name for item in counted.dataset.items] == ["a.mp4", "c.mp4", "d.mp4"]
    counted.fps = 8.0
    assert counted.prepare() == (3, 0)
    old = counted.dataset.text("caption c")
    counted.model = write_tiny_wan(counted.model.parent / "other", seed=1)
    for part in ("vae", "transformer"):  # of the second model only text encoder and tokenizer differ
        for file in (counted.model / part).iterdir():
            file.write_bytes((counted.model.parent / "model" / part / file.name).read_bytes())
    assert counted.prepare() == (0, 4)  # "another caption", "caption b", "caption c", ""
    new = counted.dataset.text("caption c")
    assert all(new[name].shape == old[name].shape and not np.array_equal(new[name], old[name]) for name in old)
    counted.clips = counted.clips.rename(counted.clips.with_name("renamed"))
    assert counted.prepare() == (0, 0) and len(counted.dataset.items) == 3
