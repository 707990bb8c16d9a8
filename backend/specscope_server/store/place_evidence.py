"""Places of the draft path held against each other, over the newest chunks with fingerprints."""

from __future__ import annotations

import logging

from specscope import hidden
from specscope.columns import CodecError
from specscope.hidden import HiddenRow
from sqlalchemy import Connection, bindparam, func, select

from specscope_server.diagnosis import place_comparison
from specscope_server.diagnosis.engine_evidence import PlaceComparison
from specscope_server.store import schema
from specscope_server.store.prepared import Prepared

log = logging.getLogger(__name__)
MAX_CHUNKS = 6
"""Of a few requests: what changes states on their way changes all of them. Reading them takes some 10 ms a
chunk of 60 passes, and only at detail ``full``."""
_T = schema.step_chunk.c

_NEWEST = Prepared(
    select(_T.uid, _T.process_uid, _T.seq, _T.hidden)
    .where(_T.engine_uid == bindparam("engine"), _T.end_ns >= bindparam("start"), func.length(_T.hidden) > 0)
    .order_by(_T.end_ns.desc(), _T.uid, _T.process_uid, _T.seq)
    .limit(MAX_CHUNKS)
)


def place_evidence(connection: Connection, engine_uid: str, start_ns: int) -> tuple[PlaceComparison, ...]:
    """Return what the newest :data:`MAX_CHUNKS` chunks with hidden states since ``start_ns`` tell.

    Empty where these have no fingerprints (detail below ``full``): then the first chunk alone is unpacked.
    """
    requests: dict[tuple[str, str], list[HiddenRow]] = {}
    for chunk in _NEWEST.rows(connection, {"engine": engine_uid, "start": start_ns}):
        try:
            rows = hidden.unpack(chunk.hidden)
        except CodecError as error:
            log.warning(
                "request %s: hidden states of chunk %d cannot be read: %s", chunk.uid, chunk.seq, error
            )
            continue
        if not any(row.fingerprints for row in rows):
            return _conclude(requests)
        requests.setdefault((chunk.process_uid, chunk.uid), []).extend(rows)
    return _conclude(requests)


def _conclude(requests: dict[tuple[str, str], list[HiddenRow]]) -> tuple[PlaceComparison, ...]:
    held: dict[place_comparison.Key, place_comparison.Held] = {}
    for rows in requests.values():
        for key, one in place_comparison.hold(rows).items():
            held.setdefault(key, place_comparison.Held()).add(one)
    return place_comparison.conclude(held)
