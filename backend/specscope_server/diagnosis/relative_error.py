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

    ``distance`` [1 + PROJECTIONS] is |x - y|**2 / H as estimated from all projections, then without each of
    them; ``own_square`` and ``reference_square`` are the mean squares of x and of y.
    """

    tokens: int
    distance: Array
    own_square: float
    reference_square: float

    def __add__(self, other: Sums) -> Sums:
        """Return the sums over both."""
        return Sums(
            self.tokens + other.tokens,
            self.distance + other.distance,
            self.own_square + other.own_square,
            self.reference_square + other.reference_square,
        )

    def estimate(self) -> Estimate | None:
        """Return what follows from them; ``None`` where nothing was compared, or with rows of zeros alone."""
        if self.tokens == 0 or self.reference_square <= 0:
            return None
        relative = self.distance / self.reference_square
        square, each = max(0.0, float(relative[0])), relative[1:]
        # The jackknife: how much it hangs on which projections there are.
        spread = float(np.sqrt((len(each) - 1) / len(each) * ((each - each.mean()) ** 2).sum()))
        error = float(np.sqrt(square))
        return Estimate(
            tokens=self.tokens,
            relative_error=error,
            standard_error=float(np.sqrt(square + spread)) - error,
            scale=float(np.sqrt(self.own_square / self.reference_square)),
        )


NOTHING: Final = Sums(0, np.zeros(1 + hidden.PROJECTIONS), 0.0, 0.0)


def sums(own: tuple[Array, Array], reference: tuple[Array, Array]) -> Sums:
    """Return the sums over pairs of rows, each side as (rms [n], projections [n, PROJECTIONS]).

    Those of ``own`` were rounded to units of 1/16 of the row's rms (:func:`specscope.hidden.restore`).
    """
    squares = np.array([(own[0] ** 2).sum(), (reference[0] ** 2).sum()])
    moments = np.stack(
        [
            # Rounding adds its variance to each squared projection, and to nothing else.
            (own[1] ** 2).sum(axis=0) - hidden.UNIT_VARIANCE * squares[0],
            (reference[1] ** 2).sum(axis=0),
            (own[1] * reference[1]).sum(axis=0),
        ]
    )
    count = moments.shape[1]
    without = (moments.sum(axis=1, keepdims=True) - moments) / (count - 1)
    means = np.concatenate([moments.mean(axis=1, keepdims=True), without], axis=1)
    distance = square_distance(means, squares[:, None])
    return Sums(len(own[0]), distance, float(squares[0]), float(squares[1]))


def of_rows(own: tuple[Array, Array], reference: tuple[Array, Array]) -> Array:
    """Return the relative error of each pair of rows, given as for :func:`sums`; none of y may be zero."""
    squares = np.stack([own[0] ** 2, reference[0] ** 2])
    moments = np.stack(
        [
            (own[1] ** 2).mean(axis=1) - hidden.UNIT_VARIANCE * squares[0],
            (reference[1] ** 2).mean(axis=1),
            (own[1] * reference[1]).mean(axis=1),
        ]
    )
    return np.sqrt(np.maximum(square_distance(moments, squares) / squares[1], 0.0))


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
