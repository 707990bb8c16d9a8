"""Where in batches the draft is fed other states than the target packed in the very same passes. Pure.

A copy is a copy: a row is right or wrong by itself, whatever its text, so rows need no reference and no
statistics of acceptance. What spoils states on their way does so in every row of a batch. Where the low rows
are right and the high ones wrong, small batches right and large ones wrong, or eager passes and not those of
captured graphs, a buffer is too small or is not written anew there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from specscope import convention as c
from specscope import hidden
from specscope.chunks import StepRow
from specscope.hidden import HiddenRow
from specscope.rollup import BATCH, MODE, ROW

from specscope_server.diagnosis import deviation, draft_state, relative_error
from specscope_server.diagnosis.engine_evidence import FedRows

MAJORITY: Final = 0.5
"""Share of wrong rows on the side that is wrong: what is not written anew is another text's."""
_AFTER: Final = "verify"

_Key = tuple[int, int, int]
"""(engine step, slot, position)."""


@dataclass(frozen=True, slots=True)
class Cut:
    """In ``dimension``, ``good`` names the side whose rows are copies and ``bad`` that whose rows are not.

    ``same``: requests that were right on the one and wrong on the other. ``certain``: enough of them, so that
    which requests they are is not the cause.
    """

    dimension: str
    good: str
    bad: str
    right: int
    of_good: int
    wrong: int
    of_bad: int
    same: int
    certain: bool
    example: str


def of_request(uid: str, rows: Iterable[HiddenRow], steps: Iterable[StepRow]) -> list[FedRows]:
    """Return what the rows of one request say, by the place in batches that its verify steps ran in."""
    at = {one.step: (one.row, one.batch_size, one.mode) for one in steps}
    fed: dict[_Key, tuple[int, Sequence[int]]] = {}
    packed: dict[_Key, tuple[int, Sequence[int]]] = {}
    counts: dict[tuple[int, int, str], list[int]] = {}
    places = {hidden.FED, hidden.AUX_CAPTURE}
    for row in rows:
        if row.after != _AFTER or row.source != c.TARGET_FED or row.place not in places or row.step not in at:
            continue
        if row.same_as in places:
            counts.setdefault(at[row.step], [0, 0])[0] += row.rows
            continue
        _take(fed if row.place == hidden.FED else packed, row)
    keys = [key for key in fed if key in packed]
    if keys:
        errors = relative_error.of_rows(_numbers(fed, keys), _numbers(packed, keys))
        for key, error in zip(keys, errors, strict=True):
            count = counts.setdefault(at[key[0]], [0, 0])
            count[0] += bool(error < deviation.EQUAL)
            count[1] += bool(error >= deviation.NOTICED)
    return [FedRows(uid, *where, right, wrong) for where, (right, wrong) in counts.items()]


def cut(told: Sequence[FedRows]) -> Cut | None:
    """Return where the draft is fed wrongly and where not; ``None``: it is not, or not by place in batches.

    Of all cuts by row, by batch and by mode the one whose wrong side is wrong most; rows before batches,
    since a high row is one of a large batch.
    """
    found: list[Cut] = []
    by: tuple[tuple[str, Callable[[FedRows], int], Callable[[int], tuple[str, str]]], ...] = (
        (ROW, lambda one: one.row, lambda n: (f"rows below {n}", f"rows {n} and up")),
        (BATCH, lambda one: one.batch, lambda n: (f"batches below {n}", f"batches of {n} up")),
        (MODE, lambda one: int(one.mode == c.GRAPH), lambda _: ("eager passes", "captured graphs")),
    )
    for dimension, value, name in by:
        for n in sorted({value(one) for one in told if one.wrong}):
            low = [one for one in told if value(one) < n]
            shown = _cut(dimension, name(n), low, [one for one in told if value(one) >= n])
            if shown is not None:
                found.append(shown)
    return max(found, key=lambda one: one.wrong / one.of_bad, default=None)


def _cut(
    dimension: str, names: tuple[str, str], good: Sequence[FedRows], bad: Sequence[FedRows]
) -> Cut | None:
    right, of_good = sum(one.right for one in good), sum(one.right + one.wrong for one in good)
    wrong, of_bad = sum(one.wrong for one in bad), sum(one.right + one.wrong for one in bad)
    if of_good < deviation.MIN_ROWS or right < draft_state.SOUND * of_good:
        return None
    hit = sorted({one.request for one in bad if one.wrong})
    if wrong < deviation.MIN_ROWS or wrong < MAJORITY * of_bad or len(hit) < draft_state.MIN_PAIRED:
        return None
    same = len({one.request for one in good if one.right} & set(hit))
    certain = same >= draft_state.MIN_PAIRED
    if not certain and len(hit) < draft_state.MIN_REQUESTS:
        return None
    return Cut(dimension, *names, right, of_good, wrong, of_bad, same, certain, hit[0])


def _take(into: dict[_Key, tuple[int, Sequence[int]]], row: HiddenRow) -> None:
    levels, units = row.levels or (), row.fingerprints or ()
    if len(units) != len(levels) * hidden.PROJECTIONS:
        return
    unknown = sum(level == hidden.NO_LEVEL for level in levels)
    if unknown and unknown != row.zero_rows:
        return  # all zero and not finite look alike
    for index, level in enumerate(levels):
        part = units[index * hidden.PROJECTIONS : (index + 1) * hidden.PROJECTIONS]
        into[row.step, row.slot, row.position + index] = level, part


def _numbers(
    rows: Mapping[_Key, tuple[int, Sequence[int]]], keys: Sequence[_Key]
) -> tuple[relative_error.Array, relative_error.Array]:
    rms, projections = hidden.restore(
        [rows[key][0] for key in keys], [unit for key in keys for unit in rows[key][1]]
    )
    return np.nan_to_num(rms), np.nan_to_num(projections)
