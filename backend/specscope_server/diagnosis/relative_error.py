"""The relative error sqrt(sum |x - y|**2 / sum |y|**2) of rows x to rows y, from their projections.

|x|**2 and |y|**2 are known (their levels are), and only <x, y> is not. The mean of the projections' squared
differences tells |x - y|**2; what the same projections get wrong about |x|**2 and |y|**2 is taken off again
(control variates), so that a mere change of scale is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from specscope import hidden

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """How far rows are from those of the reference, over ``tokens`` tokens.

    ``relative_error`` is 0 for equal rows, |1 - s| for x = s y; ``standard_error`` is what one standard
    deviation of the projections' luck adds to it; ``scale`` the ratio of the root mean squares.
    """

    tokens: int
    relative_error: float
    standard_error: float
    scale: float


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over pairs of rows, which may be added up over requests.

    Of each projection its squares in the engine, in the reference, and products: [PROJECTIONS]. The mean
    squares of the rows themselves: ``own_square``, ``reference_square``.
    """

    tokens: int
    own: Array
    reference: Array
    both: Array
    own_square: float
    reference_square: float

    def __add__(self, other: Sums) -> Sums:
        """Return the sums over both."""
        return Sums(
            self.tokens + other.tokens,
            self.own + other.own,
            self.reference + other.reference,
            self.both + other.both,
            self.own_square + other.own_square,
            self.reference_square + other.reference_square,
        )

    def estimate(self) -> Estimate | None:
        """Return what follows from them; ``None`` where nothing was compared, or with rows of zeros alone."""
        if self.tokens == 0 or self.reference_square <= 0:
            return None
        count = len(self.own)
        stacked = np.stack([self.own, self.reference, self.both])
        # Each without one projection, then with all: the jackknife tells what their choice did.
        without = (stacked.sum(axis=1, keepdims=True) - stacked) / (count - 1)
        squares = np.array([self.own_square, self.reference_square])
        each = square_distance(without, squares[:, None]) / self.reference_square
        square = float(square_distance(stacked.mean(axis=1), squares)) / self.reference_square
        spread = float(np.sqrt((count - 1) / count * ((each - each.mean()) ** 2).sum()))
        error = float(np.sqrt(max(0.0, square)))
        return Estimate(
            tokens=self.tokens,
            relative_error=error,
            standard_error=float(np.sqrt(max(0.0, square) + spread)) - error,
            scale=float(np.sqrt(self.own_square / self.reference_square)),
        )


_NONE: Final = np.zeros(hidden.PROJECTIONS)
NOTHING: Final = Sums(0, _NONE, _NONE, _NONE, 0.0, 0.0)


def square_distance(moments: Array, squares: Array) -> Array:
    """Return |x - y|**2 / H from means over projections and what is known of the rows.

    ``moments`` [3, ...] are the means of p(x)**2, p(y)**2 and p(x) p(y); ``squares`` [2, ...] those of
    x**2 and y**2. With r the correlation, r / (1 + r**2) of what the first two are off by is what the third
    is off by, best guessed, if rows are random to the signs.
    """
    own, other, both = moments
    scale = np.sqrt(np.maximum(own, 0.0) * np.maximum(other, 0.0))
    correlation = np.clip(np.divide(both, scale, out=np.zeros_like(both), where=scale > 0), -1.0, 1.0)
    weight = correlation / (1 + correlation**2)
    own_known, other_known = squares[0] + np.zeros_like(own), squares[1] + np.zeros_like(other)
    ratio = np.sqrt(np.divide(other_known, own_known, out=np.zeros_like(own), where=own_known > 0))
    inverse = np.divide(1.0, ratio, out=np.zeros_like(own), where=ratio > 0)
    product = both - weight * (ratio * (own - own_known) + inverse * (other - other_known))
    return own_known + other_known - 2 * product
