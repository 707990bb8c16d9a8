"""Readings of the evidence that several rules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from specscope import convention as c

from specscope_server.diagnosis.model import Evidence, Number
from specscope_server.store.model import BoundaryState

SILENT_MIN_S: Final = 15.0
SILENT_HEARTBEATS: Final = 3
GONE_S: Final = 3600.0
"""An engine whose tracer has been silent for longer is taken for ended: nothing is found on it any more."""
PARTIAL_MIN: Final = 8
PARTIAL_SHARE: Final = 0.02
"""A boundary that was crossed at all counts as short from 8 missing crossings and 2 % of the expected on."""


@dataclass(frozen=True, slots=True)
class Line:
    """Expected and observed crossings of one (boundary, source), and the span of time they cover."""

    boundary: str
    source: str
    expected: int
    observed: int
    graph: int
    span: str

    @property
    def silent(self) -> bool:
        """Say whether it was expected and never crossed."""
        return self.expected > 0 and self.observed == 0

    @property
    def short(self) -> bool:
        """Say whether it was crossed, but clearly less often than expected."""
        missing = self.expected - self.observed
        return self.observed > 0 and missing >= max(PARTIAL_MIN, PARTIAL_SHARE * self.expected)


def silence_s(evidence: Evidence) -> float | None:
    """Return seconds since the tracer was last heard, by received time; ``None``: never heard."""
    return None if evidence.last_received is None else evidence.now - evidence.last_received


def tracer_silent(evidence: Evidence) -> bool:
    """Say whether the tracer missed three heartbeats (and 15 s): its clock plays no part."""
    silence = silence_s(evidence)
    return silence is None or silence > max(SILENT_MIN_S, SILENT_HEARTBEATS * evidence.heartbeat_s)


def gone(evidence: Evidence) -> bool:
    """Say whether the tracer was never heard, or has been silent for so long that the engine has ended."""
    silence = silence_s(evidence)
    return silence is None or silence > GONE_S


def window_text(evidence: Evidence) -> str:
    """Return the window in words, e.g. ``in the last 5 minutes``."""
    seconds = evidence.window_s
    if seconds >= 120 and seconds % 60 == 0:
        return f"in the last {seconds / 60:.0f} minutes"
    return f"in the last {seconds:.0f} seconds"


def _matching(ledger: Sequence[BoundaryState], boundary: str, source: str) -> list[BoundaryState]:
    return [b for b in ledger if b.boundary == boundary and b.source == source]


def _line(states: Sequence[BoundaryState], span: str) -> Line | None:
    if not states or not all(state.armed for state in states):
        return None
    expected = sum(state.expected for state in states)
    if expected <= 0:
        return None
    return Line(
        states[0].boundary,
        states[0].source,
        expected,
        sum(state.observed_total for state in states),
        sum(state.observed.get(c.GRAPH, 0) for state in states),
        span,
    )


def line(evidence: Evidence, boundary: str, source: str = c.NO_SOURCE) -> Line | None:
    """Return what the ledger says of a boundary; ``None`` where it can say nothing.

    It can say something only where the boundary is armed and was expected. In a window without engine
    passes, a boundary that was *never* crossed since the start still says what the last passes showed:
    an idle engine does not heal.
    """
    now = _line(_matching(evidence.window, boundary, source), window_text(evidence))
    if now is not None or any(state.expected > 0 for state in evidence.window):
        return now
    ever = _line(_matching(evidence.since_start, boundary, source), "since the engine started")
    return ever if ever is not None and ever.silent else None


def why_no_line(evidence: Evidence, boundary: str) -> str:
    """Say why :func:`line` has nothing on ``boundary``."""
    for state in (*evidence.window, *evidence.since_start):
        if state.boundary == boundary and not state.armed:
            return f"{boundary} cannot be observed here: {state.reason or 'its hook is not installed'}"
    return f"no engine pass {window_text(evidence)} had to cross {boundary}"


def link(evidence: Evidence, boundary: str = "") -> str:
    """Return the path of the engine's page, at ``boundary`` where one is named."""
    return f"/engines/{evidence.engine_uid}" + (f"#boundary-{boundary}" if boundary else "")


def crossings(evidence: Evidence, found: Line) -> Number:
    """Return a line of the ledger as evidence."""
    source = f" ({found.source.replace('_', '-')})" if found.source else ""
    return Number(
        f"{found.boundary}{source} crossed, {found.span}",
        found.observed,
        found.expected,
        "crossings",
        link(evidence, found.boundary),
    )


def examples(evidence: Evidence) -> tuple[Number, ...]:
    """Return up to three requests to look at."""
    return tuple(
        Number("example request", uid, link=f"/requests/{uid}") for uid in evidence.example_requests[:3]
    )


def hook_errors(evidence: Evidence) -> Number | None:
    """Return the tracer's own hook errors as evidence, ``None`` when there were none.

    A hook that failed may have missed crossings, so a count next to errors is no proof.
    """
    total = sum(evidence.hook_errors.values())
    return Number("errors inside hooks since start", total, 0, "errors", link(evidence)) if total else None


def entries(config: Mapping[str, Any], *path: str) -> tuple[Mapping[str, Any], ...]:
    """Return the objects of the list at ``path`` in a configuration; none where there is no list."""
    told: object = setting(config, *path)
    if not isinstance(told, list | tuple):
        return ()
    listed = cast("Sequence[object]", told)
    return tuple(cast("Mapping[str, Any]", one) for one in listed if isinstance(one, Mapping))


def setting(config: Mapping[str, Any], *path: str) -> Any:
    """Return the value at ``path`` in the engine's configuration, ``None`` where there is none."""
    value: Any = config
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(key)
    return value
