"""The state of each engine in one word with its reason, and the findings that are active on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, cast

from specscope_server.diagnosis import diagnose
from specscope_server.diagnosis.model import (
    CERTAIN,
    CRITICAL,
    INFO,
    OBSERVATION,
    SUSPECTED,
    WARNING,
    Diagnosis,
    Evidence,
    Finding,
    State,
)
from specscope_server.store.model import EngineRow, FindingRow
from specscope_server.store.port import Reads

TONES: Final[Mapping[str, str]] = {
    "faulty": "bad",
    "suspect": "warn",
    "tracer silent": "lost",
    "not observable": "lost",
    "too little data": "off",
    "starting": "off",
    "not drafting": "off",
    "speculation off": "off",
    "ended": "off",
    "health checks only": "off",
    "idle": "off",
    "healthy": "ok",
}
"""Colour of each state; the order is that of who needs a person first."""

SEVERITIES: Final = (CRITICAL, WARNING, INFO)
CONFIDENCES: Final = (CERTAIN, SUSPECTED, OBSERVATION)
SEVERITY_TONES: Final[Mapping[str, str]] = {CRITICAL: "bad", WARNING: "warn"}


def tone(word: str) -> str:
    """Return the tone of a state's word; one that is not known here shows as unknown."""
    return TONES.get(word, "lost")


def urgency(word: str) -> int:
    """Return the sort key: lower needs a person sooner."""
    order = list(TONES)
    return order.index(word) if word in order else 2


@dataclass(frozen=True, slots=True)
class Judged:
    """One engine's evidence and diagnosis, ``evidence`` being ``None`` when the store has no engine."""

    evidence: Evidence | None
    diagnosis: Diagnosis

    @property
    def state(self) -> State:
        """Return the state."""
        return self.diagnosis.state

    @property
    def tone(self) -> str:
        """Return the colour of the state."""
        return tone(self.diagnosis.state.word)


def judge(store: Reads, workspace: str, engine_uid: str, now: datetime, window_s: float) -> Judged:
    """Return evidence and diagnosis of an engine over the ``window_s`` seconds before now."""
    evidence = store.evidence(workspace, engine_uid, now, window_s)
    return Judged(evidence, diagnose(evidence))


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One number of a finding as text."""

    name: str
    value: str
    expected: str
    path: str
    anchor: str


@dataclass(frozen=True, slots=True)
class FindingView:
    """A stored finding with the parts of its body that the pages show."""

    row: FindingRow
    anchor: str
    """What names it within its page."""
    tone: str
    boundary: str
    numbers: tuple[EvidenceLine, ...]
    examples: tuple[str, ...]
    ruled_out: tuple[tuple[str, str], ...]
    next_check: str
    fix: str


def finding_view(row: FindingRow) -> FindingView:
    """Unpack a stored finding; a body of another version shows what it has."""
    body = row.body
    numbers, boundary = _mappings(body.get("numbers")), str(body.get("boundary", ""))
    examples = [n for n in numbers if str(n.get("link") or "").startswith("/requests/")]
    return FindingView(
        row,
        f"finding-{row.id or f'{row.engine_uid}-{row.kind}-{boundary}'}",
        SEVERITY_TONES.get(row.severity, "off"),
        boundary,
        tuple(_number(n) for n in numbers if n not in examples),
        tuple(str(n.get("link")).removeprefix("/requests/") for n in examples),
        tuple((str(r.get("fault", "")), str(r.get("by", ""))) for r in _mappings(body.get("ruled_out"))),
        str(body.get("next_check", "")),
        str(body.get("fix", "")),
    )


def current(
    judged: Judged, engine: EngineRow, stored: Sequence[FindingRow], now: datetime
) -> tuple[FindingView, ...]:
    """Return the findings of this judgement, root before symptom, so that state and findings say the same.

    ``stored`` are the active findings of the engine: since when one holds is known from them. The evaluator
    stores some seconds after a finding can be read; until then it was opened ``now``.
    """
    known = {(row.kind, str(row.body.get("boundary", ""))): row for row in stored}
    return tuple(
        finding_view(_row(one, engine, known.get((one.kind, one.boundary)), now))
        for one in judged.diagnosis.findings
    )


def _row(finding: Finding, engine: EngineRow, stored: FindingRow | None, now: datetime) -> FindingRow:
    return FindingRow(
        id=stored.id if stored else 0,
        engine_uid=engine.engine_uid,
        engine=engine.name,
        kind=finding.kind,
        fault_class=finding.fault_class,
        severity=finding.severity,
        confidence=finding.confidence,
        title=finding.title,
        sentence=finding.sentence,
        opened=stored.opened if stored else now,
        last_seen=now,
        closed=None,
        body=asdict(finding),
    )


def worst_first(findings: Sequence[FindingView]) -> list[FindingView]:
    """Return findings of several engines in the order that needs a person: worst, then newest."""
    newest = sorted(findings, key=lambda f: f.row.opened, reverse=True)
    return sorted(
        newest, key=lambda f: (_place(SEVERITIES, f.row.severity), _place(CONFIDENCES, f.row.confidence))
    )


def _place(order: Sequence[str], word: str) -> int:
    return order.index(word) if word in order else len(order)


def _mappings(value: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, (list, tuple)):
        return ()
    return [cast("Mapping[str, Any]", v) for v in cast("list[object]", value) if isinstance(v, Mapping)]


def _number(entry: Mapping[str, Any]) -> EvidenceLine:
    unit = str(entry.get("unit") or "")
    path, _, anchor = str(entry.get("link") or "").partition("#")
    ours = path.startswith("/") and not path.startswith("//")
    return EvidenceLine(
        str(entry.get("name", "")),
        _valued(entry.get("value"), unit),
        "" if entry.get("expected") is None else _valued(entry.get("expected"), unit),
        path if ours else "",
        f"#{anchor}" if anchor else "",
    )


def _valued(value: object, unit: str) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        text = str(value)
    elif isinstance(value, int):
        text = f"{value:,}"
    else:
        text = f"{value:,.4g}"
    return f"{text} {unit}".strip()
