"""The front end's modules without a browser, in the Node.js that Playwright brings along."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("*.test.mjs"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_module(file: Path) -> None:
    driver = pytest.importorskip("playwright._impl._driver", reason="no Playwright here: pip install playwright")
    node, _ = driver.compute_driver_executable()
    done = subprocess.run([node, "--test", str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
