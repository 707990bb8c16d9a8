"""What each fault of ``models/tiny/fault-table.md`` must move in what is recorded, by how much, and what not.

Expected numbers are those of the fault table, found in a reference loop on other prompts. Its norms of 128
values are told as rms here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import fault_statistics as f
from specscope import hidden

Measure = Callable[[f.Run, f.Run], float]
"""(a run, a healthy run of the same prompts) -> a number."""


def alone(of: Callable[[f.Run], float]) -> Measure:
    return lambda run, healthy: of(run)


def against(place: str, *, other: str = "", shift: int = 0, alike: bool = False) -> Measure:
    return lambda run, healthy: f.error(run, healthy, place, other=other, shift=shift, alike=alike)


LENGTH: Final = "acceptance length"
FIRST: Final = "accepted at position 1"
NEXT: Final = "accepted after an accepted one"
WIDTH: Final = "fed width"
FC_RUNS: Final = "runs of fc in a target-fed pass"
MAPS: Final = "crossings of draft.map, of those expected"
HIGHEST: Final = "highest proposed id"
TOP1: Final = "top-1 at position 1"
ENTROPY: Final = "entropy at position 1"
ENTROPY_LATER: Final = "entropy after it"
SLOT: Final = tuple(f"rms of draft.extend, slot {slot}" for slot in range(3))
WHOLE: Final = "rms of draft.extend, all slots"
FC_OUT: Final = "rms of draft.fc.out"
EMBEDDING: Final = "rms of draft.embedding"
CARRY: Final = "rms of draft.carry"
AUX_ERROR: Final = "error of target.aux_capture"
FED_ERROR: Final = "error of draft.extend"
FED_SHIFTED: Final = "error of draft.extend against the token before"
FED_DIRECTION: Final = "error of draft.extend at equal rms"
FC_OUT_ERROR: Final = "error of draft.fc.out"
EMBEDDING_ERROR: Final = "error of draft.embedding"
CARRY_ERROR: Final = "error of the first draft.carry"
CARRY_FC: Final = "error of the first draft.carry against draft.fc.out"
TOP1_ERROR: Final = "difference of top-1 at position 1"

MEASURES: Final[Mapping[str, Measure]] = {
    LENGTH: alone(f.acceptance_length),
    FIRST: alone(f.accepted_first),
    NEXT: alone(f.accepted_next),
    WIDTH: alone(f.fed_width),
    FC_RUNS: alone(f.fc_runs),
    MAPS: alone(f.maps),
    HIGHEST: alone(f.highest_id),
    TOP1: alone(f.confidence(entropy=False, later=False)),
    ENTROPY: alone(f.confidence(entropy=True, later=False)),
    ENTROPY_LATER: alone(f.confidence(entropy=True, later=True)),
    **{SLOT[slot]: alone(f.level(hidden.FED, slot)) for slot in range(3)},
    WHOLE: alone(f.fed_level),
    FC_OUT: alone(f.level(hidden.FC_OUT)),
    EMBEDDING: alone(f.level(hidden.EMBEDDING)),
    CARRY: alone(f.carry_level),
    AUX_ERROR: against(hidden.AUX_CAPTURE),
    FED_ERROR: against(hidden.FED),
    FED_SHIFTED: against(hidden.FED, shift=-1),
    FED_DIRECTION: against(hidden.FED, alike=True),
    FC_OUT_ERROR: against(hidden.FC_OUT),
    EMBEDDING_ERROR: against(hidden.EMBEDDING),
    CARRY_ERROR: against(hidden.CARRY),
    CARRY_FC: lambda run, healthy: f.error(run, run, hidden.CARRY, other=hidden.FC_OUT),
    TOP1_ERROR: f.confidence_error,
}

AGAINST: Final = {
    name for name in MEASURES if name.startswith(("error of", "difference of")) and name != CARRY_FC
}
"""Those that hold a run against a healthy one of the same tokens: 0 for that one itself."""


@dataclass(frozen=True)
class Moved:
    """A measure that a fault moves to ``value``, give or take ``within``.

    ``times``: both are told as multiples of what a healthy run of the same prompts has.
    """

    measure: str
    value: float
    within: float
    times: bool = False

    def bounds(self, healthy: float) -> tuple[float, float]:
        unit = healthy if self.times else 1.0
        return (self.value - self.within) * unit, (self.value + self.within) * unit


def to(measure: str, value: float, within: float | None = None) -> Moved:
    """``within`` a fifth of the value when nothing else is said: other prompts, and 8 projections a row."""
    return Moved(measure, value, 0.2 * abs(value) if within is None else within)


def times(measure: str, norm: float, healthy: float, within: float = 0.03) -> Moved:
    """What the fault table has as norms: with the fault and without."""
    return Moved(measure, norm / healthy, within * norm / healthy, times=True)


def slots(*norms: float | None) -> tuple[Moved, ...]:
    """Norms of what the draft is fed, slot by slot; ``None`` for one that stays."""
    found = zip(SLOT, norms, (207, 270, 297), strict=True)
    return tuple(times(name, norm, healthy) for name, norm, healthy in found if norm is not None)


TARGETS: Final = (AUX_ERROR, FED_ERROR, FC_OUT_ERROR)
"""What the draft was fed and what fc made of it."""
UNTIL_HEAD: Final = (*TARGETS, EMBEDDING_ERROR, CARRY_ERROR)
"""All that the draft extend computes before its head."""
WIRED: Final = (WIDTH, FC_RUNS, MAPS)
ZERO: Final = 0.02
"""An error that is none: the same numbers rounded to units, in batches of other sizes."""


@dataclass(frozen=True)
class Fault:
    """``length``: acceptance length. ``kept``: measures that stay as they are in a healthy run."""

    length: float
    moved: tuple[Moved, ...]
    kept: tuple[str, ...]


def one_state(length: float, level: float) -> Fault:
    """The draft is fed one state, of which fc is not asked; ``level`` is its rms."""
    return Fault(length, (to(WIDTH, 128, 0), to(FC_RUNS, 0, 0), to(SLOT[0], level)), (EMBEDDING_ERROR, MAPS))


def wrong_map(later: float, *ids: Moved) -> Fault:
    """Right and sure, and never accepted; unsure only of what follows a token that it never meant."""
    moved = (to(FIRST, 0.0, 0.06), to(ENTROPY_LATER, later), *ids)
    return Fault(1.00, moved, (*UNTIL_HEAD, TOP1_ERROR, WIDTH, FC_RUNS))


def wrong_head(top1: float, entropy: float) -> Fault:
    """Right until the head, and unsure."""
    return Fault(1.00, (to(TOP1, top1, 0.06), to(ENTROPY, entropy, 0.5)), (*UNTIL_HEAD, WIDTH, FC_RUNS))


def wrong_states(
    length: float, fed: float, fc_out: float, *levels: Moved, kept: tuple[str, ...] = ()
) -> Fault:
    """As wide as they should be, and others."""
    moved = (to(FED_ERROR, fed), to(AUX_ERROR, fed), to(FC_OUT_ERROR, fc_out), *levels)
    return Fault(length, moved, (*WIRED, EMBEDDING_ERROR, *kept))


def wrong_carry(length: float, following: float, carry: Moved) -> Fault:
    """The first draft as good as ever, and the others not."""
    kept = (*WIRED, *TARGETS, EMBEDDING_ERROR, TOP1_ERROR)
    return Fault(length, (carry, to(NEXT, following, 0.12)), kept)


FAULTS: Final[Mapping[str, Fault]] = {
    "a1": one_state(1.06, 1.38),
    "a2": one_state(1.07, 89.7),
    "b1": wrong_map(3.66, to(HIGHEST, 383, 20)),
    "b2": wrong_map(3.19),
    "b3": wrong_map(3.30, to(HIGHEST, 639, 20), to(MAPS, 0, 0)),
    "b4": wrong_map(3.04),
    "c1": wrong_head(0.13, 4.60),
    "c2": wrong_head(0.11, 4.98),
    "c3": wrong_head(0.16, 4.45),
    "d1": Fault(1.11, (to(EMBEDDING, 0.02, 0.002),), (*WIRED, *TARGETS)),
    "d2": Fault(1.10, (to(EMBEDDING_ERROR, 2**0.5),), (*WIRED, *TARGETS)),
    "d3": Fault(1.18, (to(EMBEDDING, 0, 0), to(EMBEDDING_ERROR, 1, ZERO)), (*WIRED, *TARGETS)),
    "e1": wrong_states(2.29, 0.343, 0.41, *slots(237, 296, 334)),
    "e2": wrong_states(2.18, 0.344, 0.42, *slots(155, 237, 270)),
    "e3": wrong_states(1.42, 2.17, 3.71, to(SLOT[0], 31.3, 1), to(SLOT[1], 40.8, 1.5), to(SLOT[2], 89.7, 5)),
    "f1": wrong_states(1.45, 0.525, 0.81, *slots(297, None, 207), kept=(SLOT[1], WHOLE)),
    "f2": wrong_states(1.45, 0.501, 0.78, *slots(270, 297, 207), kept=(WHOLE,)),
    "f3": wrong_states(1.98, 0.395, 0.53, *slots(270, 207, None), kept=(SLOT[2], WHOLE)),
    "f4": wrong_states(1.96, 0.336, 0.49, *slots(270, None, 270), kept=(SLOT[1],)),
    "i": Fault(
        1.15,
        (to(FC_OUT_ERROR, 1.08), times(FC_OUT, 260, 596, 0.1)),
        (*WIRED, AUX_ERROR, FED_ERROR, EMBEDDING_ERROR),
    ),
    "i2": Fault(
        1.20,
        (to(FC_OUT_ERROR, 1.0, ZERO), to(FC_OUT, 0, 0)),
        (*WIRED, AUX_ERROR, FED_ERROR, EMBEDDING_ERROR),
    ),
    "k1": Fault(
        1.77,
        (to(FED_ERROR, 0.975), to(FED_SHIFTED, 0, ZERO), to(FC_OUT_ERROR, 0.78)),
        (*WIRED, AUX_ERROR, *SLOT, FC_OUT, EMBEDDING_ERROR),
    ),
    "k2": wrong_carry(2.23, 0.40, to(CARRY_FC, 0, ZERO)),
    "k3": wrong_carry(1.83, 0.11, times(CARRY, 16, 586, 0.25)),
    "k4": wrong_carry(1.87, 0.16, to(CARRY, 0, 0)),
    "q": wrong_states(1.30, 0.90, 0.90, *slots(21, 27, 30), kept=(FED_DIRECTION,)),
    "r": Fault(2.60, (to(FED_ERROR, 0.309), to(FC_OUT_ERROR, 0.35)), (*WIRED, AUX_ERROR, EMBEDDING_ERROR)),
}
"""By the letters of the fault table. States of the last layer (a1, a2, e3) are six times as large in the copy
domain as in licences: their numbers are those of the reference loop on the very prompts of the test."""
