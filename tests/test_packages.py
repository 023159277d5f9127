"""A missing package is met with its command, a broken optional one counts as missing."""

import subprocess
import sys

import pytest

from tests.tiny.wan import write_tiny_wan
from trainer.errors import UserError
from trainer.packages import OPTIONAL, install_command, require

ATTACH = """
import sys, torch
sys.path[:0] = [{fake!r}, {root!r}]
from pathlib import Path
from trainer.adapters.lora import Lora
from trainer.components import Components
from trainer.compute import Compute
from trainer.events import EventLog, Silent
from trainer.job import AdapterSettings, ComputeSettings
from trainer.models import open_model
class Heard(Silent):
    def emit(self, event): print(event.text)
log = EventLog(Heard())
family = open_model(Path({model!r}))
components = Components(family, Compute(ComputeSettings(device="cpu")), log)
lora = Lora.attach(components.transformer(), family.spec, AdapterSettings(), 0, log)
print(len(lora.layers), "layers")
"""


def test_commands_keep_the_bounds_of_the_requirements():
    assert install_command("diffusers").startswith(f'"{sys.executable}" -m pip install "diffusers>=')
    assert "<" in install_command("diffusers")
    assert install_command("anything").endswith('"anything"')
    built = install_command(OPTIONAL["flash_attn_interface"])
    assert " --no-build-isolation " in built and built.endswith('#subdirectory=hopper"')


def test_missing_and_broken_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "einops", None)
    monkeypatch.delitem(sys.modules, "peft", raising=False)
    (tmp_path / "peft.py").write_text("raise RuntimeError('half installed')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as error:
        require("einops", "peft", "safetensors")
    text = str(error.value)
    assert "half installed" in text and "pip install" in text and text.count("\n") == 1


@pytest.mark.parametrize("body", ["__version__ = '0.9.0'", "raise OSError('built for another torch')"])
def test_a_broken_torchao_counts_as_absent(tmp_path, root, body):
    """PEFT raises at injection when it finds torchao 0.9."""
    (tmp_path / "fake/torchao").mkdir(parents=True)
    (tmp_path / "fake/torchao/__init__.py").write_text(body)
    (tmp_path / "fake/torchao-0.9.0.dist-info").mkdir()
    (tmp_path / "fake/torchao-0.9.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torchao\nVersion: 0.9.0\n")
    model = write_tiny_wan(tmp_path / "tiny", layers=1)
    script = ATTACH.format(fake=str(tmp_path / "fake"), root=str(root), model=str(model))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "torchao" in done.stdout and "pip install -U torchao" in done.stdout and "10 layers" in done.stdout
