"""The fixed random signs of fingerprints: the same on every device, for every dtype and in every version."""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from specscope.hidden import PROJECTIONS

SEED: Final = 0x53504543
STRIDE: Final = 0x9E3779B1
FIRST: Final = 0x7FEB352D
SECOND: Final = 0x846CA68B


def signs(width: int, seed: int = SEED) -> NDArray[np.int8]:
    """Return the signs of the projections, +1 or -1, int8 [PROJECTIONS, width].

    All arithmetic is modulo 2**32: ``h = column * STRIDE + seed``, then ``h ^= h >> 16``, ``h *= FIRST``,
    ``h ^= h >> 15``, ``h *= SECOND``, ``h ^= h >> 16``. Projection j has -1 where bit j of h is set. Columns
    count within the slot.

    Raises:
        ValueError: ``seed`` is no 32-bit number.
    """
    if not 0 <= seed < 1 << 32:
        raise ValueError(f"seed {seed} is not in 0 … 2**32 - 1")
    h = np.arange(width, dtype=np.uint32) * np.uint32(STRIDE) + np.uint32(seed)
    h ^= h >> np.uint32(16)
    h *= np.uint32(FIRST)
    h ^= h >> np.uint32(15)
    h *= np.uint32(SECOND)
    h ^= h >> np.uint32(16)
    bits = (h >> np.arange(PROJECTIONS, dtype=np.uint32)[:, None]) & np.uint32(1)
    return np.where(bits, np.int8(-1), np.int8(1))


@functools.lru_cache(maxsize=32)
def weights(width: int, device: Any) -> Any:
    """Return signs / sqrt(width) as a float32 tensor [width, PROJECTIONS], made once for a device."""
    torch: Any = importlib.import_module("torch")
    scaled = signs(width).T / np.float32(math.sqrt(width))
    made = torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))
    if device.type == "cpu":
        return made
    # From pinned memory and not waited for.
    return made.pin_memory().to(device, non_blocking=True)
