"""Statistics and fingerprints of rows of hidden states, reduced where the rows lie.

Rows [n, slots x H] become float32 [n, slots, columns]: :data:`COLUMNS`, and with projections
:data:`~specscope.hidden.PROJECTIONS` more. Nothing here waits for a device: on CUDA one Triton kernel does it
(:mod:`.tensorstats_triton`), in host memory numpy (:mod:`.tensorstats_host`), elsewhere, and for what those
two do not take, torch (:mod:`.tensorstats_torch`). torch is imported when the first rows come: the base
install has none.

The *projections* of a row x of width H are p_j = sum_c sign_j(c) x_c / sqrt(H) over the
:func:`~specscope.signs.signs`, so that over all signs the mean of p**2 is the row's mean square.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any, Final

from specscope.hidden import PROJECTIONS
from specscope.signs import SEED, signs

__all__ = ("COLUMNS", "SEED", "SUMMED", "columns", "combine", "reduce", "signs")

COLUMNS: Final = ("mean", "variance", "max_abs", "nonfinite", "zero", "equal")
"""Of a row and slot. Values that are not finite are left out of the first three (0.0 where none is left) and
counted in ``nonfinite``. ``variance`` is that of the population; where float32 cannot hold it (a deviation
above 1.8e19) it is infinite. ``zero``: 1.0 where every value is zero. ``equal``: 1.0 where the values are
bitwise those of the row before in the same slot; 0.0 for row 0."""

SUMMED: Final = ("rows", "mean", "variance", "max_abs", "nonfinite", "zero", "equal")
"""Of a request and slot, over its rows: their number, mean and variance of all values, the largest max_abs,
and sums of the last three; ``equal`` leaves out its first row, which follows another request's."""


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
    rows = rows.detach()
    shape = _shape(rows, slots, projections)
    if out is None:
        out = torch.empty(shape, dtype=torch.float32, device=rows.device)
    elif (
        tuple(out.shape) != shape
        or out.dtype != torch.float32
        or out.device != rows.device
        or not out.is_contiguous()
    ):
        raise ValueError(
            f"out is {out.dtype} {list(out.shape)} on {out.device}, "
            f"not contiguous torch.float32 {list(shape)} on {rows.device}"
        )
    if shape[0]:
        _way(rows.device.type, rows.dtype, rows.shape[1] // slots).reduce(rows, out)
    return out


def combine(found: Any, starts: Any, counts: Any) -> Any:
    """Return float32 [requests, slots, 7], :data:`SUMMED`, of ``found`` [n, slots, columns] of `reduce`.

    Of request i are ``counts[i]`` rows from row ``starts[i]`` on; rows of no request are left out. Both are
    sequences of whole numbers or int64 tensors on the device of ``found``, which are not waited for. In mean
    and variance every row counts alike, also one with some values that are not finite; a row that has such
    values and else none but zeros, or none at all, counts for nothing. A request without rows has zeros.

    Raises:
        ValueError: starts and counts differ in number, or, in host memory, name a row that is not there.
    """
    if len(starts) != len(counts):
        raise ValueError(f"{len(starts)} starts and {len(counts)} counts")
    return _way(found.device.type, found.dtype, 0).combine(found, starts, counts)


def captured(dtype: Any, width: int) -> bool:
    """Say whether one kernel on CUDA does it for slots of ``width``, which a CUDA graph can hold."""
    way: Any = _way("cuda", dtype, width)
    return way.__name__.endswith("_triton")


@functools.lru_cache(maxsize=64)
def _way(device: str, dtype: Any, width: int) -> Any:
    """Return the module that reduces slots of ``width`` values of a dtype on a kind of device."""
    if device == "cpu":
        return importlib.import_module("specscope.tensorstats_host")
    if device == "cuda" and importlib.util.find_spec("triton") is not None:
        triton: Any = importlib.import_module("specscope.tensorstats_triton")
        if triton.takes(dtype, width):
            return triton
    return importlib.import_module("specscope.tensorstats_torch")


def _shape(rows: Any, slots: int, projections: bool) -> tuple[int, int, int]:
    if rows.dim() != 2 or slots < 1 or not rows.shape[1] or rows.shape[1] % slots:
        raise ValueError(f"rows of shape {list(rows.shape)} are not [n, {slots} slots x H]")
    if not rows.is_floating_point():
        raise ValueError(f"rows of {rows.dtype} hold no real numbers")
    if rows.stride(1) != 1 and rows.shape[1] > 1:
        raise ValueError(f"rows of strides {list(rows.stride())}: the values of a row must lie side by side")
    return int(rows.shape[0]), slots, columns(projections)
