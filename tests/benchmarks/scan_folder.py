"""How long a scan of a folder of 10,000 small captioned files takes: `python tests/benchmarks/scan_folder.py [files]`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from trainer.data.sources.inspect import state  # noqa: E402
from trainer.data.sources.scan import scan  # noqa: E402
from trainer.source_settings import MetadataTable, Source, VideoFolder  # noqa: E402

PER_FOLDER = 500


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        root, rows = Path(place), ["file_name,text"]
        for number in range(count):
            clip = root / f"{number // PER_FOLDER:03d}/{number:06d}.mp4"
            clip.parent.mkdir(exist_ok=True)
            clip.write_bytes(b"x")
            clip.with_suffix(".txt").write_text(f"caption {number}", encoding="utf-8")
            rows.append(f"{clip.relative_to(root).as_posix()},caption {number}")
        (root / "metadata.csv").write_text("\n".join(rows), encoding="utf-8")
        sources: list[Source] = [VideoFolder(folder=place), MetadataTable(file=place)]
        for source in sources:
            for what, work in (("first scan", lambda source=source: scan([source])), ("second scan", lambda source=source: scan([source])),
                               ("fingerprint", lambda source=source: state(source))):  # fmt: skip
                start = time.perf_counter()
                work()
                print(f"{count} clips, {source.kind}: {what} {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
