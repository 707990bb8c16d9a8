"""Statistics and fingerprints of rows of hidden states, reduced where the rows lie.

Rows [n, slots x H] become float32 [n, slots, columns]: :data:`COLUMNS`, and with projections
:data:`PROJECTIONS` more. Nothing here waits for a device. On CUDA one Triton kernel does it
(:mod:`specscope.tensorstats_triton`), elsewhere torch, which is imported when the first rows come: the base
install has none.

The *projections* of a row x of width H are p_j = sum_c sign_j(c) x_c / sqrt(H), so that the mean of p**2
over all signs is the row's mean square. Signs come from an integer hash of (seed, column): the same on every
device, for every dtype and in every version.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from specscope.hidden import PROJECTIONS

COLUMNS: Final = ("mean", "variance", "max_abs", "nonfinite", "zero", "equal")
"""Of a row and slot. Values that are not finite are left out of the first three (0.0 where none is left) and
counted in ``nonfinite``. ``variance`` is that of the population; beyond float32 (a deviation above 1.8e19) it
is infinite, never silently something else. ``zero``: 1.0 where every value is zero. ``equal``: 1.0 where the
values are bitwise those of the row before in the same slot; 0.0 for row 0."""

SUMMED: Final = ("rows", "mean", "variance", "max_abs", "nonfinite", "zero", "equal")
"""Of a request and slot, over its rows: their number, mean and variance of all values, the largest max_abs,
and sums of the last three; ``equal`` leaves out its first row, which follows another request's."""

SEED: Final = 0x53504543

BIG: Final = 2.0**50
"""From this magnitude on rows are scaled down before anything is summed or squared."""
SHRINK: Final = 2.0**-88
"""By how much: 2**128 becomes 2**40. A power of two, so nothing is rounded."""

BLOCK: Final = 1 << 18
"""Values taken at a time in host memory: 1 MiB as float32."""


def signs(width: int, seed: int = SEED) -> NDArray[np.int8]:
    """Return the signs of the projections, +1 or -1, int8 [PROJECTIONS, width].

    All arithmetic is modulo 2**32: ``h = column * 0x9E3779B1 + seed``, then ``h ^= h >> 16``,
    ``h *= 0x7FEB352D``, ``h ^= h >> 15``, ``h *= 0x846CA68B``, ``h ^= h >> 16``. Projection j has -1 where
    bit j of h is set. Columns count within the slot.
    """
    h = np.arange(width, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(seed & 0xFFFFFFFF)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x7FEB352D)
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x846CA68B)
    h ^= h >> np.uint32(16)
    bits = (h[None, :] >> np.arange(PROJECTIONS, dtype=np.uint32)[:, None]) & np.uint32(1)
    return (1 - 2 * bits.astype(np.int8)).astype(np.int8)


@functools.lru_cache(maxsize=32)
def _weights(width: int, device: Any) -> Any:
    """Return signs / sqrt(width) as float32 [width, PROJECTIONS] on a device, made once."""
    torch: Any = importlib.import_module("torch")
    scaled = signs(width).T.astype(np.float32) / np.float32(math.sqrt(width))
    return torch.from_numpy(np.ascontiguousarray(scaled)).to(device)


def columns(projections: bool) -> int:
    """Return how many columns :func:`reduce` gives."""
    return len(COLUMNS) + (PROJECTIONS if projections else 0)


def reduce(rows: Any, slots: int, *, projections: bool, out: Any = None) -> Any:
    """Return float32 [n, slots, columns] of ``rows`` [n, slots x H], a torch tensor of any float dtype.

    Rows may have a stride; the values of a row lie side by side. ``out`` takes the numbers where it is
    given: contiguous, of the returned shape, on the rows' device. float64 is read as float32.

    Raises:
        ValueError: the shape is not [n, slots x H], the dtype is no float, or ``out`` does not fit.
    """
    torch: Any = importlib.import_module("torch")
    shape = _checked(torch, rows, slots, projections, out)
    with torch.no_grad():
        found = out
        if found is None:
            found = torch.empty(shape, dtype=torch.float32, device=rows.device)
        if shape[0]:
            at_once = max(1, BLOCK // rows.shape[1]) if rows.device.type == "cpu" else shape[0]
            for first in range(0, shape[0], at_once):
                last = min(first + at_once, shape[0])
                before = rows[first - 1] if first else None
                _masked(torch, rows[first:last], before, found[first:last], projections)
        return found


def _checked(torch: Any, rows: Any, slots: int, projections: bool, out: Any) -> tuple[int, int, int]:
    if rows.dim() != 2 or slots < 1 or rows.shape[1] % slots or not rows.shape[1]:
        raise ValueError(f"rows of shape {list(rows.shape)} are not [n, {slots} slots x H]")
    if not rows.is_floating_point():
        raise ValueError(f"rows of {rows.dtype} hold no real numbers")
    if rows.stride(1) != 1:
        raise ValueError(
            f"rows with strides {list(rows.stride())}: the values of a row must lie side by side"
        )
    shape = (int(rows.shape[0]), slots, columns(projections))
    if out is not None and (
        tuple(out.shape) != shape or out.dtype != torch.float32 or not out.is_contiguous()
    ):
        raise ValueError(f"out is {out.dtype} {list(out.shape)}, not contiguous torch.float32 {list(shape)}")
    return shape


def _masked(torch: Any, rows: Any, before: Any, found: Any, projections: bool) -> None:
    """Reduce rows whatever they hold, without a look at any value from the host."""
    n, slots = found.shape[:2]
    values = rows.float().view(n, slots, -1)
    width = values.shape[-1]
    finite = torch.isfinite(values)
    left = finite.sum(-1)
    kept = torch.where(finite, values, 0.0)
    peak = kept.abs().amax(-1)
    shrink = torch.where(peak >= BIG, SHRINK, 1.0).to(torch.float32)
    kept = kept * shrink[..., None]
    mean = kept.sum(-1) / left.clamp(min=1)
    apart = torch.where(finite, kept - mean[..., None], 0.0)
    variance = (apart * apart).sum(-1) / left.clamp(min=1)
    grow = 1.0 / shrink
    found[..., 0] = mean * grow
    found[..., 1] = variance * grow * grow
    found[..., 2] = peak
    found[..., 3] = width - left
    found[..., 4] = (peak == 0) & (left == width)
    found[..., 5] = _equal(torch, rows, before, slots)
    if projections:
        found[..., 6:] = (kept @ _weights(width, rows.device)) * grow[..., None]


def _equal(torch: Any, rows: Any, before: Any, slots: int) -> Any:
    """Return bool [n, slots]: bitwise the same as the row before; ``before`` is that of the first one."""
    n = rows.shape[0]
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.element_size()]
    bits = rows.view(whole).view(n, slots, -1)
    found = torch.zeros((n, slots), dtype=torch.bool, device=rows.device)
    found[1:] = (bits[1:] == bits[:-1]).all(-1)
    if before is not None:
        found[0] = (bits[0] == before.view(whole).view(slots, -1)).all(-1)
    return found


def combine(found: Any, starts: Any, counts: Any) -> Any:
    """Return float32 [requests, slots, columns of SUMMED] from ``found`` [n, slots, columns], see `reduce`.

    Of request i are ``counts[i]`` rows from row ``starts[i]`` on; rows of no request are left out. Both are
    sequences of whole numbers or tensors of int64 on the device of ``found``. Every row counts alike in mean
    and variance, also one that holds values that are not finite. A request without rows has zeros.

    Raises:
        ValueError: starts and counts differ in number.
    """
    torch: Any = importlib.import_module("torch")
    if len(starts) != len(counts):
        raise ValueError(f"{len(starts)} starts and {len(counts)} counts")
    with torch.no_grad():
        n = int(found.shape[0])
        first = _on_device(torch, starts, found.device)
        many = _on_device(torch, counts, found.device)
        at = torch.arange(n, device=found.device)
        inside = (at >= first[:, None]) & (at < (first + many)[:, None])  # [requests, n]
        some = many.clamp(min=1).to(torch.float32)[:, None]

        def summed(values: Any, mask: Any = inside) -> Any:
            return torch.where(mask[..., None], values, 0.0).sum(1)

        mean = summed(found[..., 0]) / some
        apart = found[None, :, :, 0] - mean[:, None]
        variance = summed(found[..., 1] + apart * apart) / some
        after = inside & (at != first[:, None])
        peak = torch.where(inside[..., None], found[..., 2], 0.0)
        peak = peak.amax(1) if n else mean
        return torch.stack(
            (
                many.to(torch.float32)[:, None].expand_as(mean),
                mean,
                variance,
                peak,
                summed(found[..., 3]),
                summed(found[..., 4]),
                summed(found[..., 5], after),
            ),
            dim=-1,
        )


def _on_device(torch: Any, numbers: Sequence[int] | Any, device: Any) -> Any:
    """Return whole numbers as int64 on a device, without waiting for it."""
    if isinstance(numbers, torch.Tensor):
        return numbers
    pinned = device.type == "cuda"
    made = torch.tensor(list(numbers), dtype=torch.int64, pin_memory=pinned)
    return made.to(device, non_blocking=True)
