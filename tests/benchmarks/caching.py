"""What the cache stage costs: `python tests/benchmarks/caching.py [time|memory|scan ...]`, all three without words.

time: 200 clips of 720p to cached latents of the demo model's VAE at its own size, beside decoding all of a clip and then
encoding it, one after the other. Ours is without threads, which only take cores from a VAE that runs on them. memory: the
most that a process holds while it prepares 10 clips and 1,000 clips. scan: a folder of 10,000 small clips planned for the
first time, and again with nothing changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.acceptance.lines import Check, at_least, at_most  # noqa: E402

CLIPS, SIZE, RATE = 200, (17, 64, 64), 15  # of the time measured: clips, frames x height x width, frames/s
FEW, MANY, FILES, PER_FOLDER = 10, 1000, 10_000, 500
MIB = 1 << 20


def prepared(folder: Path, cache: Path, size: tuple[int, int, int], rate: float, threads: int) -> float:
    """Seconds that `prepare_dataset` takes for a folder of clips with the demo model, texts included."""
    from tests.data.synthetic import Watcher, watched
    from trainer.components import Components
    from trainer.compute import Compute
    from trainer.data.cache import TensorCache
    from trainer.data.prepare import prepare_dataset
    from trainer.demo.model import FOLDER
    from trainer.job import Bucket, CaptionSettings, ComputeSettings, DatasetSettings, VideoFolder
    from trainer.models import open_model

    frames, height, width = size
    log, family = watched(Watcher()), open_model(FOLDER)
    settings = DatasetSettings(
        sources=[VideoFolder(folder=str(folder))], buckets=[Bucket(frames=frames, height=height, width=width)], fps=rate,
        dataloader_threads=threads,
    )  # fmt: skip
    components = Components(family, Compute(ComputeSettings(device="cpu")), log)
    start = time.perf_counter()
    dataset = prepare_dataset(settings, CaptionSettings(), family, TensorCache(cache), components, log)
    taken = time.perf_counter() - start
    assert len(dataset.items) == len(list(folder.glob("*/*.mp4")) or list(folder.glob("*.mp4")))
    return taken


def plainly(folder: Path, size: tuple[int, int, int], rate: float) -> float:
    """Seconds for the same, clip after clip: all frames by OpenCV, whose decoder has a thread a core, then latents; nothing is written."""
    import cv2
    import numpy as np
    import torch

    from trainer.demo.model import FOLDER
    from trainer.models import open_model

    frames, height, width = size
    family = open_model(FOLDER)
    start = time.perf_counter()
    vae = family.load_vae()
    for path in sorted(folder.glob("*.mp4")):
        reader, pictures = cv2.VideoCapture(str(path)), []
        step = round(reader.get(cv2.CAP_PROP_FPS) / rate)
        while (read := reader.read())[0]:
            pictures.append(cv2.resize(cv2.cvtColor(read[1], cv2.COLOR_BGR2RGB), (width, height), interpolation=cv2.INTER_AREA))
        family.encode_video(vae, torch.from_numpy(np.stack(pictures[::step][:frames])))
    return time.perf_counter() - start


def unlike(paths: list[Path]) -> None:
    """Gives every file bytes of its own behind its end, so that each is encoded."""
    for number, path in enumerate(paths):
        path.write_bytes(path.read_bytes() + number.to_bytes(4, "big") * 8)


def caching_time(count: int = CLIPS) -> list[Check]:
    """The cache stage beside decoding and encoding in turn."""
    from tests.benchmarks.decoding import write_clips

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "clips"
        folder.mkdir()
        unlike(write_clips(folder, count))
        (Path(place) / "one").mkdir()
        unlike(write_clips(Path(place) / "one", 1))
        prepared(Path(place) / "one", Path(place) / "warm", SIZE, RATE, 0)
        plain, ours = plainly(folder, SIZE, RATE), prepared(folder, Path(place) / "cache", SIZE, RATE, 0)
    print(f"  {count} clips: plain {plain:.1f} s, ours {ours:.1f} s")
    # plain neither looks at all clips before it encodes the first, nor checks, hashes or stores anything
    return [at_least("caching: times as fast as plain decode, then encode", plain / ours, 0.9, ".2f")]


def small_clips(folder: Path, count: int) -> None:
    """Clips of 9 frames of 64 x 64 px with captions, several names sharing their pictures but not their bytes."""
    from tests.data.synthetic import write_clip

    first = write_clip(folder / "000/000000.mp4", 9).read_bytes()
    for number in range(count):
        path = folder / f"{number // PER_FOLDER:03d}/{number:06d}.mp4"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(first + number.to_bytes(4, "big") * 8)
        path.with_suffix(".txt").write_text(f"caption {number % 7}", encoding="utf-8")


def peak(count: int) -> float:
    """MiB that a process of its own holds at most while it prepares so many clips."""
    with tempfile.TemporaryDirectory() as place:
        small_clips(Path(place) / "clips", count)
        done = subprocess.run([sys.executable, __file__, "prepare", place], capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1]) / MIB


def memory() -> list[Check]:
    """Resident memory of few and of many clips."""
    few, many = peak(FEW), peak(MANY)
    print(f"  {FEW} clips {few:.0f} MiB, {MANY} clips {many:.0f} MiB at most")
    return [at_most(f"resident memory at {MANY} clips over that at {FEW}", many / few, 1.1, ".2f")]


def scanning(count: int = FILES) -> list[Check]:
    """A folder planned for the first time, then unchanged, as its notices and its report need it."""
    from tests.data.synthetic import Watcher, watched
    from trainer.data.cache import TensorCache
    from trainer.data.planning import plan_dataset
    from trainer.demo.model import FOLDER
    from trainer.job import CaptionSettings, DatasetSettings, VideoFolder
    from trainer.models import open_model

    spec, seconds = open_model(FOLDER).spec, []
    with tempfile.TemporaryDirectory() as place:
        small_clips(Path(place) / "clips", count)
        time.sleep(3)  # files of the last two seconds are not trusted to stay as they are
        for _ in range(2):
            start = time.perf_counter()
            store = TensorCache(Path(place) / "cache")
            settings = DatasetSettings(sources=[VideoFolder(folder=f"{place}/clips")])
            plan = plan_dataset(settings, CaptionSettings(), spec, store, watched(Watcher()))
            store.index.save()
            seconds.append(time.perf_counter() - start)
            assert len(plan.entries) == count
    return [
        at_most(f"{count} clips scanned, probed and planned, s", seconds[0], 60 * count / FILES, ".2f"),
        at_most("again, unchanged, s", seconds[1], 3 * count / FILES, ".2f"),
    ]


PARTS: dict[str, Callable[[], list[Check]]] = {"time": caching_time, "memory": memory, "scan": scanning}


def main(words: list[str]) -> None:
    if words[:1] == ["prepare"]:  # what `peak` starts
        import resource

        prepared(Path(words[1]) / "clips", Path(words[1]) / "cache", (5, 64, 64), 16, 2)
        most: Any = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps(most * 1024))
        return
    for part in words or PARTS:
        print(*PARTS[part](), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
