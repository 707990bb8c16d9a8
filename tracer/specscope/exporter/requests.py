"""What the exporter knows of each request, in bounded memory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from specscope import convention as c
from specscope.chunks import ExtendRow, StepRow
from specscope.exporter.hidden_rows import Part
from specscope.exporter.tokens import TokenStream
from specscope.records import Crossing, Expectation, RequestFinished, RequestStarted

RUNNING: Final = 8192
"""Running requests kept; beyond that the least recently seen is forgotten and counted."""
ENDED: Final = 1024
"""Ended requests kept, for steps that the engine ran after their end."""

Levels = list[set[int]]


@dataclass(slots=True)
class Totals:
    """Running sums over the verify steps of one request, overshoot apart."""

    verify_steps: int = 0
    drafted_depth: int = 0
    drafted_nodes: int = 0
    accepted: int = 0
    bonus: int = 0
    committed: int = 0
    zero_steps: int = 0
    overshoot: int = 0
    prefills: int = 0


@dataclass(slots=True)
class Chunk:
    """Rows since the last chunk span. ``opened_ns`` is the exporter's monotonic clock."""

    opened_ns: int
    first_record: int
    first_step: int
    steps: list[StepRow] = field(default_factory=list[StepRow])
    extends: list[ExtendRow] = field(default_factory=list[ExtendRow])
    drafts: list[tuple[StepRow, Levels, int]] = field(default_factory=list[tuple[StepRow, Levels, int]])
    """Rows whose shift-match waits for later tokens: (row, ids by depth, start in the stream)."""
    hidden: list[Part] = field(default_factory=list[Part])
    hidden_raw: int = 0
    """A bound of the bytes that they take before compression."""
    looked_ns: list[int] = field(default_factory=list[int])
    """Wall clock of the passes whose hidden states are in it."""


@dataclass(slots=True)
class RequestState:
    """One request. ``started`` is ``None`` where its start was not seen (dropped, or evicted since).

    ``whole`` says that every step since its start was seen, so that totals may be told.
    """

    uid: str
    started: RequestStarted | None = None
    finished: RequestFinished | None = None
    whole: bool = True
    first_wall_ns: int = 0
    last_wall_ns: int = 0
    cached: int | None = None
    totals: Totals = field(default_factory=Totals)
    passes: Counter[int] = field(default_factory=Counter[int])
    """How often the request took part in a pass of each kind, see :class:`PassKinds`."""
    stream: TokenStream | None = None
    first: tuple[float | None, float | None] | None = None
    """Top-1 probability and entropy of position 1 of its next proposal, from the draft extend before."""
    chunk: Chunk | None = None
    next_chunk: int = 0
    prompt: bytes | None = None
    """The packed prompt, until it is sent with the first chunk."""
    told_ns: int = -1
    """Exporter's monotonic clock at the last request span; -1: none yet."""
    changed: bool = True

    @property
    def state(self) -> str:
        """Return ``running``, ``finished`` or ``aborted``."""
        return c.STATE_RUNNING if self.finished is None else self.finished.state

    @property
    def kind(self) -> str | None:
        """Return the kind of request, ``None`` where its start was not seen."""
        return None if self.started is None else self.started.kind

    @property
    def counts(self) -> bool:
        """Say whether it counts in rollups: health checks and warm-ups do not."""
        return self.kind not in (c.KIND_HEALTH_CHECK, c.KIND_WARMUP)


class RequestTable:
    """Running requests by last use and the last ended ones."""

    def __init__(self, running: int = RUNNING, ended: int = ENDED) -> None:
        """Keep at most ``running`` and ``ended`` requests."""
        self._running: OrderedDict[str, RequestState] = OrderedDict()
        self._ended: OrderedDict[str, RequestState] = OrderedDict()
        self._limits = (running, ended)
        self.evicted = 0
        """Running requests forgotten because there were too many."""

    def get(self, uid: str) -> RequestState | None:
        """Return a request and mark it as just used."""
        state = self._running.get(uid)
        if state is not None:
            self._running.move_to_end(uid)
            return state
        return self._ended.get(uid)

    def add(self, uid: str) -> tuple[RequestState, RequestState | None]:
        """Return (a new running request, the one that had to go for it)."""
        state = self._running[uid] = RequestState(uid)
        gone = None
        if len(self._running) > self._limits[0]:
            _, gone = self._running.popitem(last=False)
            self.evicted += 1
        return state, gone

    def end(self, state: RequestState) -> None:
        """Move a request to the ended ones."""
        self._running.pop(state.uid, None)
        self._ended[state.uid] = state
        if len(self._ended) > self._limits[1]:
            self._ended.popitem(last=False)

    def __iter__(self) -> Iterator[RequestState]:
        """Iterate over all requests kept."""
        yield from self._running.values()
        yield from self._ended.values()


class PassKinds:
    """Numbers the distinct (expected, crossed) pairs of engine passes.

    There are only a few, so that a request counts passes by number and not crossings one by one.
    """

    LIMIT: Final = 4096
    OTHER: Final = -1

    def __init__(self) -> None:
        """Start empty."""
        self._numbers: dict[
            tuple[frozenset[tuple[Expectation, int]], frozenset[tuple[Crossing, int]]], int
        ] = {}
        self._kinds: list[tuple[dict[Expectation, int], dict[Crossing, int]]] = []

    def number(self, expected: Mapping[Expectation, int], crossed: Mapping[Crossing, int]) -> int:
        """Return the number of this kind of pass; :data:`OTHER` once there are :data:`LIMIT`."""
        key = (frozenset(expected.items()), frozenset(crossed.items()))
        number = self._numbers.get(key)
        if number is None:
            if len(self._kinds) >= self.LIMIT:
                return self.OTHER
            number = self._numbers[key] = len(self._kinds)
            self._kinds.append((dict(expected), dict(crossed)))
        return number

    def sum(self, passes: Mapping[int, int]) -> tuple[Counter[Expectation], Counter[Crossing]]:
        """Return (expected, observed) over ``passes``, a count by number."""
        expected: Counter[Expectation] = Counter()
        observed: Counter[Crossing] = Counter()
        for number, times in passes.items():
            if number == self.OTHER:
                continue
            wanted, crossed = self._kinds[number]
            for key, count in wanted.items():
                expected[key] += count * times
            for crossing, count in crossed.items():
                observed[crossing] += count * times
        return expected, observed
