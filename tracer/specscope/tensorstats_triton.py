"""The reduction of :mod:`specscope.tensorstats` on CUDA: one launch, one read of the rows.

A program has one slot of some rows, one after the other, each of them in registers from first to last: mean
and variance take two passes over registers, not over memory. The row before is kept as well, so that telling
equal rows apart costs one more read a program. Signs are computed and not read, so a captured graph holds no
pointers but those of its rows and its numbers.

Imported only where there is a CUDA device, or for its tests under ``TRITON_INTERPRET=1``.
"""

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from specscope import signs
from specscope.hidden import PROJECTIONS
from specscope.tensorstats_torch import BIG, SHRINK, on_device

# Names that kernels use must be plain ones of this module, and constants be told to be such.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")
# Triton compiles annotations too, where only its own names and texts will do.
if TYPE_CHECKING:
    constexpr: TypeAlias = Any
else:
    constexpr = tl.constexpr

WIDEST: Final = 1 << 15
"""Values of a slot at most: 32 a thread of the largest program."""
MANY: Final = 2048
"""From so many slots of rows on (15 a multiprocessor of an H200) a program takes several rows, up to 8."""

_SEED = tl.constexpr(signs.SEED)
_STRIDE = tl.constexpr(signs.STRIDE)
_FIRST = tl.constexpr(signs.FIRST)
_SECOND = tl.constexpr(signs.SECOND)
_BIG = tl.constexpr(BIG)
_SHRINK = tl.constexpr(SHRINK)
_INFINITY = tl.constexpr(float("inf"))
_PROJECTIONS = tl.constexpr(PROJECTIONS)


@triton.jit(do_not_specialize=["n", "each"])
def reduce_kernel(
    rows: "Any",
    found: "Any",
    apart: "Any",
    n: "Any",
    each: "Any",
    root: "Any",
    slots: constexpr,
    width: constexpr,
    block: constexpr,
    whole: constexpr,
    columns: constexpr,
) -> None:
    """Reduce ``each`` rows of one slot; ``apart``: numbers from row to row; ``root``: 1 / sqrt(width)."""
    program = tl.program_id(0)
    slot = program % slots
    first = (program // slots) * each
    at = tl.arange(0, block)
    inside = at < width
    sign = at.to(tl.uint32) * _STRIDE + _SEED
    sign = sign ^ (sign >> 16)
    sign = sign * _FIRST
    sign = sign ^ (sign >> 15)
    sign = sign * _SECOND
    sign = sign ^ (sign >> 16)
    origin = rows + slot * width
    last = tl.maximum(first - 1, 0).to(tl.int64)
    before = tl.load(origin + last * apart + at, mask=inside, other=0.0).to(whole, bitcast=True)
    origin += first.to(tl.int64) * apart
    into = found + (first.to(tl.int64) * slots + slot) * columns
    for row in range(first, tl.minimum(first + each, n)):
        raw = tl.load(origin + at, mask=inside, other=0.0)
        bits = raw.to(whole, bitcast=True)
        differ = tl.sum((bits != before).to(tl.int32), 0)
        before = bits
        kept = raw.to(tl.float32)
        finite = tl.abs(kept) < _INFINITY
        kept = tl.where(finite, kept, 0.0)
        # What lies outside is zero, and as finite as zero.
        lost = tl.sum((finite == 0).to(tl.int32), 0)
        peak = tl.max(tl.abs(kept), 0)
        shrink = tl.where(peak >= _BIG, _SHRINK, 1.0)
        grow = 1.0 / shrink
        kept = kept * shrink
        of = tl.maximum(width - lost, 1).to(tl.float32)
        mean = tl.sum(kept, 0) / of
        off = tl.where(inside & finite, kept - mean, 0.0)
        variance = tl.sum(off * off, 0) / of
        tl.store(into, mean * grow)
        tl.store(into + 1, variance * grow * grow)
        tl.store(into + 2, peak)
        tl.store(into + 3, lost.to(tl.float32))
        tl.store(into + 4, ((peak == 0.0) & (lost == 0)).to(tl.float32))
        tl.store(into + 5, ((differ == 0) & (row > 0)).to(tl.float32))
        if columns > 6:
            for j in tl.static_range(_PROJECTIONS):
                turned = tl.where((sign >> j) & 1 == 0, kept, -kept)
                tl.store(into + 6 + j, tl.sum(turned, 0) * root * grow)
        origin += apart
        into += slots * columns


@triton.jit
def combine_kernel(
    found: "Any",
    starts: "Any",
    counts: "Any",
    into: "Any",
    slots: constexpr,
    columns: constexpr,
    block: constexpr,
) -> None:
    """Combine the rows of one request and slot, ``block`` at a time."""
    request = tl.program_id(0)
    slot = tl.program_id(1)
    first = tl.load(starts + request)
    count = tl.load(counts + request)
    at = tl.arange(0, block)
    begin = found + slot * columns
    sums = tl.zeros([block], tl.float32)
    counted = tl.zeros([block], tl.float32)
    peak = tl.zeros([block], tl.float32)
    lost = tl.zeros([block], tl.float32)
    zero = tl.zeros([block], tl.float32)
    equal = tl.zeros([block], tl.float32)
    for done in range(0, count, block):
        row = done + at
        inside = row < count
        values = begin + (first + row) * (slots * columns)
        not_finite = tl.load(values + 3, mask=inside, other=0.0)
        largest = tl.load(values + 2, mask=inside, other=0.0)
        known = inside & ((not_finite == 0.0) | (largest > 0.0))
        sums += tl.load(values, mask=known, other=0.0)
        counted += known.to(tl.float32)
        peak = tl.maximum(peak, largest)
        lost += not_finite
        zero += tl.load(values + 4, mask=inside, other=0.0)
        equal += tl.load(values + 5, mask=inside & (row > 0), other=0.0)
    of = tl.maximum(tl.sum(counted, 0), 1.0)
    mean = tl.sum(sums, 0) / of
    spread = tl.zeros([block], tl.float32)
    for done in range(0, count, block):
        row = done + at
        inside = row < count
        values = begin + (first + row) * (slots * columns)
        not_finite = tl.load(values + 3, mask=inside, other=0.0)
        largest = tl.load(values + 2, mask=inside, other=0.0)
        known = inside & ((not_finite == 0.0) | (largest > 0.0))
        off = tl.where(known, tl.load(values, mask=inside, other=0.0) - mean, 0.0)
        spread += off * off + tl.load(values + 1, mask=known, other=0.0)
    put = into + (request * slots + slot) * 7
    tl.store(put, count.to(tl.float32))
    tl.store(put + 1, mean)
    tl.store(put + 2, tl.sum(spread, 0) / of)
    tl.store(put + 3, tl.max(peak, 0))
    tl.store(put + 4, tl.sum(lost, 0))
    tl.store(put + 5, tl.sum(zero, 0))
    tl.store(put + 6, tl.sum(equal, 0))


_WHOLE: Final = {"torch.bfloat16": tl.int16, "torch.float16": tl.int16, "torch.float32": tl.int32}
_loaded: set[tuple[Any, ...]] = set()


def takes(dtype: Any, width: int) -> bool:
    """Say whether slots of ``width`` values of a dtype can be reduced here."""
    return str(dtype) in _WHOLE and width <= WIDEST


def _kind(rows: Any, slots: int, columns: int, *, aligned: bool) -> tuple[Any, ...]:
    """Return what the compiler makes a kernel of its own for; ``aligned``: the numbers begin at 16 bytes."""
    apart = rows.stride(0)
    of_rows = (rows.dtype, rows.shape[1], apart == 1, apart % 16 == 0, rows.data_ptr() % 16 == 0)
    return rows.device, slots, columns, aligned, *of_rows


def loaded(rows: Any, slots: int, columns: int) -> bool:
    """Say whether the kernel for such rows was launched before: loading one breaks a capture."""
    return _kind(rows, slots, columns, aligned=True) in _loaded


def reduce(rows: Any, found: Any) -> None:
    """Put the statistics of ``rows`` [n, slots x H] into ``found`` [n, slots, columns]. Does not wait."""
    n, slots, columns = found.shape
    width = rows.shape[1] // slots
    block = triton.next_power_of_2(width)
    each = min(8, -(-n * slots // MANY))
    with _on(rows.device):
        reduce_kernel[(-(-n // each) * slots,)](
            rows,
            found,
            rows.stride(0),
            n,
            each,
            width**-0.5,
            slots,
            width,
            block,
            _WHOLE[str(rows.dtype)],
            columns,
            num_warps=min(32, max(1, block // 1024)),
        )
    _loaded.add(_kind(rows, slots, columns, aligned=found.data_ptr() % 16 == 0))


def combine(found: Any, starts: Any, counts: Any) -> Any:
    """Return the statistics of requests, as :func:`specscope.tensorstats.combine`."""
    torch: Any = importlib.import_module("torch")
    made = torch.empty((len(starts), found.shape[1], 7), dtype=torch.float32, device=found.device)
    if len(starts):
        found = found.contiguous()
        first, many = on_device(starts, found.device), on_device(counts, found.device)
        with _on(found.device):
            combine_kernel[(len(starts), found.shape[1])](
                found, first, many, made, found.shape[1], found.shape[2], 128, num_warps=4
            )
    return made


def _on(device: Any) -> contextlib.AbstractContextManager[Any]:
    """Make ``device`` the current one, which Triton launches on."""
    torch: Any = importlib.import_module("torch")
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)
