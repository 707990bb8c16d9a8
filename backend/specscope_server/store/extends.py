"""Sums over the draft extends that the newest chunks of a window tell of."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from specscope import chunks
from specscope.columns import CodecError
from sqlalchemy import Connection, func, select

from specscope_server.diagnosis.model import ExtendEvidence
from specscope_server.store import schema

log = logging.getLogger(__name__)
MAX_CHUNKS = 60
"""Enough for the widths of every boundary; each engine is judged every two seconds."""
_T = schema.step_chunk.c
_Group = tuple[str, int, int, int, bool]


@dataclass(slots=True)
class _Sum:
    passes: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    fc_ran: int = 0


def extends(connection: Connection, engine_uid: str, start_ns: int) -> tuple[ExtendEvidence, ...]:
    """Return sums over the newest :data:`MAX_CHUNKS` chunks with draft extends since ``start_ns``.

    A pass over several requests is told by each of them and counted once, by process and step number.
    Passes whose fc could be observed and others make entries of their own.
    """
    found = connection.execute(
        select(_T.uid, _T.process_uid, _T.seq, _T.extends)
        .where(_T.engine_uid == engine_uid, _T.end_ns >= start_ns, func.length(_T.extends) > 0)
        .order_by(_T.end_ns.desc(), _T.uid, _T.process_uid, _T.seq)
        .limit(MAX_CHUNKS)
    )
    sums: dict[_Group, _Sum] = {}
    for chunk in found:
        try:
            rows = chunks.unpack_extends(chunk.extends)
        except CodecError as error:
            log.warning("request %s: extends of chunk %d cannot be read: %s", chunk.uid, chunk.seq, error)
            continue
        for row in rows:
            group = (
                row.after,
                row.fed_width,
                _or_less(row.fc_in),
                _or_less(row.aux_states),
                row.fc_ran is None,
            )
            total = sums.setdefault(group, _Sum())
            if (chunk.process_uid, row.step) not in total.passes:
                total.passes.add((chunk.process_uid, row.step))
                total.fc_ran += row.fc_ran or 0
    return tuple(
        ExtendEvidence(
            after=after,
            fed_width=fed_width,
            fc_in=None if fc_in < 0 else fc_in,
            aux_states=None if aux_states < 0 else aux_states,
            passes=len(total.passes),
            fc_ran=None if hidden else total.fc_ran,
        )
        for (after, fed_width, fc_in, aux_states, hidden), total in sorted(sums.items())
    )


def _or_less(value: int | None) -> int:
    """Return a number that sorts an absent value first."""
    return -1 if value is None else value
