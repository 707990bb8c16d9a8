"""The speculative path as stations: what each boundary is, what it should have seen, and what it saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from specscope import convention as c

from specscope_server.diagnosis import facts
from specscope_server.store.model import BoundaryState
from specscope_server.web import format as f

BROKEN: Final = "broken"
SHORT: Final = "short"
OK: Final = "ok"
WAITING: Final = "waiting"
UNSEEN: Final = "unseen"
ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True)
class Place:
    """What a boundary is to a newcomer: where it runs, what it does, and what follows when it does not."""

    lane: str
    title: str
    does: str
    without: str


PLACES: Final[dict[str, Place]] = {
    c.AUX_CAPTURE: Place(
        "target",
        "Aux capture",
        "the target hands over hidden states of several of its layers",
        "the draft gets no hidden states of the layers it was trained on",
    ),
    c.DRAFT_EXTEND: Place(
        "draft",
        "Draft extend",
        "the draft runs over the target's hidden states after each target pass",
        "the draft does not follow what the target has read",
    ),
    c.DRAFT_FC: Place(
        "draft",
        "fc projection",
        "fc projects the concatenated hidden states to the draft's width",
        "the draft works on hidden states that were never projected, which it was not trained on",
    ),
    c.DRAFT_FORWARD: Place(
        "draft",
        "Draft forward",
        "the draft's layers run, first on the target's states, then on their own",
        "no draft token is computed",
    ),
    c.DRAFT_MAP: Place(
        "draft",
        "d2t map",
        "draft ids are mapped to the target's vocabulary",
        "draft ids are read as if they were target ids",
    ),
    c.DRAFT_PROPOSE: Place(
        "draft",
        "Propose",
        "the draft's tokens are handed over for verification",
        "the target has nothing to verify",
    ),
    c.TARGET_VERIFY: Place(
        "target",
        "Verify",
        "the target checks all proposed tokens in one pass",
        "proposals are never verified, so none can be accepted",
    ),
    c.ENGINE_COMMIT: Place(
        "engine",
        "Commit",
        "accepted tokens and the bonus token reach the request",
        "verified tokens do not reach the request",
    ),
}
SOURCES: Final = {c.TARGET_FED: "target-fed", c.SELF_FED: "self-fed", c.NO_SOURCE: ""}


@dataclass(frozen=True, slots=True)
class Crossing:
    """One line of a station: crossings of one source."""

    source_key: str
    source: str
    expected: int
    observed: int
    modes: tuple[tuple[str, int], ...]
    state: str
    reason: str
    arming: str = ""
    """State of the tracer's hooks there, as in ``convention.ARMINGS``; empty: not told."""

    @property
    def missing(self) -> int:
        """Return how many expected crossings were not seen."""
        return max(0, self.expected - self.observed)


@dataclass(frozen=True, slots=True)
class Station:
    """One boundary with its crossings; ``sentence`` says what its state means."""

    boundary: str
    place: Place
    state: str
    crossings: tuple[Crossing, ...]
    sentence: str


def crossing(line: BoundaryState, *, exact: bool = False) -> Crossing:
    """Judge one line of a ledger. Where the boundary is not armed nothing is said of a gap.

    An engine's ledger is short by the diagnosis' measure, which allows for passes under way;
    ``exact`` counts each missing crossing, as in the ledger of one request.
    """
    observed = line.observed_total
    allowed = 0 if exact else max(facts.PARTIAL_MIN, facts.PARTIAL_SHARE * line.expected)
    missing = line.expected - observed
    if not line.armed:
        state = UNSEEN
    elif line.expected == 0 and observed == 0:
        state = WAITING
    elif missing > 0 and observed == 0:
        state = BROKEN
    elif missing > 0 and missing >= allowed:
        state = SHORT
    else:
        state = OK
    modes = tuple((mode, n) for mode, n in sorted(line.observed.items()) if n)
    return Crossing(
        line.source,
        SOURCES.get(line.source, line.source),
        line.expected,
        observed,
        modes,
        state,
        line.reason,
        line.arming,
    )


_WORST_FIRST: Final = (BROKEN, SHORT, UNSEEN, OK, WAITING)


def stations(ledger: Sequence[BoundaryState], *, exact: bool = False) -> list[Station]:
    """Return the stations in the order of the path; a boundary the engine never named is ``absent``."""
    return [
        _station(name, [line for line in ledger if line.boundary == name], exact) for name in c.BOUNDARIES
    ]


def _station(boundary: str, lines: list[BoundaryState], exact: bool) -> Station:
    place = PLACES[boundary]
    order = {source: i for i, source in enumerate(c.SOURCES)}
    found = tuple(crossing(line, exact=exact) for line in sorted(lines, key=lambda s: order.get(s.source, 9)))
    if not found:
        return Station(boundary, place, ABSENT, (), "not on this engine's path")
    worst = min(found, key=lambda line: _WORST_FIRST.index(line.state))
    return Station(boundary, place, worst.state, found, _sentence(boundary, place, worst))


def _sentence(boundary: str, place: Place, line: Crossing) -> str:
    name = f"{boundary} ({line.source})" if line.source else boundary
    counts = f"{name}: expected {f.count(line.expected)}, observed {f.count(line.observed)}"
    if line.state == BROKEN:
        return f"{counts}. It never ran: {place.without}."
    if line.state == SHORT:
        return f"{counts}. {f.count(line.missing)} crossings are missing: there, {place.without}."
    if line.state == UNSEEN:
        return f"{name} is not observable: {line.reason or 'the tracer gave no reason'}."
    if line.state == WAITING:
        return f"{name}: no step has needed it yet."
    return f"{counts}: {place.does}."


def gaps(found: Sequence[Station]) -> list[Station]:
    """Return the stations that fell short, in the order given."""
    return [s for s in found if s.state in (BROKEN, SHORT)]
