"""Sums over the draft extends that the newest chunks of a window tell of."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray
from specscope import chunks
from specscope.columns import Array, CodecError
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
_Passes = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Step numbers, and how often fc ran in each."""


def extends(connection: Connection, engine_uid: str, start_ns: int) -> tuple[ExtendEvidence, ...]:
    """Return sums over the newest :data:`MAX_CHUNKS` chunks with draft extends since ``start_ns``.

    A pass over several requests is told by each of them and counted once, by process and step number.
    Passes whose fc could be observed and others make entries of their own.
    """
    passes: dict[_Group, dict[str, list[_Passes]]] = {}
    for chunk in _NEWEST.rows(connection, {"engine": engine_uid, "start": start_ns}):
        try:
            told = _KNOWN.of(chunk.extends)
        except CodecError as error:
            log.warning("request %s: extends of chunk %d cannot be read: %s", chunk.uid, chunk.seq, error)
            continue
        for group, steps in told.items():
            passes.setdefault(group, {}).setdefault(chunk.process_uid, []).append(steps)
    once = {group: [_once(told) for told in processes.values()] for group, processes in passes.items()}
    return tuple(
        ExtendEvidence(
            after=after,
            fed_width=fed_width,
            fc_in=None if fc_in < 0 else fc_in,
            aux_states=None if aux_states < 0 else aux_states,
            passes=sum(number for number, _ in processes),
            fc_ran=None if hidden else sum(ran for _, ran in processes),
        )
        for (after, fed_width, fc_in, aux_states, hidden), processes in sorted(once.items())
    )


def _once(told: Sequence[_Passes]) -> tuple[int, int]:
    """Return how many passes there are of one process, and how often fc ran in them."""
    steps, first = np.unique(np.concatenate([steps for steps, _ in told]), return_index=True)
    return len(steps), int(np.concatenate([ran for _, ran in told])[first].sum())


def _passes_of(blob: bytes, _: int) -> Mapping[_Group, _Passes]:
    """Return the passes of a chunk."""
    told = chunks.extend_width_arrays(blob)
    steps = told["step"].values
    absent = Array(np.full(len(steps), -1), np.zeros(len(steps), np.bool_))
    after, ran = told["after"], told.get("fc_ran", absent)
    if after.texts is None:
        return {}
    ran_known = np.ones(len(steps), np.bool_) if ran.present is None else ran.present
    # An absent value sorts first.
    key = np.column_stack(
        (
            after.values,
            told["fed_width"].values,
            *(_or_less(told.get(name, absent)) for name in ("fc_in", "aux_states")),
            ~ran_known,
        )
    )
    found: dict[_Group, _Passes] = {}
    for values in dict.fromkeys(tuple(row) for row in cast("list[list[int]]", key.tolist())):
        mine = (key == values).all(axis=1)
        name, fed_width, fc_in, aux_states, hidden = values
        runs = np.where(ran_known, ran.values, 0)[mine]
        found[after.texts[name], fed_width, fc_in, aux_states, bool(hidden)] = steps[mine], runs
    return found


def _or_less(column: Array) -> NDArray[np.int64]:
    return column.values if column.present is None else np.where(column.present, column.values, -1)


_KNOWN = Remembered(_passes_of)
