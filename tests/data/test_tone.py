"""HDR to SDR against a double-precision reference of its own: BT.2100, BT.2390 and BT.1886 written out pixel by pixel."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.footage import codes, decoded, encode, frame_of
from trainer.data.probe import probe
from trainer.data.tone import eetf, nit_to_pq, pq_to_nit, to_bt709, to_sdr

PQ, HLG = {"color_trc": 16, "color_primaries": 9, "colorspace": 9}, {"color_trc": 18, "color_primaries": 9, "colorspace": 9}


def reference(planes: list[np.ndarray], bits: int, curve: str, peak: float) -> np.ndarray:
    """Y'CbCr codes of limited range to SDR levels, 0…255, in double precision."""
    unit = 2.0 ** (bits - 8)
    y, cb, cr = planes[0] / unit / 219 - 16 / 219, planes[1] / unit / 224 - 128 / 224, planes[2] / unit / 224 - 128 / 224
    red, blue = y + 1.4746 * cr, y + 1.8814 * cb
    signal = np.clip(np.stack([red, (y - 0.2627 * red - 0.0593 * blue) / 0.678, blue], axis=-1), 0, 1)
    if curve == "PQ":
        light = of_pq(signal)
    else:
        a = 0.17883277
        b, c = 1 - 4 * a, 0.5 - a * np.log(4 * a)
        scene = np.where(signal <= 0.5, signal * signal / 3, (np.exp((signal - c) / a) + b) / 12)
        light = 1000 * scene * (scene @ [0.2627, 0.6780, 0.0593])[..., None] ** 0.2
    largest = light.max(axis=-1, keepdims=True)
    light = light * tone(np.minimum(largest, peak), peak) / np.maximum(largest, 1e-9)
    matrix = [[1.660491, -0.587641, -0.072850], [-0.124550, 1.132900, -0.008349], [-0.018151, -0.100579, 1.118730]]
    return 255 * np.clip(light / 203 @ np.transpose(matrix), 0, 1) ** (1 / 2.4)


def of_pq(signal: np.ndarray) -> np.ndarray:
    power = signal ** (1 / 78.84375)
    return 10000 * (np.maximum(power - 0.8359375, 0) / (18.8515625 - 18.6875 * power)) ** (1 / 0.1593017578125)


def in_pq(nit: np.ndarray) -> np.ndarray:
    power = (nit / 10000) ** 0.1593017578125
    return ((0.8359375 + 18.8515625 * power) / (1 + 18.6875 * power)) ** 78.84375


def tone(nit: np.ndarray, peak: float) -> np.ndarray:
    """BT.2390 from black…peak to black…203 nit."""
    top = in_pq(np.float64(peak))
    e1, most = in_pq(nit) / top, in_pq(np.float64(203)) / top
    ks = 1.5 * most - 0.5
    t = (e1 - ks) / (1 - ks)
    p = (2 * t**3 - 3 * t**2 + 1) * ks + (t**3 - 2 * t**2 + t) * (1 - ks) + (-2 * t**3 + 3 * t**2) * most
    return of_pq(np.where(e1 < ks, e1, p) * top)


@pytest.mark.parametrize(("curve", "tags"), [("PQ", PQ), ("HLG", HLG)])
@pytest.mark.parametrize(("pix_fmt", "bits"), [("yuv444p10le", 10), ("yuv444p12le", 12)])
def test_hdr_equals_the_reference(tmp_path: Path, curve: str, tags: dict[str, int], pix_fmt: str, bits: int) -> None:
    planes = codes(bits, 96, 128)
    path = encode(tmp_path / "a.mkv", [frame_of(planes, pix_fmt)], "ffv1", pix_fmt, tags={**tags, "color_range": 1})
    clip = probe(path)
    assert (clip.colour.hdr, clip.colour.matrix, clip.colour.primaries, clip.colour.peak) == (curve, 9, 9, 1000)
    difference = np.abs(decoded(path)[0] - reference(planes, bits, curve, 1000))
    assert difference.mean() < 0.5 and difference.max() < 2


def test_the_usual_hdr_clip_equals_the_reference(tmp_path: Path) -> None:
    """HEVC, 10 bits, 4:2:0, lossless: flat blocks, seen away from their edges, where chroma is not interpolated."""
    planes = codes(10, 96, 128)
    lossless = {"x265-params": "lossless=1:log-level=error:bframes=0:pools=1"}
    frames = [frame_of(planes, "yuv420p10le") for _ in range(2)]
    path = encode(tmp_path / "a.mp4", frames, "libx265", "yuv420p10le", options=lossless, tags=HLG)
    inside = (slice(3, None, 8), slice(3, None, 8))
    difference = np.abs(decoded(path)[1] - reference(planes, 10, "HLG", 1000))[inside]
    assert difference.mean() < 0.5 and difference.max() < 2


@pytest.mark.parametrize(("light", "peak"), [("max-cll=600,400", 600), ("", 4000)])
def test_peak_of_pq_comes_from_its_metadata(tmp_path: Path, light: str, peak: float) -> None:
    display = "master-display=G(8500,39850)B(6550,2300)R(35400,14600)WP(15635,16450)L(40000000,50)"
    options = {"x265-params": ":".join(filter(None, ["lossless=1:log-level=error:bframes=0:pools=1:hdr10=1", display, light]))}
    planes = codes(10, 96, 128)
    frames = [frame_of(planes, "yuv444p10le") for _ in range(2)]
    path = encode(tmp_path / "a.mp4", frames, "libx265", "yuv444p10le", options=options, tags=PQ)
    assert probe(path).colour.peak == peak
    difference = np.abs(decoded(path)[0] - reference(planes, 10, "PQ", peak))
    assert difference.mean() < 0.5 and difference.max() < 2


def test_the_curve_keeps_dark_light_and_reaches_white_at_the_peak() -> None:
    nit = np.linspace(0.01, 1000, 2000)
    mapped = eetf(nit, 1000, 203)
    assert np.allclose(mapped[nit < 88], nit[nit < 88], rtol=1e-6)
    assert (np.diff(mapped) >= 0).all() and mapped[-1] == pytest.approx(203, rel=1e-6)
    assert np.allclose(eetf(nit[nit < 203], 203, 203), nit[nit < 203], rtol=1e-6)  # nothing to compress


def test_known_points_of_pq() -> None:
    assert np.allclose(nit_to_pq(np.array([100.0, 203.0, 1000.0, 10000.0])), [0.5081, 0.5807, 0.7518, 1.0], atol=1e-4)  # BT.2408
    assert np.allclose(pq_to_nit(nit_to_pq(np.array([0.1, 5.0, 400.0]))), [0.1, 5, 400])


def test_greys_stay_grey_and_hlg_white_is_brighter_than_its_diffuse_white() -> None:
    greys = np.repeat(np.linspace(0, 1, 64, dtype=np.float32)[None, :, None], 3, axis=2)
    for curve in ("PQ", "HLG"):
        out = to_sdr(greys, curve, 9, 1000).astype(int)
        assert np.ptp(out, axis=2).max() <= 1 and (np.diff(out[0, :, 0]) >= 0).all()
        assert out[0, 0, 0] == 0 and out[0, -1, 0] == 255
    diffuse = to_sdr(np.full((1, 1, 3), 0.75, np.float32), "HLG", 9, 1000)  # 203 nit by BT.2408
    assert 215 < diffuse[0, 0, 0] < 240


def test_wide_sdr_is_brought_to_bt709(tmp_path: Path) -> None:
    """A BT.709 colour written with BT.2020 primaries comes back as it was."""
    colour = np.array([180, 60, 90]) / 255
    wide = np.clip(np.linalg.inv(to_bt709(9)) @ colour**2.4, 0, 1) ** (1 / 2.4) * 255
    picture = np.full((48, 64, 3), np.round(wide), np.uint8)
    tags = {"color_trc": 14, "color_primaries": 9, "colorspace": 9, "color_range": 1}
    path = encode(tmp_path / "a.mkv", [picture], "ffv1", "yuv444p10le", tags=tags)
    assert np.abs(decoded(path)[0] - colour * 255).max() <= 2


def test_hdr_shrinks_without_losing_depth(tmp_path: Path) -> None:
    planes = [np.tile(np.linspace(300, 420, 256), (64, 1)).astype(int), np.full((64, 256), 512), np.full((64, 256), 512)]
    path = encode(tmp_path / "a.mkv", [frame_of(planes, "yuv444p10le")], "ffv1", "yuv444p10le", tags={**PQ, "color_range": 1})
    small = decoded(path, [0], (32, 128))[0]
    large = reference(planes, 10, "PQ", 1000).reshape(32, 2, 128, 2, 3).mean((1, 3))
    assert np.abs(small - large).max() < 1.5
