"""Long lines of a figure, thinned so that what stands out stays."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from specscope_frontend.charts import PositionLine

Array = NDArray[np.float64]
MAX_POINTS: Final = 1_200
"""Points of one line at most: about one a pixel on a wide screen."""


def position_line(name: str, positions: Array, values: Array, most: int = MAX_POINTS) -> PositionLine:
    """Return a line of (position, value), positions in order; a value that is not finite has no size.

    Of ``most`` points or more each stretch of neighbours keeps its smallest and its largest one, so that a
    single token that stands out is kept however long the text. Points with a hole between them, one that was
    thinned away too, are of two runs.
    """
    known = np.isfinite(values)
    there, sizes, broken = positions[known], values[known], positions[~known]
    runs = np.cumsum(np.diff(there, prepend=there[:1]) > 1)
    if len(there) > most:
        kept = _ends(sizes, most)
        there, sizes, runs = there[kept], sizes[kept], runs[kept]
    broken = broken[:: max(1, -(-len(broken) // most))]
    return PositionLine(name, _whole(there), sizes.tolist(), runs.tolist(), _whole(broken))


def _ends(values: Array, most: int) -> NDArray[np.int64]:
    """Return in order the indices of the smallest and largest value of each of most / 2 stretches."""
    edges = np.linspace(0, len(values), most // 2 + 1).astype(np.int64)
    ends = [
        start + at
        for start, end in pairwise(edges.tolist())
        for at in (int(np.argmin(values[start:end])), int(np.argmax(values[start:end])))
    ]
    return np.unique(np.array(ends, dtype=np.int64))


def _whole(positions: Array) -> list[int]:
    return positions.astype(np.int64).tolist()
