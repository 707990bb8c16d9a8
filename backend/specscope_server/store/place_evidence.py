"""Places of the draft path held against each other, over the newest chunks with fingerprints."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from specscope import hidden
from specscope.columns import CodecError
from specscope.hidden import HiddenRow
from sqlalchemy import Connection, Row, bindparam, func, select

from specscope_server.diagnosis import place_comparison
from specscope_server.diagnosis.engine_evidence import HandOver, PlaceComparison
from specscope_server.diagnosis.hand_over_pairs import hand_overs
from specscope_server.store import schema
from specscope_server.store.prepared import Prepared

log = logging.getLogger(__name__)
MAX_CHUNKS = 6
"""Of a few requests: what changes states on their way changes all of them. Reading them takes some 10 ms a
chunk of 60 passes, and only at detail ``full``."""
MAX_FIRST = 8
"""First and second chunks of requests that hand-overs are read from, those among the former included: only
these tell what a prefill left, and what the first proposal started from. Chunks close after a second."""
_T = schema.step_chunk.c
_FOUND = (
    select(_T.uid, _T.process_uid, _T.seq, _T.hidden)
    .where(_T.engine_uid == bindparam("engine"), _T.end_ns >= bindparam("start"), func.length(_T.hidden) > 0)
    .order_by(_T.end_ns.desc(), _T.uid, _T.process_uid, _T.seq)
)
_NEWEST = Prepared(_FOUND.limit(MAX_CHUNKS))
_FIRST = Prepared(_FOUND.where(_T.seq <= 1).limit(MAX_FIRST))
_Chunk = Row[*tuple[Any, ...]]
_Requests = dict[tuple[str, str], list[HiddenRow]]
"""By process and request."""


class PlaceEvidence(NamedTuple):
    """What chunks tell of the places of the draft path beside each other."""

    places: tuple[PlaceComparison, ...] = ()
    hand_overs: tuple[HandOver, ...] = ()


def place_evidence(connection: Connection, engine_uid: str, start_ns: int) -> PlaceEvidence:
    """Return what the newest :data:`MAX_CHUNKS` chunks with hidden states since ``start_ns`` tell.

    Empty where these have no fingerprints (detail below ``full``): then the first chunk alone is unpacked.
    """
    where = {"engine": engine_uid, "start": start_ns}
    newest = _NEWEST.rows(connection, where)
    requests = _read(newest)
    if not requests:
        return PlaceEvidence()
    known = {(chunk.process_uid, chunk.uid, chunk.seq) for chunk in newest}
    first = [
        chunk
        for chunk in _FIRST.rows(connection, where)
        if (chunk.process_uid, chunk.uid, chunk.seq) not in known
    ]
    more = {key: rows + requests.get(key, []) for key, rows in _read(first).items()}
    handed = [one for (_, uid), rows in (requests | more).items() for one in hand_overs(rows, uid)]
    return PlaceEvidence(_conclude(requests), tuple(handed))


def _read(chunks: Iterable[_Chunk]) -> _Requests:
    """Return the rows of chunks, up to the first one without fingerprints."""
    requests: _Requests = {}
    for chunk in chunks:
        try:
            rows = hidden.unpack(chunk.hidden)
        except CodecError as error:
            log.warning(
                "request %s: hidden states of chunk %d cannot be read: %s", chunk.uid, chunk.seq, error
            )
            continue
        if not any(row.fingerprints for row in rows):
            break
        requests.setdefault((chunk.process_uid, chunk.uid), []).extend(rows)
    return requests


def _conclude(requests: _Requests) -> tuple[PlaceComparison, ...]:
    held: dict[place_comparison.Key, place_comparison.Held] = {}
    for rows in requests.values():
        for key, one in place_comparison.hold(rows).items():
            held.setdefault(key, place_comparison.Held()).add(one)
    return place_comparison.conclude(held)
