"""Sums over the verify steps of one chunk, and over chunks: what the evidence of single proposals is made of.

An engine is judged by the newest 60 chunks every few seconds, and most of them are the same as before. So a
chunk's sums are few lines of whole numbers that add up, with a code for what each line counts: lines of 60
chunks take numpy a tenth of a millisecond to add. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from specscope import chunks
from specscope.columns import Array, CodecError
from specscope.rollup import Counts, power_slice

from specscope_server.store.remembered import Remembered

Ints = NDArray[np.int64]
_UNKNOWN: Final = -1
_POWERS: Final = 64
"""Power-of-two slices: of 0, 1, 2-3, ..."""
SHIFTS: Final = len(chunks.SHIFTS)
MAX_PLACES: Final = 256
"""Positions whose certainty is summed; engines draft a dozen at most."""
_MOST: Final = 1 << 40
"""Numbers that are summed are less, or the chunk is no chunk: 60 of them still fit 64 bits."""
SCALE: Final = 1 << 40
"""Sums of real numbers are kept in whole parts of this, so that their order does not matter."""

# Codes of lines, and what stands in the eight numbers of each.
COUNTS: Final = 0
"""All steps, as :class:`Counts`."""
IDS: Final = 1
"""Steps with ids, nodes, mode share, even share (both by SCALE), below zero, above vocabulary."""
IDS_MORE: Final = 2
"""Repeats of the last token, of; outside the draft's vocabulary, of; steps whose ids were recorded."""
HITS: Final = 3
HITS_OF: Final = 4
REFUSED: Final = 5
"""First refused drafts, the target's probability (by SCALE), of; the draft's, of."""
SINCE_PREFILL: Final = 100
LENGTH: Final = SINCE_PREFILL + _POWERS
UNDRAFTED: Final = LENGTH + _POWERS
"""Steps that drafted nothing by power-of-two slice of their context."""
AFTER: Final = UNDRAFTED + _POWERS
AFTERS: Final = ("first", "none", "some", "all")
PLACE: Final = AFTER + len(AFTERS)
"""By position: steps, top-1 in 1/10000, entropy in 1/1000 nat, drafted, accepted."""
VERSION: Final = 1 << 48
"""By weight version, of either sign, which is added."""

_SUMMED: Final = (
    *("drafted_depth", "drafted_nodes", "accepted", "bonus", "committed", "overshoot", "context"),
    *("weight_version", "ids_below_zero", "ids_above_vocab", "ids_repeats_last", "outside_draft_vocab"),
    *("shift_hits", "shift_of", "draft_top1", "draft_entropy", "target_rank"),
)
_COLUMNS: Final = frozenset(
    {
        *_SUMMED,
        *("ids_min", "ids_max", "ids_mode_share", "ids_even_share", "target_prob", "draft_prob"),
        "draft_tokens",
    }
)


@dataclass(frozen=True, slots=True)
class StepSums:
    """What the steps of one chunk add up to; nobody changes it.

    ``lines`` are rows of a code and eight numbers, in order of their codes, the first of code
    :data:`COUNTS`. ``ranks`` are the ranks of first refused drafts, ``ids`` all proposed ids where they were
    recorded, ``smallest`` and ``largest`` of the ids of all steps (``None``: none is known).
    """

    lines: Ints
    ranks: Ints
    ids: Ints
    smallest: int | None
    largest: int | None


@dataclass(frozen=True, slots=True)
class Added:
    """The sum over chunks: numbers by code."""

    lines: Mapping[int, Sequence[int]]

    def of(self, code: int) -> Sequence[int]:
        """Return the eight numbers of a code."""
        return self.lines.get(code, (0,) * 8)

    def powers(self, base: int) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield numbers by power-of-two slice, from the smallest."""
        for power in range(_POWERS):
            if (found := self.lines.get(base + power)) is not None:
                yield power_slice((1 << power) >> 1), found

    def places(self) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield numbers by position."""
        return ((code - PLACE, told) for code, told in self.lines.items() if PLACE <= code < VERSION >> 1)

    def versions(self) -> dict[int, Counts]:
        """Return counts by weight version."""
        return {code - VERSION: Counts(*told) for code, told in self.lines.items() if code >= VERSION >> 1}


def sums_of(blob: bytes, first_step: int) -> StepSums:
    """Return the sums over a chunk whose first step is the ``first_step``-th of its request.

    A step that ran after the request had ended counts nowhere.

    Raises:
        CodecError: the chunk cannot be read, or holds a number that no engine counts to.
    """
    return _KNOWN.of(blob, first_step)


def added(told: Iterable[StepSums]) -> Added:
    """Return the sum over chunks, of which there is at least one."""
    codes, sums = _grouped(np.concatenate([one.lines for one in told]))
    return Added(dict(zip(codes.tolist(), sums.tolist(), strict=True)))


def add_up(columns: Mapping[str, Array], first_step: int) -> StepSums:
    """Return the sums over steps, as :func:`sums_of`.

    Raises:
        CodecError: a number is beyond what can be summed.
    """
    _check(columns, first_step)
    ran_after = columns["overshoot"].values
    index = np.arange(first_step, first_step + len(ran_after), dtype=np.int64)
    counted = ran_after == 0
    steps, index = _Steps(columns, counted), index[counted]
    drafted, accepted = steps.ints("drafted_depth"), steps.ints("accepted")
    counts = np.stack(
        [
            *(np.ones_like(drafted), drafted, steps.ints("drafted_nodes"), accepted, steps.ints("bonus")),
            *(steps.ints("committed"), (drafted > 0) & (accepted == 0), drafted == 0),
        ],
        axis=1,
    )
    since, length = _powers(index), _powers(steps.ints("context"))
    after = _after(index, drafted, accepted)
    nothing = _counted(UNDRAFTED + length, counts[:, :1])[drafted == 0]
    proposing = _Steps(columns, counted & (columns["drafted_depth"].values != 0))
    known = proposing.has("ids_min") & proposing.has("ids_max")
    codes, sums = _grouped(
        np.concatenate(
            [
                _line(COUNTS, *counts.sum(axis=0)),
                _counted(SINCE_PREFILL + since, counts),
                _counted(LENGTH + length, counts),
                _counted(VERSION + steps.ints("weight_version"), counts),
                _counted(AFTER + after, counts)[after >= 0],
                nothing,
                _ids(proposing, known),
                _ids_more(proposing, known),
                *_shifts(proposing),
                _places(proposing),
                _refused(proposing),
            ]
        )
    )
    told = (codes == COUNTS) | sums.any(axis=1)
    return StepSums(
        np.column_stack((codes, sums))[told],
        proposing.ints("target_rank")[proposing.has("target_rank")],
        proposing.elements("draft_tokens", known),
        int(proposing.ints("ids_min")[known].min()) if known.any() else None,
        int(proposing.ints("ids_max")[known].max()) if known.any() else None,
    )


class _Steps:
    """Columns of the steps that a mask chooses."""

    def __init__(self, columns: Mapping[str, Array], chosen: NDArray[np.bool_]) -> None:
        self._columns, self._chosen = columns, chosen
        self.count = int(chosen.sum())

    def has(self, name: str) -> NDArray[np.bool_]:
        """Say which of them have a value."""
        column = self._columns.get(name)
        if column is None:
            return np.zeros(self.count, np.bool_)
        return np.ones(self.count, np.bool_) if column.present is None else column.present[self._chosen]

    def ints(self, name: str) -> Ints:
        """Return whole numbers, 0 where there is none."""
        column = self._columns.get(name)
        if column is None:
            return np.zeros(self.count, np.int64)
        values = column.values[self._chosen]
        return values if column.present is None else np.where(column.present[self._chosen], values, 0)

    def scaled(self, name: str, of: NDArray[np.bool_]) -> tuple[int, int]:
        """Return the sum (by :data:`SCALE`) of real numbers of some of them, and how many are finite."""
        column = self._columns.get(name)
        if column is None:
            return 0, 0
        told = column.values[self._chosen][of & self.has(name)].astype(np.float64)
        told = told[np.isfinite(told)]
        if told.size and np.abs(told).max() > 16:
            raise CodecError(f"column {name!r} of steps holds {np.abs(told).max()}, which is no share")
        return round(float(told.sum()) * SCALE), told.size

    def lists(self, name: str, width: int) -> tuple[Ints, Ints]:
        """Return the first ``width`` numbers of each list, a row a step, and how many there are of each."""
        column = self._columns.get(name)
        if column is None or column.lengths is None:
            return np.zeros((self.count, width), np.int64), np.zeros(self.count, np.int64)
        starts = (np.cumsum(column.lengths) - column.lengths)[self._chosen]
        lengths = np.minimum(column.lengths[self._chosen], width)
        inside = np.arange(width) < lengths[:, None]
        found = np.zeros((self.count, width), np.int64)
        found[inside] = column.values[(starts[:, None] + np.arange(width))[inside]]
        return found, lengths

    def widest(self, name: str) -> int:
        """Return the length of the longest list."""
        column = self._columns.get(name)
        if column is None or column.lengths is None or not self.count:
            return 0
        return int(column.lengths[self._chosen].max())

    def elements(self, name: str, of: NDArray[np.bool_]) -> Ints:
        """Return the elements of the lists of some of them, one after the other."""
        column = self._columns.get(name)
        if column is None or column.lengths is None:
            return np.zeros(0, np.int64)
        rows = np.zeros(len(self._chosen), np.bool_)
        rows[self._chosen] = of
        return column.values[np.repeat(rows, column.lengths)]


def _check(columns: Mapping[str, Array], first_step: int) -> None:
    """Raise where sums could be wrong: numbers that no engine counts to."""
    for name in _SUMMED:
        column = columns.get(name)
        if column is not None and column.values.size:
            low, high = int(column.values.min()), int(column.values.max())
            if low <= -_MOST or high >= _MOST:
                raise CodecError(f"column {name!r} of steps holds {low if low <= -_MOST else high}, too much")
    if abs(first_step) >= _MOST:
        raise CodecError(f"a chunk whose first step is the {first_step}-th")


def _grouped(lines: Ints) -> tuple[Ints, Ints]:
    """Return the codes that there are, in order, and the sums of their lines."""
    codes = lines[:, 0]
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    return codes[starts], np.add.reduceat(lines[order, 1:], starts, axis=0)


def _line(code: int, *numbers: int) -> Ints:
    return np.array([[code, *numbers, *(0,) * (8 - len(numbers))]], np.int64)


def _counted(codes: Ints, numbers: Ints) -> Ints:
    """Return a line a step."""
    lines = np.zeros((len(codes), 9), np.int64)
    lines[:, 0], lines[:, 1 : 1 + numbers.shape[1]] = codes, numbers
    return lines


def _powers(values: Ints) -> Ints:
    """Return the power-of-two slice of each count: its bits."""
    return np.frexp(np.maximum(values, 0).astype(np.float64))[1].astype(np.int64)


def _after(index: Ints, drafted: Ints, accepted: Ints) -> Ints:
    """Return what came before each step, as an index of :data:`AFTERS`; -1: it is not known."""
    first, none, some, every = range(4)
    told = np.where((drafted == 0) | (accepted == 0), none, np.where(accepted >= drafted, every, some))
    before = np.concatenate((np.full(min(1, len(told)), -1), told[:-1]))
    return np.where(index == 0, first, before)


def _ids(steps: _Steps, known: NDArray[np.bool_]) -> Ints:
    return _line(
        IDS,
        *(int(known.sum()), int(steps.ints("drafted_nodes")[known].sum())),
        *(steps.scaled("ids_mode_share", known)[0], steps.scaled("ids_even_share", known)[0]),
        *(int(steps.ints(f"ids_{where}")[known].sum()) for where in ("below_zero", "above_vocab")),
    )


def _ids_more(steps: _Steps, known: NDArray[np.bool_]) -> Ints:
    repeats, outside = known & steps.has("ids_repeats_last"), steps.has("outside_draft_vocab")
    recorded = known & (steps.lists("draft_tokens", 1)[1] > 0)
    return _line(
        IDS_MORE,
        *(int(steps.ints("ids_repeats_last")[repeats].sum()), int(repeats.sum())),
        *(int(steps.ints("outside_draft_vocab")[outside].sum()), int(outside.sum())),
        int(recorded.sum()),
    )


def _shifts(steps: _Steps) -> list[Ints]:
    (hits, told), (of, of_told) = (steps.lists(name, SHIFTS) for name in ("shift_hits", "shift_of"))
    both = np.arange(SHIFTS) < np.minimum(told, of_told)[:, None]
    return [_line(HITS, *(hits * both).sum(axis=0)), _line(HITS_OF, *(of * both).sum(axis=0))]


def _places(steps: _Steps) -> Ints:
    width = min(MAX_PLACES, steps.widest("draft_top1"), steps.widest("draft_entropy"))
    (top1, told), (entropy, entropy_told) = (
        steps.lists(name, width) for name in ("draft_top1", "draft_entropy")
    )
    place, accepted = np.arange(width), steps.ints("accepted")[:, None]
    least = np.minimum(np.minimum(told, entropy_told), steps.ints("drafted_depth"))
    known = (place < least[:, None]) & (top1 != _UNKNOWN) & (entropy != _UNKNOWN)
    reached = known & (accepted >= place)
    numbers = (known, top1 * known, entropy * known, reached, reached & (accepted > place))
    lines = np.zeros((width, 9), np.int64)
    lines[:, 0] = PLACE + place
    for at, one in enumerate(numbers, start=1):
        lines[:, at] = one.sum(axis=0)
    return lines


def _refused(steps: _Steps) -> Ints:
    refused = steps.has("target_rank")
    return _line(
        REFUSED,
        *(int(refused.sum()), *steps.scaled("target_prob", refused), *steps.scaled("draft_prob", refused)),
    )


def _opened(blob: bytes, first_step: int) -> StepSums:
    return add_up(chunks.step_arrays(blob, _COLUMNS), first_step)


_KNOWN: Final = Remembered(_opened)
