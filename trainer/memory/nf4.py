"""NormalFloat 4: rows of numbers as 4-bit codes that lie where the numbers of a normal distribution are densest.

From QLoRA (Dettmers, Pagnoni, Holtzman and Zettlemoyer 2023, arXiv 2305.14314): blocks of 64 numbers are divided by their largest
magnitude and each number takes the nearest of 16 codes, two to a byte. Their second quantisation is a simpler one here: the size of
a block is an e4m3 number times one scale of the row, 4.125 bits a weight in all.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .fp8_products import E4M3, LARGEST

NAME = "nf4"
BLOCK = 64  # numbers that share a size
BYTES = BLOCK // 2 + 1  # of a block, with that of its size
BINS = 1024
# Quantiles of the normal distribution, evenly spaced on either side of zero, as the paper's appendix E lists them.
CODES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def pair_table(device: torch.device | None = None) -> Tensor:
    """The two numbers of each byte, [256, 2], as the int32 bits of their float32: no cast of a module changes those."""
    codes = torch.tensor(CODES, device=device)
    return torch.cartesian_prod(codes, codes).flip(1).contiguous().view(torch.int32)


def pack(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Float32 rows [n, in] as uint8 [n, 33 · blocks], the codes of all blocks before the sizes of all, and the scales [n, 1] float32."""
    blocks = nn.functional.pad(rows, (0, -rows.shape[1] % BLOCK)).view(len(rows), -1, BLOCK)
    largest = blocks.abs().amax(-1)
    scale = largest.amax(-1, keepdim=True) / LARGEST
    scale = torch.where(scale == 0, 1.0, scale)
    sizes = (largest / scale).to(E4M3)
    held = (sizes.float() * scale).unsqueeze(-1)
    codes = _nearest(blocks / torch.where(held == 0, 1.0, held))
    pairs = codes[..., ::2] | codes[..., 1::2] << 4
    return torch.cat([pairs.flatten(1), sizes.view(torch.uint8)], 1), scale


def unpack(data: Tensor, table: Tensor) -> Tensor:
    """Rows of `pack` before their scale, float32 [n, 64 · blocks]; `table` is a `pair_table` on their device."""
    count = data.shape[1] // BYTES
    codes, sizes = data[:, : count * (BYTES - 1)], data[:, count * (BYTES - 1) :].view(E4M3).float()
    values = table.view(torch.float32).index_select(0, codes.reshape(-1).int())
    return values.view(len(data), count, BLOCK).mul_(sizes.unsqueeze(-1)).view(len(data), -1)


def _nearest(numbers: Tensor) -> Tensor:
    """The number of the nearest code, uint8; what lies outside the codes takes the last ones.

    Cuts [-1, 1] into bins that hold one border between codes at most: several times as fast as a search, with the same result.
    """
    codes = torch.tensor(CODES, device=numbers.device)
    borders = torch.cat([(codes[1:] + codes[:-1]) / 2, codes.new_full((1,), 2.0)])
    lower = torch.bucketize(torch.arange(BINS, device=numbers.device) / (BINS / 2) - 1, borders)  # the code at each bin's lower end
    flat = numbers.reshape(-1)
    bins = (flat * (BINS // 2) + BINS // 2).to(torch.int32).clamp_(0, BINS - 1)
    above = flat > borders[lower].index_select(0, bins)
    return (lower.to(torch.uint8).index_select(0, bins) + above).view(numbers.shape)
