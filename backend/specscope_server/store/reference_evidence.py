"""What a reference tells of an engine, as evidence: compared when there is something new, and not too often.

A comparison reads the hidden states of up to 20 requests (:mod:`.reference_answers`), far more than all other
evidence, and an engine is judged every two seconds and by every page that shows it. So it is kept, and shared
by all who ask for the evidence of one window: they agree.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Final

from specscope import convention
from sqlalchemy import Connection, bindparam, func, select

from specscope_server.diagnosis.engine_evidence import Referred
from specscope_server.diagnosis.reference import as_evidence, reference_weights
from specscope_server.store import references, schema
from specscope_server.store.port import Reads
from specscope_server.store.prepared import Prepared
from specscope_server.store.reference_answers import MAX_REQUESTS, of_engine
from specscope_server.store.values import from_ns, to_ns

AGAIN_NS: Final = 15 * 1_000_000_000
"""Least time between two comparisons of one engine over windows of one length, while requests come in."""
MAX_KEPT: Final = 2048
"""Engines and lengths of window that are kept, those asked for last; each takes a few
hundred kilobytes at most, where its draft's states are compared."""
MAX_DRAFT_STATES: Final = 2048
"""Tokens whose draft states, and hand-overs, are told of an engine: those of the newest requests."""
_R, _P, _T = schema.request.c, schema.process.c, schema.step_chunk.c
_BELOW: Final = (convention.DETAIL_SUMMARY, convention.DETAIL_STEPS, convention.DETAIL_TOKENS)
"""Levels without fingerprints; a process that has not told its level may have some."""
_REQUESTS = Prepared(
    select(_R.uid, _R.last_received_ns, _R.arrival_ns)
    .join(schema.process, (_P.engine_uid == _R.engine_uid) & (_P.process_uid == _R.process_uid))
    .where(
        _R.engine_uid == bindparam("engine"),
        _R.arrival_ns >= bindparam("start"),
        _R.kind == convention.KIND_USER,
        *(_P.detail != level for level in _BELOW),
    )
    .order_by(_R.arrival_ns.desc(), _R.uid.desc())
    .limit(MAX_REQUESTS)
)
_NEWEST_CHUNK = Prepared(
    select(func.max(_T.end_ns)).where(_T.engine_uid == bindparam("engine"), _T.end_ns >= bindparam("start"))
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was stored when engines were compared: while it is the same, so is the answer."""

    references: tuple[str, ...]
    requests: tuple[tuple[str, int, int], ...]
    """Uid, when it was last heard of and when it arrived, in ns."""
    newest_chunk: int | None

    @property
    def since_ns(self) -> int:
        """Return when the first of the requests arrived."""
        return min(arrival for _, _, arrival in self.requests)


@dataclass(frozen=True, slots=True)
class _Kept:
    seen: _Seen
    at_ns: int
    told: Referred
    since_ns: int
    """When the first of the compared requests arrived."""


class ReferenceEvidences:
    """The comparisons of all engines of one store. Thread-safe."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._kept: OrderedDict[tuple[str, str, int], _Kept] = OrderedDict()
        self._lock = Lock()
        self._comparing = Lock()

    def of(
        self,
        connection: Connection,
        reads: Reads,
        workspace: str,
        engine_uid: str,
        window: tuple[int, int, int],
    ) -> Referred:
        """Return what references tell of an engine's requests; ``window`` is (start, length, now) in ns.

        ``start`` is in the engine's time. ``reads`` are those of ``connection``. A workspace without a
        reference costs one look-up, and an engine with nothing new three.
        """
        start_ns, length_ns, now_ns = window
        known = references.uids(connection, workspace)
        if not known:
            return Referred()
        where = {"engine": engine_uid, "start": start_ns}
        requests = tuple((row[0], row[1], row[2]) for row in _REQUESTS.rows(connection, where))
        if not requests:
            return Referred()
        seen = _Seen(known, requests, _NEWEST_CHUNK.rows(connection, where)[0][0])
        key = workspace, engine_uid, length_ns
        found = self._still(key, seen, start_ns, now_ns)
        if found is None:
            with self._comparing:  # who comes meanwhile waits for this answer, and does not work it out again
                found = self._still(key, seen, start_ns, now_ns)
                if found is None:
                    found, since_ns = _compared(reads, workspace, engine_uid, start_ns)
                    self._keep(key, _Kept(seen, now_ns, found, min(since_ns, seen.since_ns)))
        return found

    def _still(self, key: tuple[str, str, int], seen: _Seen, start_ns: int, now_ns: int) -> Referred | None:
        """Return what is kept if it may still be told: no request of it may be from before the window."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
        young = 0 <= now_ns - kept.at_ns < AGAIN_NS
        if kept.since_ns < start_ns:
            return None
        same = kept.seen.references == seen.references
        return kept.told if kept.seen == seen or (young and same) else None

    def _keep(self, key: tuple[str, str, int], kept: _Kept) -> None:
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)


def _compared(reads: Reads, workspace: str, engine_uid: str, start_ns: int) -> tuple[Referred, int]:
    """Return what references say, and when the first of the compared requests arrived (ns)."""
    answer = of_engine(reads, workspace, engine_uid, from_ns(start_ns))
    if answer is None or answer.reference is None:
        return Referred(), sys.maxsize
    told = as_evidence((*answer.slots, *answer.by_pass), answer.reference.reference_uid)
    since_ns = sys.maxsize if answer.since is None else to_ns(answer.since)
    weights = reference_weights(answer.reference.facts)
    states, handed = answer.draft_states[:MAX_DRAFT_STATES], answer.hand_overs[:MAX_DRAFT_STATES]
    return Referred(told, states, weights, handed), since_ns
