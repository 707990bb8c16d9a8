"""View model of the request list: a search box, filters that are the URL, pages by keyset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from specscope import convention as c

from specscope_server.store.model import Page, RequestFilter
from specscope_server.store.port import Reads
from specscope_server.web.windows import WINDOWS

PAGE_SIZE: Final = 50
FLAGS: Final[Mapping[str, str]] = {
    "zero_acceptance": "nothing accepted",
    "gap": "boundary short",
    "unfinished": "unfinished",
}
KINDS: Final[Mapping[str, str]] = {
    c.KIND_USER: "user",
    c.KIND_HEALTH_CHECK: "health check",
    c.KIND_WARMUP: "warm-up",
    "any": "any kind",
}
STATES: Final = (*c.REQUEST_STATES, "lost")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the URL asks for, as text; empty is not asked."""

    q: str = ""
    engine: str = ""
    model: str = ""
    state: str = ""
    kind: str = ""
    flag: str = ""
    window: str = ""
    min_length: str = ""
    max_length: str = ""
    cursor: str = ""

    def query(self, **changes: str) -> dict[str, str]:
        """Return the query of the same view with changes; a change drops the cursor unless it sets it."""
        wanted = {name: getattr(self, name) for name in self.__slots__ if name != "cursor"}
        return {name: value for name, value in (wanted | changes).items() if value}


@dataclass(frozen=True, slots=True)
class RequestList:
    """The whole page. ``problem`` says what part of the URL was not understood."""

    asked: Asked
    page: Page
    problem: str
    engines: Sequence[tuple[str, str]]
    models: Sequence[str]
    filtered: bool
    kind: str
    states: Sequence[str] = STATES
    kinds: Mapping[str, str] = field(default_factory=lambda: KINDS)
    flags: Mapping[str, str] = field(default_factory=lambda: FLAGS)


def build(
    store: Reads, workspace: str, asked: Asked, now: datetime, named: Sequence[str] = ()
) -> RequestList:
    """Read the store and return the page; what cannot be understood is said, never guessed.

    ``named`` are the parameters of the URL: a mistyped filter would show everything.
    """
    problems = [
        f"There is no filter {name[:40]!r}; known: {', '.join(asked.__slots__)}."
        for name in dict.fromkeys(named)
        if name not in (*asked.__slots__, "workspace")
    ][:5]
    # A search by id finds every kind; a list without one leaves health checks and warm-ups out.
    kind = asked.kind or ("any" if asked.q else c.KIND_USER)
    window = next((w for w in WINDOWS if w.key == asked.window), None)
    if asked.window and window is None:
        problems.append(f"There is no time window {asked.window!r}.")
    where = RequestFilter(
        workspace=workspace,
        text=asked.q.strip() or None,
        engine_uid=asked.engine or None,
        model=asked.model or None,
        state=_one_of(asked.state, STATES, "state", problems),
        kind=None if kind == "any" else _one_of(kind, KINDS, "kind", problems),
        flag=_one_of(asked.flag, FLAGS, "flag", problems),
        since=window.since(now) if window else None,
        min_acceptance_length=_number(asked.min_length, "smallest acceptance length", problems),
        max_acceptance_length=_number(asked.max_length, "largest acceptance length", problems),
    )
    try:
        page = store.requests(where, PAGE_SIZE, asked.cursor or None)
    except ValueError:
        problems.append("This page's cursor is not one of ours; showing the newest.")
        page = store.requests(where, PAGE_SIZE)
    return RequestList(
        asked,
        page,
        " ".join(problems),
        [(row.engine_uid, row.name) for row in store.engines(workspace, now)],
        store.models(workspace),
        bool(asked.query()),
        kind,
    )


def _one_of(
    value: str, known: Sequence[str] | Mapping[str, str], what: str, problems: list[str]
) -> str | None:
    if not value or value in known:
        return value or None
    problems.append(f"There is no {what} {value!r}; known: {', '.join(known)}.")
    return None


def _number(value: str, what: str, problems: list[str]) -> float | None:
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if 0 <= number <= 1e6:
        return number
    problems.append(f"The {what} must be a number from 0 on, not {value!r}.")
    return None
