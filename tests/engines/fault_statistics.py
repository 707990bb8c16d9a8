"""Numbers that a reader of the wire takes from what the tracer recorded, of one run of some prompts.

Verification is lossless, so that runs of the same prompts have the same tokens whatever the draft is like:
what was recorded at a position of a prompt can be held against what another run recorded there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np
from otlp_receiver import RequestTold
from specscope import convention as c
from specscope import hidden
from specscope.chunks import StepRow
from specscope.hidden import HiddenRow
from specscope_server.diagnosis.relative_error import Array, square_distance

Place = tuple[str, int]
"""A place and its slot; of the carry only what the draft extend leaves has fingerprints."""
At = tuple[str, int]
"""(prompt, position)."""


@dataclass
class Print:
    """One row of hidden states in one slot: its rms, and its projections [8]."""

    rms: float
    projections: Array


@dataclass
class Run:
    """What was recorded of some prompts, by the prompt's name, under one fault or none."""

    fault: str
    requests: dict[str, RequestTold]
    places: dict[Place, dict[At, Print]] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {}
        for prompt, one in self.requests.items():
            for row in _numbers(one.hidden):
                if row.levels is None or row.fingerprints is None:
                    continue
                levels, projections = hidden.restore(row.levels, row.fingerprints)
                into = self.places.setdefault((row.place, row.slot), {})
                for index, (level, each) in enumerate(zip(levels, projections, strict=True)):
                    alive = np.isfinite(level)
                    known = Print(float(level), each) if alive else Print(0.0, np.zeros(hidden.PROJECTIONS))
                    into[prompt, row.position + index] = known

    @property
    def steps(self) -> list[StepRow]:
        return [step for one in self.requests.values() for step in one.counted]

    @property
    def rows(self) -> list[HiddenRow]:
        return [row for one in self.requests.values() for row in one.hidden]


def _numbers(rows: list[HiddenRow]) -> Iterator[HiddenRow]:
    """The rows with their numbers, those that are told as the tensor of another place with that one's."""
    known = {(row.step, row.place, row.slot): row for row in rows if row.same_as is None}
    for row in rows:
        if row.same_as is None:
            yield row
            continue
        yield replace(known[row.step, row.same_as, row.slot], place=row.place)


# --- numbers of one run ---------------------------------------------------------------------------------


def acceptance_length(run: Run) -> float:
    return 1 + sum(step.accepted for step in run.steps) / len(run.steps)


def accepted_first(run: Run) -> float:
    """How often the draft for position 1 is accepted."""
    return fmean(step.accepted > 0 for step in run.steps)


def accepted_next(run: Run) -> float:
    """How often a draft beyond position 1 is accepted, of those whose predecessor was; 0 where none was."""
    reached = sum(min(step.accepted, step.drafted_depth - 1) for step in run.steps)
    return sum(step.accepted - 1 for step in run.steps if step.accepted) / reached if reached else 0.0


def fed_width(run: Run) -> float:
    return fmean(row.fed_width for one in run.requests.values() for row in one.extends)


def fc_runs(run: Run) -> float:
    """Runs of fc in a target-fed pass."""
    return fmean(row.fc_ran or 0 for one in run.requests.values() for row in one.extends)


def maps(run: Run) -> float:
    """Crossings of the map from draft ids to target ids, of those expected."""
    expected = sum(one.expected.get((c.DRAFT_MAP, ""), 0) for one in run.requests.values())
    seen = [
        sum(count for (boundary, _, _), count in one.observed.items() if boundary == c.DRAFT_MAP)
        for one in run.requests.values()
    ]
    return sum(seen) / expected


def highest_id(run: Run) -> float:
    return max(step.ids_max or 0 for step in run.steps)


def even_ids(run: Run) -> float:
    """Share of proposed ids that are even."""
    return fmean(step.ids_even_share or 0.0 for step in run.steps)


def level(place: str, slot: int = 0) -> Callable[[Run], float]:
    """Mean over rows of their rms, in one slot of a place."""

    def of(run: Run) -> float:
        found = run.places.get((place, slot), {})
        return fmean(one.rms for one in found.values()) if found else float("nan")

    return of


def fed_level(run: Run) -> float:
    """Mean over rows of their rms over all slots of what the draft was fed."""
    slots = _slots(run, hidden.FED)
    return fmean(float(np.sqrt(fmean(slot[at].rms ** 2 for slot in slots))) for at in slots[0])


def carry_level(run: Run) -> float:
    """Mean rms of what the draft hands to its own next step, over all draft steps."""
    return fmean(row.rms or 0.0 for row in run.rows if row.place == hidden.CARRY)


def confidence(entropy: bool, later: bool) -> Callable[[Run], float]:
    """Mean entropy (nats) or top-1 probability of the draft, of position 1 or of the ``later`` ones."""

    def of(run: Run) -> float:
        found: list[int] = []
        for step in run.steps:
            values = step.draft_entropy if entropy else step.draft_top1
            if values is not None:
                found += [one for one in (values[1:] if later else values[:1]) if one >= 0]
        return fmean(found) / (1_000 if entropy else 10_000)

    return of


# --- numbers of one run held against another's on the same tokens ---------------------------------------


def error(
    run: Run, healthy: Run, place: str, *, other: str = "", shift: int = 0, alike: bool = False
) -> float:
    """Mean over positions of |x - y| / |y|, estimated from the projections of all slots; NaN: not to be had.

    ``other`` is the place of ``healthy``, ``place`` when none is named; its position is ``shift`` further.
    ``alike``: x is brought to the rms of y first, so that only its direction counts.
    """
    x, y = _slots(run, place), _slots(healthy, other or place)
    if not x or len(x) != len(y):
        return float("nan")
    pairs = [((prompt, position), (prompt, position + shift)) for prompt, position in x[0]]
    pairs = [(a, b) for a, b in pairs if all(a in slot for slot in x) and all(b in slot for slot in y)]
    if not pairs:
        return float("nan")
    own_rms, own = _stacked(x, [a for a, _ in pairs])
    its_rms, its = _stacked(y, [b for _, b in pairs])
    if alike:
        scale = np.sqrt((its_rms**2).sum(axis=1) / (own_rms**2).sum(axis=1))
        own_rms, own = own_rms * scale[:, None], own * scale[:, None, None]
    moments = np.stack(
        [
            # Rounding to whole units adds its variance to each squared projection.
            (own**2).mean(axis=2) - hidden.UNIT_VARIANCE * own_rms**2,
            (its**2).mean(axis=2) - hidden.UNIT_VARIANCE * its_rms**2,
            (own * its).mean(axis=2),
        ]
    )
    squares = np.stack([own_rms**2, its_rms**2])
    # Rows of zeros have no relative error: there is nothing that it would be relative to.
    there = squares[1].sum(axis=1) > 0
    square = square_distance(moments.sum(axis=2), squares.sum(axis=2))[there] / squares[1].sum(axis=1)[there]
    return float(np.sqrt(np.maximum(square, 0.0)).mean()) if there.any() else float("nan")


def _stacked(slots: list[dict[At, Print]], ats: list[At]) -> tuple[Array, Array]:
    """(rms [rows, slots], projections [rows, slots, 8])."""
    rows = [[slot[at] for slot in slots] for at in ats]
    return (
        np.array([[one.rms for one in row] for row in rows]),
        np.array([[one.projections for one in row] for row in rows]),
    )


def _slots(run: Run, place: str) -> list[dict[At, Print]]:
    found: list[dict[At, Print]] = []
    while (place, len(found)) in run.places:
        found.append(run.places[place, len(found)])
    return found


def confidence_error(run: Run, healthy: Run) -> float:
    """Mean difference of the top-1 probability for position 1, over contexts that both runs verified at."""
    there = dict(_first_confidence(healthy))
    both = [(mine, there[at]) for at, mine in _first_confidence(run) if at in there]
    return fmean(abs(mine - its) for mine, its in both) / 10_000 if both else float("nan")


def _first_confidence(run: Run) -> Iterator[tuple[At, int]]:
    for prompt, one in run.requests.items():
        for step in one.counted:
            if step.draft_top1 is not None and step.draft_top1[0] >= 0:
                yield (prompt, step.context), step.draft_top1[0]
