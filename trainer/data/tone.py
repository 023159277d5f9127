"""HDR and wide-gamut signals to SDR BT.709: BT.2100 to light, the BT.2390 tone curve, BT.709 primaries, display gamma."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

WHITE = 203.0  # nit; what the brightest SDR value shows, the reference white of ITU-R BT.2408
PEAK = 1000.0  # nit; of HLG (its nominal display), and of PQ that does not say
BT709, BT2020, P3 = 1, 9, 12  # primaries by their H.273 numbers
_GAMMA = 2.4  # of an SDR display, ITU-R BT.1886 with black at zero
_CODES = 65536
_CHROMATICITIES = {  # x and y of red, green, blue; all have the white D65
    BT709: ((0.640, 0.330), (0.300, 0.600), (0.150, 0.060)),
    BT2020: ((0.708, 0.292), (0.170, 0.797), (0.131, 0.046)),
    P3: ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060)),
}
_D65 = (0.3127, 0.3290)
WIDE = tuple(number for number in _CHROMATICITIES if number != BT709)


def to_sdr(signal: np.ndarray, curve: str, primaries: int, peak: float) -> np.ndarray:
    """Non-linear R'G'B' to SDR BT.709, [h, w, 3] float32 in 0…1 -> [h, w, 3] uint8.

    `curve` is "PQ", "HLG" or "" for an SDR signal whose `primaries` (H.273) alone differ; `peak` is the source's brightest
    light in nit. The tone curve is applied to the largest of R, G and B and scales all three, which keeps hues.
    """
    import cv2

    codes = np.clip(signal * (_CODES - 1) + 0.5, 0, _CODES - 1).astype(np.uint16)
    light = np.take(_light_of_codes(curve), codes, mode="clip")
    if curve:
        scale = _ootf(light) if curve == "HLG" else np.float32(1)
        largest = np.maximum(np.maximum(light[..., 0], light[..., 1]), light[..., 2]) * scale
        scale = scale * _gain(largest, (PEAK if curve == "HLG" else max(peak, WHITE)) / WHITE)
        light = cv2.multiply(light, cv2.merge([scale] * 3))
    shown = np.clip(cv2.transform(light, to_bt709(primaries).astype(np.float32)), 1e-8, 1)  # zeros would be slow below, and give 0 too
    return cv2.convertScaleAbs(cv2.pow(shown, 1 / _GAMMA), alpha=255)


def _ootf(scene: np.ndarray) -> np.ndarray:
    """The OOTF of BT.2100 for a display of 1,000 nit, gamma 1.2: what scene light [h, w, 3] in 0…1 is multiplied by, in `WHITE`, [h, w]."""
    import cv2

    luminance = cv2.transform(scene, np.array([[0.2627, 0.6780, 0.0593]], np.float32))
    return cv2.pow(luminance, 0.2).reshape(scene.shape[:2]) * np.float32(PEAK / WHITE)


@lru_cache(maxsize=4)
def to_bt709(primaries: int) -> np.ndarray:
    """The matrix [3, 3] that takes linear RGB of these primaries (H.273; unknown ones count as BT.709) to BT.709."""
    if primaries not in WIDE:
        return np.eye(3)
    return np.linalg.inv(_to_xyz(BT709)) @ _to_xyz(primaries)


def _to_xyz(primaries: int) -> np.ndarray:
    """Linear RGB to CIE XYZ, scaled so that RGB (1, 1, 1) is D65 at Y = 1."""
    columns = np.array([[x / y, 1, (1 - x - y) / y] for x, y in _CHROMATICITIES[primaries]]).T
    x, y = _D65
    return columns * np.linalg.solve(columns, [x / y, 1, (1 - x - y) / y])


@lru_cache(maxsize=3)
def _light_of_codes(curve: str) -> np.ndarray:
    """Linear light of every 16-bit code: PQ in units of `WHITE`, HLG of the scene in 0…1, SDR of the display in 0…1."""
    signal = np.arange(_CODES) / (_CODES - 1)
    if curve == "PQ":
        light = pq_to_nit(signal) / WHITE
    elif curve == "HLG":
        a, b, c = 0.17883277, 0.28466892, 0.55991073
        light = np.where(signal <= 0.5, signal**2 / 3, (np.exp((signal - c) / a) + b) / 12)
    else:
        light = signal**_GAMMA
    return light.astype(np.float32)


def _gain(light: np.ndarray, peak: float) -> np.ndarray:
    """What light is multiplied by to fit under 1: the tone curve for a source that reaches `peak`, in units of `WHITE`."""
    share = light / np.float32(peak)
    index = np.sqrt(np.sqrt(np.minimum(share, 1))) * np.float32(_CODES - 1) + np.float32(0.5)
    return np.take(_gains(peak), index.astype(np.uint16), mode="clip") / np.maximum(share, 1)


@lru_cache(maxsize=8)
def _gains(peak: float) -> np.ndarray:
    """Gain at the fourth power of evenly spaced shares of `peak`, which samples the dark end finely."""
    light = np.maximum((np.arange(_CODES) / (_CODES - 1)) ** 4, 1e-12) * peak
    return (eetf(light * WHITE, peak * WHITE, WHITE) / (light * WHITE)).astype(np.float32)


def eetf(nit: np.ndarray, source: float, target: float) -> np.ndarray:
    """The tone curve of ITU-R BT.2390 (section 5.4.1) from 0…`source` to 0…`target` nit: the same light up to a knee, then a spline."""
    top = nit_to_pq(np.asarray(source))
    value, most = np.minimum(nit_to_pq(nit) / top, 1), nit_to_pq(np.asarray(target)) / top
    knee = 1.5 * most - 0.5
    t = (value - knee) / max(1 - knee, 1e-9)
    spline = (2 * t**3 - 3 * t**2 + 1) * knee + (t**3 - 2 * t**2 + t) * (1 - knee) + (3 * t**2 - 2 * t**3) * most
    return pq_to_nit(np.where(value < knee, value, spline) * top)


_M1, _M2 = 2610 / 16384, 2523 / 32  # constants of PQ, ITU-R BT.2100 table 4
_C1, _C2, _C3 = 3424 / 4096, 2413 / 128, 2392 / 128


def pq_to_nit(signal: np.ndarray) -> np.ndarray:
    """PQ signal in 0…1 to light in nit, 0…10,000."""
    root = np.asarray(signal) ** (1 / _M2)
    return 10000 * (np.maximum(root - _C1, 0) / (_C2 - _C3 * root)) ** (1 / _M1)


def nit_to_pq(nit: np.ndarray) -> np.ndarray:
    """Light in nit to the PQ signal in 0…1, the inverse of `pq_to_nit`."""
    power = (np.asarray(nit) / 10000) ** _M1
    return ((_C1 + _C2 * power) / (1 + _C3 * power)) ** _M2
