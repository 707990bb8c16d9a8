"""The reduction of :mod:`specscope.tensorstats` for any device and any values, without a look at one.

Slower than the kernels of CUDA and the host, and what both are tested against.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, Final

from specscope.hidden import PROJECTIONS
from specscope.signs import weights

BIG: Final = 2.0**50
"""From this magnitude on a row is scaled down before anything is summed or squared."""
SHRINK: Final = 2.0**-88
"""By how much: 2**128 becomes 2**40. A power of two, so nothing is rounded."""
AT_ONCE: Final = 1 << 22
"""Values taken at a time: 16 MiB as float32, a few times over."""


def reduce(rows: Any, found: Any) -> None:
    """Put the statistics of ``rows`` [n, slots x H] into ``found`` [n, slots, columns]."""
    step = max(1, AT_ONCE // rows.shape[1])
    for first in range(0, rows.shape[0], step):
        some = slice(first, first + step)
        values(rows[some], found[some])
        equal(rows[max(0, first - 1) : first + step], found[some, :, 5], first)


def values(rows: Any, found: Any) -> None:
    """Put everything but ``equal`` of ``rows`` [n, slots x H] into ``found`` [n, slots, columns]."""
    torch: Any = importlib.import_module("torch")
    n, slots, columns = found.shape
    kept = rows.float().view(n, slots, -1)
    width = kept.shape[-1]
    finite = kept.abs() < math.inf
    left = finite.float().sum(-1)
    kept = torch.where(finite, kept, 0.0)
    peak = kept.abs().amax(-1)
    shrink = torch.where(peak >= BIG, SHRINK, 1.0).float()
    grow = 1.0 / shrink
    kept *= shrink[..., None]
    of = left.clamp(min=1)
    mean = kept.sum(-1) / of
    found[..., 0] = mean * grow
    found[..., 2] = peak
    found[..., 3] = width - left
    found[..., 4] = (peak == 0) & (left == width)
    if columns > 6:
        found[..., 6 : 6 + PROJECTIONS] = (kept @ weights(width, rows.device)) * grow[..., None]
    kept -= mean[..., None]
    kept *= finite
    found[..., 1] = torch.linalg.vector_norm(kept, dim=-1).square() / of * grow * grow


def equal(rows: Any, found: Any, first: int) -> None:
    """Put into ``found`` [n, slots] where a row is bitwise the one before; ``rows`` starts with that one.

    Where ``first`` is 0 there is none before.
    """
    torch: Any = importlib.import_module("torch")
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.element_size()]
    bits = rows.view(whole).view(rows.shape[0], found.shape[1], -1)
    same = (bits[1:] == bits[:-1]).all(-1)
    if first:
        found[:] = same
    else:
        found[0] = 0.0
        found[1:] = same


def combine(found: Any, starts: Any, counts: Any) -> Any:
    """Return the statistics of requests, as :func:`specscope.tensorstats.combine`."""
    torch: Any = importlib.import_module("torch")
    first = on_device(starts, found.device)[:, None]
    many = on_device(counts, found.device)[:, None]
    at = torch.arange(found.shape[0], device=found.device)
    inside = (at >= first) & (at < first + many)  # [requests, n]
    later = inside & (at != first)

    def summed(of_rows: Any, where: Any = inside) -> Any:
        return torch.where(where[..., None], of_rows, 0.0).sum(1)

    known = (found[..., 3] == 0) | (found[..., 2] > 0)
    of = summed(known.float()).clamp(min=1)
    mean = summed(found[..., 0]) / of
    apart = torch.where(known, found[..., 0] - mean[:, None], 0.0)
    variance = summed(found[..., 1] + apart.square()) / of
    rows = many.float().expand_as(mean)
    # A row more, so that there is one: no requests have rows where there are none.
    peaks = torch.where(inside[..., None], found[..., 2], 0.0)
    peak = torch.nn.functional.pad(peaks, (0, 0, 0, 1)).amax(1)
    counted = (summed(found[..., 3]), summed(found[..., 4]), summed(found[..., 5], later))
    return torch.stack((rows, mean, variance, peak, *counted), dim=-1)


def on_device(numbers: Any, device: Any) -> Any:
    """Return whole numbers as an int64 tensor on ``device``, without waiting for it."""
    torch: Any = importlib.import_module("torch")
    if isinstance(numbers, torch.Tensor):
        return numbers
    # A copy from pageable memory may wait for the stream.
    made = torch.tensor(list(numbers), dtype=torch.int64, pin_memory=device.type == "cuda")
    return made.to(device, non_blocking=True)
