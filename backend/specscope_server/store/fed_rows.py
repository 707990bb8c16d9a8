"""Where in batches the draft is fed otherwise than the target packed, over the newest chunks of an engine."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from specscope import chunks, hidden
from specscope.columns import CodecError
from sqlalchemy import Connection, bindparam, func, select

from specscope_server.diagnosis import deviation
from specscope_server.diagnosis.engine_evidence import FedRows, PlaceComparison, ReferenceEvidence
from specscope_server.diagnosis.fed_rows import of_request
from specscope_server.store import schema
from specscope_server.store.prepared import Prepared

log = logging.getLogger(__name__)
MAX_CHUNKS = 32
"""Read only of an engine whose states are seen to differ: some 10 ms each. Wrong rows may be few."""
_T = schema.step_chunk.c
_NEWEST = Prepared(
    select(_T.uid, _T.seq, _T.steps, _T.hidden)
    .where(
        _T.engine_uid == bindparam("engine"),
        _T.end_ns >= bindparam("start"),
        func.length(_T.hidden) > 0,
        func.length(_T.steps) > 0,
    )
    .order_by(_T.end_ns.desc(), _T.uid, _T.process_uid, _T.seq)
    .limit(MAX_CHUNKS)
)


def fed_rows(
    connection: Connection,
    engine_uid: str,
    start_ns: int,
    differing: tuple[Sequence[PlaceComparison], Sequence[ReferenceEvidence]],
) -> tuple[FedRows, ...]:
    """Return the rows of the newest chunks since ``start_ns``, by request and place in batches.

    Nothing where ``differing``, what was compared by place and with a reference, shows no difference.
    """
    places, reference = differing
    told = (
        deviation.of_places(places, hidden.FED, hidden.AUX_CAPTURE, deviation.EQUAL),
        deviation.of_reference(reference, hidden.FED, deviation.EQUAL),
    )
    if all(one is None or one.kind == deviation.SAME for one in told):
        return ()
    found: list[FedRows] = []
    for chunk in _NEWEST.rows(connection, {"engine": engine_uid, "start": start_ns}):
        try:
            found += of_request(chunk.uid, hidden.unpack(chunk.hidden), chunks.unpack_steps(chunk.steps))
        except CodecError as error:
            log.warning("request %s: chunk %d cannot be read: %s", chunk.uid, chunk.seq, error)
    return tuple(found)
