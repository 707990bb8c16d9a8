"""The state of each engine in one word with its reason, and the findings that are active on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from specscope_server.diagnosis import diagnose
from specscope_server.diagnosis.model import CRITICAL, WARNING, Diagnosis, Evidence, State
from specscope_server.store.model import FindingRow
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
    numbers = _mappings(body.get("numbers"))
    examples = [n for n in numbers if str(n.get("link") or "").startswith("/requests/")]
    return FindingView(
        row,
        SEVERITY_TONES.get(row.severity, "off"),
        str(body.get("boundary", "")),
        tuple(_number(n) for n in numbers if n not in examples),
        tuple(str(n.get("link")).removeprefix("/requests/") for n in examples),
        tuple((str(r.get("fault", "")), str(r.get("by", ""))) for r in _mappings(body.get("ruled_out"))),
        str(body.get("next_check", "")),
        str(body.get("fix", "")),
    )


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
