"""Host memory while a full-size transformer is loaded from a single file: python tests/benchmarks/loading.py [--form bf16] [--layers 8]

The file has the shapes of Wan's 14B and takes no disk space: its bytes were never written and read as zeros. A process of its
own loads it; a thread there reads RssAnon, the memory that is the process's own and not a file's, every 5 ms. The limit is
what the model holds, its or the file's largest tensor and 1 GiB more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
GIB = 2**30
FORMS = {  # of the file and the model -> memory.weights
    "fp8_scaled, kept": "as stored",
    "fp8_scaled, to bf16": "unquantized",
    "fp8_scaled, to nf4": "nf4",
    "bf16": "as stored",
    "bf16 to fp8": "fp8",
    "bf16 to int8": "int8",
    "bf16 to nf4": "nf4",
}


def write_file(folder: Path, layers: int, scaled: bool) -> Path:
    """A transformer's file under ComfyUI's names."""
    import torch

    from tests.models.headers import with_old_scales, write_header
    from trainer.models.key_tensors import to_comfy
    from trainer.models.loading import empty_model
    from trainer.models.wan import Family
    from trainer.models.wan.keys import TRANSFORMER

    config = {**Family.layout.config("t2v-14b", "transformer"), "num_layers": layers}
    from diffusers import WanTransformer3DModel

    state = empty_model(WanTransformer3DModel, config).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in to_comfy(TRANSFORMER, state).items()}
    assert all(tensor.device == torch.device("meta") for tensor in state.values())
    shapes, own = with_old_scales(shapes) if scaled else (shapes, {})
    return write_header(folder / "model.safetensors", shapes, "BF16", own)


@dataclass(frozen=True)
class Loaded:
    """What loading took: bytes of the model, of its or the file's largest tensor and of anonymous memory at the peak, and seconds."""

    model: int
    largest: int
    peak: int
    seconds: float

    @property
    def limit(self) -> int:
        """What the peak may be."""
        return self.model + self.largest + GIB


class Watch:
    """The largest RssAnon of this process since it was made."""

    def __init__(self) -> None:
        self.start = self.peak = anonymous()
        self._on = True
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Ends the watch: bytes at the peak above the start."""
        self._on = False
        self._thread.join()
        self.peak = max(self.peak, anonymous())
        return self.peak - self.start

    def _look(self) -> None:
        while self._on:
            self.peak = max(self.peak, anonymous())
            time.sleep(0.005)


def anonymous() -> int:
    """RssAnon of this process in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def load(file: Path, form: str) -> Loaded:
    """Loads the file in this process, watched."""
    import torch
    from diffusers import WanTransformer3DModel

    from trainer.job import ModelSettings
    from trainer.models import layouts
    from trainer.models.assembly import open_single_files
    from trainer.models.tensor_file import open_tensors

    files = open_single_files(ModelSettings(transformer=str(file)), layouts())[1]
    watch, began = Watch(), time.perf_counter()
    model = files.load("transformer", WanTransformer3DModel, torch.bfloat16, FORMS[form])
    seconds, peak = time.perf_counter() - began, watch.stop()
    sizes = [tensor.nbytes for tensor in (*model.parameters(), *model.buffers())]
    stored = max(stored.end - stored.start for stored in open_tensors(file).tensors.values())
    return Loaded(sum(sizes), max(*sizes, stored), peak, seconds)


def measured(form: str = next(iter(FORMS)), layers: int = 40) -> tuple[float, float]:
    """The peak and what is allowed, in GiB, of loading in a process of its own; prints a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        file = write_file(Path(folder), layers, form.startswith("fp8"))
        command = [sys.executable, __file__, "--file", str(file), "--form", form]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    loaded = Loaded(*json.loads(told))
    row = " | ".join(f"{size / GIB:.2f}" for size in (loaded.model, loaded.largest, loaded.peak, loaded.limit))
    print(f"| {form} | {row} | {loaded.seconds:.0f} |", flush=True)
    return loaded.peak / GIB, loaded.limit / GIB


def main() -> int:
    """Prints the table; 1 if a row is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", choices=FORMS, action="append", help="default: all")
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.file:
        print(json.dumps(astuple(load(given.file, given.form[0]))))
        return 0
    print("| file | model GiB | largest tensor | peak | limit | seconds |\n|---|---|---|---|---|---|", flush=True)
    results = [measured(form, given.layers) for form in given.form or FORMS]
    return int(any(peak > limit for peak, limit in results))


if __name__ == "__main__":
    sys.exit(main())
