"""Datasets prepared by processes that are killed: `python tests/acceptance/killed.py FOLDER [rounds]` prints what came of it as JSON.

All libraries are loaded once; every preparation is a fork of its own, killed with SIGKILL at a random moment between the
first encoding and the end, and then prepared again. A folder of a tiny Wan and its clips is made first.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

CLIPS, THREADS, SEED, TRIES = 8, 2, 3, 4  # at most TRIES × rounds forks are made: some end before they are killed


def write_inputs(folder: Path) -> None:
    """The model, and clips of 9 frames with a caption each."""
    from tests.data.footage import scene
    from tests.data.synthetic import write_clip
    from tests.tiny.wan import write_tiny_wan

    write_tiny_wan(folder / "model")
    for number in range(CLIPS):
        write_clip(folder / f"clips/{number}.mp4", [scene(n + 30 * number, 96, 128) for n in range(9)])
        (folder / f"clips/{number}.txt").write_text(f"caption {number}", encoding="utf-8")


def prepare(folder: Path, cache: Path, journal: Path) -> None:
    """One preparation; the journal gets a line whenever something is encoded."""
    from tests.data.synthetic import Watcher, watched
    from trainer.components import Components
    from trainer.compute import Compute
    from trainer.data.cache import TensorCache
    from trainer.data.prepare import prepare_dataset
    from trainer.job import Bucket, CaptionSettings, ComputeSettings, DatasetSettings, VideoFolder
    from trainer.models import open_model

    def counted(encode: Callable[..., Any]) -> Callable[..., Any]:
        def encoding(*given: Any) -> Any:
            with journal.open("a") as file:
                file.write("encoded\n")
            return encode(*given)

        return encoding

    log, family = watched(Watcher()), open_model(folder / "model")
    for name in ("encode_video", "encode_text"):
        setattr(family, name, counted(getattr(family, name)))
    components = Components(family, Compute(ComputeSettings(device="cpu")), log)
    settings = DatasetSettings(
        sources=[VideoFolder(folder=str(folder / "clips"))], buckets=[Bucket(frames=9, height=96, width=128)], dataloader_threads=THREADS
    )
    prepare_dataset(settings, CaptionSettings(), family, TensorCache(cache), components, log)


def forked(work: Callable[[], None]) -> int:
    """Starts the work in a fork of this process; its id."""
    process = os.fork()
    if process:
        return process
    try:
        work()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def ended(process: int) -> int:
    """Waits for a fork: its exit status, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def entries(cache: Path) -> dict[str, bytes]:
    """All files of a cache but those that only save time: they remember times and days."""
    files = (path for path in cache.rglob("*") if path.is_file() and path.name not in ("index.json", "used.json", "probes.json"))
    return {path.relative_to(cache).as_posix(): path.read_bytes() for path in files}


class Rounds:
    """Kills and restarts over one set of clips."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.journal, self.random = folder, folder / "journal", random.Random(SEED)
        write = forked(lambda: write_inputs(folder))
        assert ended(write) == 0
        cache = folder / "whole"
        process = self.start(cache)
        self.await_first()
        begun = time.monotonic()
        assert ended(process) == 0
        self.seconds, self.whole = time.monotonic() - begun, entries(cache)
        assert self.encoded() == len(self.whole) == 2 * CLIPS + 1  # a clip, its caption, and the empty text

    def start(self, cache: Path) -> int:
        self.journal.unlink(missing_ok=True)
        return forked(lambda: prepare(self.folder, cache, self.journal))

    def await_first(self) -> None:
        end = time.monotonic() + 120
        while not (self.journal.is_file() and self.journal.stat().st_size):
            assert time.monotonic() < end, "nothing was encoded"
            time.sleep(0.002)

    def encoded(self) -> int:
        return self.journal.read_text().count("encoded") if self.journal.is_file() else 0

    def round(self) -> dict[str, Any] | None:
        """One kill and one restart; None if the process ended before it was killed."""
        cache = self.folder / "cut"
        shutil.rmtree(cache, ignore_errors=True)
        process = self.start(cache)
        self.await_first()
        time.sleep(self.random.uniform(0, self.seconds))
        os.kill(process, signal.SIGKILL)
        if ended(process) != -signal.SIGKILL:
            return None
        kept = {path: path.stat().st_mtime_ns for path in cache.rglob("*.safetensors")}
        begun = self.encoded()
        status = ended(self.start(cache))
        left = len(self.whole) - len(kept)
        return {
            "kept": len(kept), "begun": begun, "half_written": sum(1 for _ in cache.rglob("*.part")), "status": status,
            "again": self.encoded() - left + sum(path.stat().st_mtime_ns != stamp for path, stamp in kept.items()),
            "identical": entries(cache) == self.whole,
        }  # fmt: skip


def main(folder: Path, rounds: int) -> None:
    """Prints a JSON object: seconds of an uninterrupted cache stage, its items, and what each round found."""
    import av  # noqa: F401 - loaded here, so that no fork has to
    import torch
    from diffusers import AutoencoderKLWan, WanTransformer3DModel  # noqa: F401
    from transformers import ByT5Tokenizer, UMT5EncoderModel  # noqa: F401

    torch.set_num_threads(1)
    work, found = Rounds(folder), list[dict[str, Any]]()
    for _ in range(TRIES * rounds):
        result = work.round()
        found += [result] if result else []
        if len(found) == rounds:
            break
    print(json.dumps({"seconds": work.seconds, "items": len(work.whole), "rounds": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
