"""What one tensor of a model holds: moments, oddities and a hash, from all of it or from a fixed sample.

Reading is bounded: of a tensor with more than :data:`MAX_READ` elements only every n-th is read, n being a
function of the shape alone, so that two tensors of one shape are always sampled alike and their hashes can
be compared. A hash of a sample says that what was sampled is equal, no more.

torch is imported only when a tensor is there: the base install has none.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

MAX_READ: Final = 1 << 18
"""Elements read of one tensor. A million bytes of float32: below a millisecond on one core."""

HASH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Values:
    """Facts of a tensor over its ``read`` elements (of ``elements``); ``None`` where they cannot be told.

    ``mean``, ``std`` (of the population) and ``max_abs`` leave non-finite elements out and are ``None``
    where none is left; ``nonfinite`` and ``zeros`` count elements; ``hash`` is 16 hex digits over type,
    shape and the bytes read.
    """

    elements: int
    read: int
    mean: float | None
    std: float | None
    max_abs: float | None
    nonfinite: int | None
    zeros: int | None
    hash: str


def stride_of(shape: Sequence[int], most: int = MAX_READ) -> int:
    """Return n where every n-th element is read: the least that keeps to ``most`` and meets each column.

    A stride that shares a factor with the last dimension would read some columns only.
    """
    elements = math.prod(shape)
    stride = max(1, -(-elements // most))
    if stride > 1:
        while math.gcd(stride, shape[-1]) != 1:
            stride += 1
    return stride


def values(tensor: Any, most: int = MAX_READ) -> Values:
    """Read a torch tensor. Where it lies on a device this waits for the device: only for loads and updates.

    Raises:
        RuntimeError: torch cannot read it (a meta tensor, memory that was released).
    """
    torch: Any = importlib.import_module("torch")
    with torch.no_grad():
        sample = _sample(tensor.detach(), most).cpu().contiguous()
        raw = sample.view(torch.uint8).numpy().tobytes() if sample.numel() else b""
        digest = hashlib.blake2b(raw, digest_size=HASH_BYTES)
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        return Values(int(tensor.numel()), int(sample.numel()), *_moments(torch, sample), digest.hexdigest())


def _sample(tensor: Any, most: int) -> Any:
    """Return a flat tensor of the elements to read, without a copy of the whole."""
    if tensor.numel() == 0 or tensor.dim() == 0:
        return tensor.reshape(-1)
    stride = stride_of(tensor.shape, most)
    if tensor.is_contiguous():
        return tensor.view(-1)[::stride]
    # Of a transposed tensor whole rows are read: flattening it would copy all of it.
    rows = -(-tensor.shape[0] * most // tensor.numel())
    return tensor[:: max(1, tensor.shape[0] // max(1, rows))].reshape(-1)


def _moments(
    torch: Any, sample: Any
) -> tuple[float | None, float | None, float | None, int | None, int | None]:
    try:
        numbers = sample.to(torch.float32).double()
    except RuntimeError:  # a packed type that torch cannot turn into numbers: the hash still tells changes
        return None, None, None, None, None
    finite = numbers[torch.isfinite(numbers)]
    nonfinite = int(numbers.numel() - finite.numel())
    zeros = int((finite == 0).sum())
    if finite.numel() == 0:
        return None, None, None, nonfinite, zeros
    variance, mean = torch.var_mean(finite, correction=0)
    return float(mean), math.sqrt(float(variance)), float(finite.abs().amax()), nonfinite, zeros
