"""Sums over the draft extends that the newest chunks of a window tell of."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from specscope import chunks
from specscope.columns import CodecError
from sqlalchemy import Connection, bindparam, func, select

from specscope_server.diagnosis.model import ExtendEvidence
from specscope_server.store import schema
from specscope_server.store.prepared import Prepared
from specscope_server.store.remembered import Remembered

log = logging.getLogger(__name__)
MAX_CHUNKS = 60
"""Enough for the widths of every boundary; each engine is judged every two seconds."""
_T = schema.step_chunk.c
_NEWEST = Prepared(
    select(_T.uid, _T.process_uid, _T.seq, _T.extends)
    .where(_T.engine_uid == bindparam("engine"), _T.end_ns >= bindparam("start"), func.length(_T.extends) > 0)
    .order_by(_T.end_ns.desc(), _T.uid, _T.process_uid, _T.seq)
    .limit(MAX_CHUNKS)
)
_Group = tuple[str, int, int, int, bool]


def extends(connection: Connection, engine_uid: str, start_ns: int) -> tuple[ExtendEvidence, ...]:
    """Return sums over the newest :data:`MAX_CHUNKS` chunks with draft extends since ``start_ns``.

    A pass over several requests is told by each of them and counted once, by process and step number.
    Passes whose fc could be observed and others make entries of their own.
    """
    passes: dict[_Group, dict[str, dict[int, int]]] = {}
    for chunk in _NEWEST.rows(connection, {"engine": engine_uid, "start": start_ns}):
        try:
            told = _KNOWN.of(chunk.extends)
        except CodecError as error:
            log.warning("request %s: extends of chunk %d cannot be read: %s", chunk.uid, chunk.seq, error)
            continue
        for group, steps in told.items():
            passes.setdefault(group, {}).setdefault(chunk.process_uid, {}).update(steps)
    return tuple(
        ExtendEvidence(
            after=after,
            fed_width=fed_width,
            fc_in=None if fc_in < 0 else fc_in,
            aux_states=None if aux_states < 0 else aux_states,
            passes=sum(map(len, processes.values())),
            fc_ran=None if hidden else sum(sum(steps.values()) for steps in processes.values()),
        )
        for (after, fed_width, fc_in, aux_states, hidden), processes in sorted(passes.items())
    )


def _passes_of(blob: bytes) -> Mapping[_Group, dict[int, int]]:
    """Return the passes of a chunk: runs of fc by step."""
    found: dict[_Group, dict[int, int]] = {}
    for row in chunks.unpack_extend_widths(blob):
        group = (
            row.after,
            row.fed_width,
            _or_less(row.fc_in),
            _or_less(row.aux_states),
            row.fc_ran is None,
        )
        found.setdefault(group, {})[row.step] = row.fc_ran or 0
    return found


def _or_less(value: int | None) -> int:
    """Return a number that sorts an absent value first."""
    return -1 if value is None else value


_KNOWN = Remembered(_passes_of, dict, dict)
