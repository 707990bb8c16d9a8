"""View model of one request's hidden states: the draft path in numbers, along its tokens, and a reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from specscope import convention as c
from specscope import hidden
from specscope.hidden import HiddenRow
from specscope_frontend.charts import PositionLine, by_position
from specscope_frontend.charts.figure import Figure
from specscope_frontend.charts.hidden import MAX_LINES

from specscope_server.diagnosis.reference import EQUAL, SlotComparison
from specscope_server.store import reference_answers
from specscope_server.store.model import BoundaryState
from specscope_server.store.port import Reads
from specscope_server.store.reference_answers import ReferenceAnswer
from specscope_server.web import hidden_places as places
from specscope_server.web.hidden_table import Table, rms_of, sums_of, table
from specscope_server.web.thinning import Array, position_line

MAX_ROWS: Final = 20_000
"""Looks of one page: 400 steps at detail level full are some 8,000."""
_LEVELS: Final = 128 * hidden.PER_OCTAVE
"""Largest level that any float32 has."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a draft step makes of the size of the carry: rms at ``draft_step`` + 1 over that at it."""

    draft_step: int
    middle: float
    least: float
    largest: float
    passes: int


@dataclass(frozen=True, slots=True)
class Against:
    """One place and slot held against the reference: its error as text, and a sentence with its tone."""

    place: str
    which: str
    tokens: int
    error: str
    scale: float | None
    tone: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ReferenceView:
    """The comparison; ``none`` says why there is none."""

    none: str
    name: str
    shared: int
    lines: tuple[Against, ...]
    figure: Figure | None


@dataclass(frozen=True, slots=True)
class HiddenView:
    """The section; ``none`` says why nothing was looked at, empty where something was."""

    none: str
    looks: int
    left_out: int
    table: Table | None
    growth: tuple[Growth, ...]
    figure: Figure | None
    by_token: bool
    not_drawn: int
    reference: ReferenceView | None


def build(
    store: Reads, workspace: str, uid: str, first: int, steps: int, ledger: Sequence[BoundaryState]
) -> HiddenView | None:
    """Return the section for ``steps`` verify steps from ``first`` on; ``None``: there is no such request."""
    found = store.hidden(workspace, uid, first, steps, MAX_ROWS)
    if found is None:
        return None
    rows, detail = found.rows, found.request.detail
    if not rows:
        return HiddenView(_why_none(detail), 0, 0, None, (), None, False, 0, None)
    lines, by_token = position_lines(rows)
    return HiddenView(
        none="",
        looks=len(rows),
        left_out=found.left_out,
        table=table(sums_of(rows), same_tensors(rows), ledger, detail),
        growth=tuple(growth(rows)),
        figure=by_position(lines, says="rms fed to the draft", log=True) if lines else None,
        by_token=by_token,
        not_drawn=max(0, len(lines) - MAX_LINES),
        reference=_reference(reference_answers.of_request(store, workspace, uid, found.request.engine_uid)),
    )


def _why_none(detail: str) -> str:
    if detail == c.DETAIL_SUMMARY:
        return (
            "Hidden states are not looked at at detail level summary; start the engine with "
            "SPECSCOPE_DETAIL=steps to see them."
        )
    return (
        "No look at hidden states was told of the steps shown: every prefill and every n-th engine step is "
        "looked at (SPECSCOPE_SAMPLE_EVERY), each step at detail level full."
    )


def same_tensors(rows: Iterable[HiddenRow]) -> dict[tuple[str, str], dict[str, int]]:
    """Count looks that name another place, by (place, source) and then by the place that they name."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        if row.same_as is not None:
            told = found.setdefault((row.place, row.source), {})
            told[row.same_as] = told.get(row.same_as, 0) + 1
    return found


def growth(rows: Iterable[HiddenRow]) -> list[Growth]:
    """Return how the carry grows from each draft step to the next, over the passes that tell of both."""
    sizes: dict[tuple[int, str, int], float] = {}
    for row in rows:
        rms = rms_of(row)
        if row.place == hidden.CARRY and row.slot == 0 and rms:
            sizes.setdefault((row.step, row.after, row.draft_step), rms)
    ratios: dict[int, list[float]] = {}
    for (step, after, draft_step), size in sizes.items():
        following = sizes.get((step, after, draft_step + 1))
        if following is not None:
            ratios.setdefault(draft_step, []).append(following / size)
    return [
        Growth(draft_step, median(told), min(told), max(told), len(told))
        for draft_step, told in sorted(ratios.items())
    ]


def position_lines(rows: Iterable[HiddenRow]) -> tuple[list[PositionLine], bool]:
    """Return one line a slot of what the draft was fed, and whether any has a size for each token.

    A look without levels is one point, at its first token.
    """
    slots: dict[int, list[tuple[Array, Array]]] = {}
    by_token = False
    for row in rows:
        if row.place != hidden.FED or row.same_as is not None:
            continue
        points = slots.setdefault(row.slot, [])
        if row.levels:
            by_token = True
            levels = np.asarray(row.levels, dtype=np.float64)
            sound = (abs(levels) <= _LEVELS) & (levels != hidden.NO_LEVEL)
            sizes = np.where(sound, np.exp2(np.where(sound, levels, 0.0) / hidden.PER_OCTAVE), np.nan)
            points.append((row.position + np.arange(len(levels), dtype=np.float64), sizes))
        elif row.nonfinite is not None:
            points.append((np.array([float(row.position)]), np.array([rms_of(row) or np.nan])))
    return [_line(slot, points) for slot, points in sorted(slots.items()) if points], by_token


def _line(slot: int, points: Sequence[tuple[Array, Array]]) -> PositionLine:
    # Where two looks tell of one position, the first one counts.
    positions, first = np.unique(np.concatenate([at for at, _ in points]), return_index=True)
    sizes = np.concatenate([told for _, told in points])[first]
    return position_line(f"slot {slot}", positions, sizes)


def _reference(answer: ReferenceAnswer | None) -> ReferenceView | None:
    if answer is None:
        return None
    if answer.code:
        return ReferenceView(answer.reason, "", 0, (), None)
    drawn = [one for one in answer.slots if one.positions and one.place in places.DOES][:MAX_LINES]
    return ReferenceView(
        none="" if answer.slots else "none of its places and slots is one that the reference has",
        name=answer.reference.name if answer.reference else "",
        shared=answer.shared_tokens,
        lines=tuple(_against(one) for one in answer.slots),
        figure=by_position([_errors(one) for one in drawn], says="relative error", log=False)
        if drawn
        else None,
    )


def _errors(one: SlotComparison) -> PositionLine:
    positions, errors = (np.array(told, dtype=np.float64) for told in (one.positions, one.errors))
    known = np.isfinite(errors)
    return position_line(places.short_name(one.place, 0, one.slot), positions[known], errors[known])


def _against(one: SlotComparison) -> Against:
    estimate = one.estimate
    error = "" if estimate is None else f"{estimate.relative_error:.3g} ± {estimate.standard_error:.1g}"
    tone, sentence = _said(one)
    return Against(
        place=one.place,
        which=places.which(one.place, c.TARGET_FED, 0, one.slot),
        tokens=estimate.tokens if estimate else 0,
        error=error,
        scale=estimate.scale if estimate else None,
        tone=tone,
        sentence=sentence,
    )


def _said(one: SlotComparison) -> tuple[str, str]:
    """Return tone and sentence on which of the reference's slots this is, if any."""
    slotted = one.place in places.SLOTTED
    if one.equals is not None:
        if one.equals == one.slot:
            return "ok", f"equals the reference's slot {one.slot}" if slotted else "equals the reference"
        return "bad", f"slot {one.slot} equals the reference's slot {one.equals}, not its slot {one.slot}"
    near = min(((error, shift) for shift, error in one.shifted.items() if error is not None), default=None)
    if near is not None and near[0] < EQUAL:
        way = "before" if near[1] < 0 else "behind"
        return "bad", f"equals the reference's row of the token {way}, not its own"
    told = [(error, slot) for slot, error in enumerate(one.against) if error is not None]
    if not told:
        return "lost", "nothing was compared"
    least, slot = min(told)
    whose = f"its slot {slot}" if slotted else "it"
    return "bad", f"equals no slot of the reference; nearest is {whose}, with a relative error of {least:.3g}"
