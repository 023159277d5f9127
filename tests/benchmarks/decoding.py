"""Frames decoded and resized per second, beside the plain way: `python tests/benchmarks/decoding.py [clips]`.

The plain way opens a clip with PyAV, decodes it in one thread, turns every frame into RGB and resizes those that are wanted
with OpenCV. Ours reads the same frames with all that a dataset needs: the probe of every time stamp, colour and rotation.
torchcodec is measured where it is installed. The ratio is that of one run over the same files.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from trainer.data.plan import ClipPlan

CLIPS, FRAMES, RATE, KINDS, THREADS = 200, 34, 30, 4, 2  # THREADS as is the default, FRAMES of each clip, KINDS of different content
AHEAD = f"ours, {THREADS} ahead"
CASES = {  # name -> frames/s wanted, bucket, times the plain way's speed that it should reach
    "every frame, 720p": (30, (33, 720, 1280), 1.0),
    "half the rate, 480p": (15, (17, 480, 832), 1.5),
    "small bucket": (30, (17, 256, 448), 1.5),
}


@dataclass(frozen=True)
class Row:
    """A case and what each reader gives, in wanted frames per second; `bar` is the ratio to the plain way that is asked of ours."""

    case: str
    bar: float
    speeds: dict[str, float]

    @property
    def ratio(self) -> float:
        """Ours with as many threads as a dataset has by default, over the plain way."""
        return self.speeds[AHEAD] / self.speeds["plain"]

    def __str__(self) -> str:
        return f"{self.case:20} " + "  ".join(f"{name} {speed:6.1f}" for name, speed in self.speeds.items()) + f"  ratio {self.ratio:.2f}"


def write_clips(folder: Path, count: int) -> list[Path]:
    """H.264 clips of 720p with moving content; several names share a file."""
    paths = []
    for number in range(count):
        paths.append(folder / f"{number:04d}.mp4")
        if number >= KINDS:
            shutil.copy(paths[number % KINDS], paths[-1])
        else:
            _write(paths[-1], f"testsrc2=s=1280x720:r={RATE},hue=h={90 * number},noise=alls=12:allf=t,format=yuv420p")
    return paths


def _write(path: Path, picture: str) -> None:
    """Encodes what one of FFmpeg's picture sources shows."""
    import av

    with av.open(picture, format="lavfi") as source, av.open(str(path), "w") as target:
        stream = target.add_stream("libx264", rate=RATE, width=1280, height=720, pix_fmt="yuv420p", options={"preset": "fast", "crf": "20"})
        for frame in islice(source.decode(video=0), FRAMES):
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))


def plans(paths: Sequence[Path], fps: float, size: tuple[int, int, int]) -> list[Callable[[], ClipPlan]]:
    """For each clip, the work that finds out what to read of it."""
    from tests.data.synthetic import SPEC
    from trainer.data.plan import shaper
    from trainer.data.probe import probe
    from trainer.data.sources.record import ClipRecord
    from trainer.job import Bucket, DatasetSettings

    frames, height, width = size
    shape, _ = shaper(DatasetSettings(fps=fps, buckets=[Bucket(frames=frames, height=height, width=width)]), SPEC)
    return [lambda path=path: shape.plan(ClipRecord(path, path.name), probe(path)) for path in paths]


def plain(path: Path, wanted: Sequence[int], height: int, width: int) -> int:
    """Decodes all of a clip, resizes what is wanted; how many frames that is."""
    import av
    import cv2

    chosen, kept = set(wanted), []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for index, frame in enumerate(container.decode(stream)):
            pixels = frame.to_ndarray(format="rgb24")
            if index in chosen:
                kept.append(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA))
    return len(kept)


def ours(plan: Callable[[], ClipPlan], check: Callable[[], None]) -> Generator[int, None, None]:
    """The frames of a clip's example, as the cache stage gets them."""
    from trainer.data.clips import examples

    made = plan()
    with closing(examples(made, made.takes[0], check)) as found:
        yield from (len(frames) for _, frames in found)


def in_threads(work: list[Callable[[], ClipPlan]], threads: int) -> int:
    """Reads all clips, `threads` of them ahead; how many frames."""
    from trainer.data.content import nothing
    from trainer.data.prefetch import ahead

    with closing(ahead([partial(ours, plan) for plan in work], threads, nothing)) as clips:
        return sum(sum(clip) for clip in clips)


def by_torchcodec(path: Path, wanted: Sequence[int], height: int, width: int) -> int:
    """The same by torchcodec and torch."""
    from torch.nn.functional import interpolate
    from torchcodec.decoders import VideoDecoder

    frames = VideoDecoder(str(path), num_ffmpeg_threads=1).get_frames_at(list(wanted)).data
    return len(interpolate(frames.float(), (height, width), mode="area").byte())


def measured(paths: Sequence[Path], case: str) -> Row:
    """One case by every reader, one after the other over the same clips."""
    fps, size, bar = CASES[case]
    work = plans(paths, fps, size)
    wanted = work[0]().takes[0].indices
    readers: dict[str, Callable[[], int]] = {
        "plain": lambda: sum(plain(path, wanted, *size[1:]) for path in paths),
        AHEAD: lambda: in_threads(work, THREADS),
    }
    if importlib.util.find_spec("torchcodec"):
        readers["torchcodec"] = lambda: sum(by_torchcodec(path, wanted, *size[1:]) for path in paths)
    speeds = {}
    for name, read in readers.items():
        start = time.perf_counter()
        frames = read()
        speeds[name] = frames / (time.perf_counter() - start)
        assert frames == len(paths) * len(wanted), (name, frames)
    return Row(case, bar, speeds)


def table(count: int = CLIPS) -> list[Row]:
    """All cases over so many generated clips."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write_clips(Path(folder), count)
        return [measured(paths, case) for case in CASES]


if __name__ == "__main__":
    print("wanted frames per second" + ("" if importlib.util.find_spec("torchcodec") else "; torchcodec is not installed"))
    print(*table(int(sys.argv[1]) if len(sys.argv) > 1 else CLIPS), sep="\n")
