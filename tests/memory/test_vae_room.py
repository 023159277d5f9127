"""The VAE in the middle of a run: with the transformer beside it, without it, in tiles, and when memory runs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from tests.data.synthetic import Watcher, watched
from tests.tiny.wan import write_tiny_a14b_t2v, write_tiny_i2v, write_tiny_wan
from trainer.components import Components
from trainer.compute import Compute
from trainer.errors import UserError
from trainer.job import ComputeSettings, MemorySettings
from trainer.memory.assembly import Assembly
from trainer.memory.choices import Choices, Decoding
from trainer.memory.vae_room import with_vae
from trainer.models import open_model
from trainer.models.base import ModelFamily
from trainer.sampling import SampleRequest, draw

REQUEST = SampleRequest("a red circle", frames=5, height=32, width=48, steps=2, guidance=4.0, shift=3.0, seed=5)
LARGE = replace(REQUEST, frames=1, height=272, width=288)  # larger than a tile
OUT = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nAnd more.")


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> ModelFamily:
    return open_model(write_tiny_wan(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelFamily:
    return open_model(write_tiny_a14b_t2v(tmp_path_factory.mktemp("pair")))


class Parked:
    """Components whose assemblies tell where they are."""

    def __init__(self, family: ModelFamily, monkeypatch: pytest.MonkeyPatch, choices: Choices | None = None, **memory: bool) -> None:
        self.heard = Watcher()
        settings = MemorySettings(**memory)
        self.components = Components(family, Compute(ComputeSettings(device="cpu")), watched(self.heard), settings)
        if choices:
            self.components.choose(choices)
        self.away: dict[int, bool] = {}  # by transformer
        place, park = Assembly.place, Assembly.park
        monkeypatch.setattr(Assembly, "place", lambda own: (place(own), self.away.update({id(own.transformer): False})))
        monkeypatch.setattr(Assembly, "park", lambda own: (park(own), self.away.update({id(own.transformer): True})))

    def draw(self, request: SampleRequest = REQUEST) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        text = {name: torch.randn(shape, generator=generator) for name, shape in self.components.family.text_shapes().items()}
        return draw(self.components, request, [text], text)

    def watch(self, monkeypatch: pytest.MonkeyPatch, what: str = "decode_video", fails: int = 0) -> list[tuple[bool, bool]]:
        """Whether all transformers were away and the VAE worked in tiles, for each call, of which the first ones run out of memory."""
        seen: list[tuple[bool, bool]] = []
        family = type(self.components.family)
        own: Callable[..., Any] = getattr(family, what)

        def call(family: ModelFamily, vae: Any, *rest: Any) -> Any:
            seen.append((all(self.away.values()) and bool(self.away), vae.use_tiling))
            if len(seen) <= fails:
                raise OUT
            return own(family, vae, *rest)

        monkeypatch.setattr(family, what, call)
        return seen


@pytest.mark.parametrize("choices", [None, Choices(offload=0.5), Choices(offload=1.0)], ids=str)
def test_parking_changes_no_video(family: ModelFamily, monkeypatch: pytest.MonkeyPatch, choices: Choices | None) -> None:
    plain = Parked(family, monkeypatch).draw()
    own = Parked(family, monkeypatch, choices)
    own.components.decoding = Decoding(parked=True)
    seen = own.watch(monkeypatch)
    assert torch.equal(own.draw(), plain)
    assert torch.equal(own.draw(), plain), "and the next"
    assert seen == [(True, False)] * 2
    assert list(own.away.values()) == [False]


def test_nothing_is_parked_unless_planned(family: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Parked(family, monkeypatch)
    seen = own.watch(monkeypatch)
    own.draw()
    assert seen == [(False, False)] and not own.heard.notices


def test_the_expert_that_was_on_the_device_comes_back(pair: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Parked(pair, monkeypatch)
    high, low = (own.components.transformer(expert) for expert in pair.spec.experts)
    own.components.transformer(pair.spec.experts[0])
    own.components.decoding = Decoding(parked=True)
    assert with_vae(own.components, lambda vae: dict(own.away), "sample") == {id(high): True, id(low): True}
    assert own.away == {id(high): False, id(low): True}


def test_tiles_are_for_decoding_alone(family: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Parked(family, monkeypatch).draw(LARGE)
    own = Parked(family, monkeypatch)
    own.components.decoding = Decoding(parked=True, tiled=True)
    seen = own.watch(monkeypatch)
    tiled = own.draw(LARGE)
    assert seen == [(True, True)]
    assert tiled.shape == whole.shape and not torch.equal(tiled, whole)
    assert own.components.vae().use_tiling is False and not own.components.tiled
    assert with_vae(own.components, lambda vae: vae.use_tiling, "sample", decodes=False) is False


def test_tiling_that_is_set_stays(family: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Parked(family, monkeypatch, vae_tiling=True)
    own.components.decoding = Decoding(parked=True, tiled=True)
    own.draw()
    assert own.components.vae().use_tiling is True


def test_a_shortage_parks_the_transformer_and_is_told(family: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Parked(family, monkeypatch).draw()
    own = Parked(family, monkeypatch, Choices(offload=0.5))
    seen = own.watch(monkeypatch, fails=1)
    assert torch.equal(own.draw(), plain)
    assert seen == [(False, False), (True, False)]
    (notice,) = own.heard.notices
    assert "Tried to allocate 2.00 GiB.); from now on with the transformer on the host" in notice
    own.draw()
    assert seen[2:] == [(True, False)], "from now on"


def test_another_shortage_decodes_in_tiles_and_the_last_is_an_error(family: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Parked(family, monkeypatch)
    seen = own.watch(monkeypatch, fails=3)
    with pytest.raises(UserError, match=r"sample: the VAE's work does not fit .*2\.00 GiB"):
        own.draw()
    assert seen == [(False, False), (True, False), (True, True)] and len(own.heard.notices) == 2
    assert "in tiles of the frame" in own.heard.notices[1]
    assert list(own.away.values()) == [True], "and is brought back by what computes next"
    own.components.transformer()
    assert list(own.away.values()) == [False]


def test_encoding_is_done_again_without_tiles(family: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Parked(family, monkeypatch)
    own.components.transformer()

    def short(_: Any) -> None:
        raise OUT

    with pytest.raises(UserError, match="does not fit"):
        with_vae(own.components, short, "sample", decodes=False)
    assert own.components.decoding == Decoding(parked=True)


def test_another_error_brings_the_transformer_back(family: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Parked(family, monkeypatch)
    own.components.transformer()
    own.components.decoding = Decoding(parked=True)

    def broken(_: Any) -> None:
        raise ValueError("no such codec")

    with pytest.raises(ValueError, match="no such codec"):
        with_vae(own.components, broken, "sample")
    assert list(own.away.values()) == [False] and not own.heard.notices


@pytest.mark.parametrize("fails", [1, 2])
def test_a_text_encoder_without_room_parks_the_transformer(family: ModelFamily, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    own, tries = Parked(family, monkeypatch), list[bool]()
    own.components.transformer()
    encoder = own.components.text_encoder().module
    to = nn.Module.to

    def moved(module: nn.Module, device: Any) -> nn.Module:
        if module is encoder and device == own.components.compute.device and isinstance(device, torch.device):
            tries.append(all(own.away.values()))
            if len(tries) <= fails:
                raise OUT
        return to(module, device)

    monkeypatch.setattr(nn.Module, "to", moved)
    own.components.text_encoder()
    assert tries == [False, True]
    assert any("computes on the CPU" in notice for notice in own.heard.notices) is (fails == 2)


def test_notches() -> None:
    assert Decoding().smaller(tiles=True) == Decoding(parked=True)
    assert Decoding(parked=True).smaller(tiles=True) == Decoding(parked=True, tiled=True)
    assert Decoding(parked=True).smaller(tiles=False) is None
    assert Decoding(parked=True, tiled=True).smaller(tiles=True) is None


def test_pictures_are_encoded_without_the_transformer_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.effect_noise((48, 32), 80).convert("RGB").save(tmp_path / "first.png")
    family = open_model(write_tiny_i2v(tmp_path / "model"))
    request = replace(REQUEST, first_frame=str(tmp_path / "first.png"))
    plain = Parked(family, monkeypatch).draw(request)
    own = Parked(family, monkeypatch)
    own.components.transformer()
    own.components.decoding = Decoding(parked=True, tiled=True)
    seen = own.watch(monkeypatch, "encode_conditions")
    assert torch.equal(own.draw(request), plain)
    assert seen == [(True, False)]
