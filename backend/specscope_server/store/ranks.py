"""Ranks of a group held against each other, joined by the engine's step number and never by time."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from specscope import chunks, convention, hidden
from specscope.columns import CodecError
from sqlalchemy import Connection, Row, and_, bindparam, delete, select

from specscope_server.diagnosis.model import RankEvidence
from specscope_server.store import rank_hidden, schema
from specscope_server.store.facts import StoredEngine, StoredProcess
from specscope_server.store.prepared import Prepared
from specscope_server.store.rows import Row as Values

log = logging.getLogger(__name__)
KEPT: Final = 64
"""Records kept of each process, the newest: a minute of a busy engine, up to 16384 steps, about 130 KiB."""
_T = schema.rank_steps.c
_TOLD: Final = Prepared(
    select(_T.process_uid, _T.first_step, _T.size, _T.sums)
    .where(_T.engine_uid == bindparam("engine"))
    .order_by(_T.process_uid, _T.first_step)
)
_Key = tuple[int, int, str]
"""Data-parallel rank, pipeline stage, serving role: ranks that have these in common must agree."""
_Record = Row[*tuple[Any, ...]]
_PLACES: Final = dict(zip(chunks.RANK_LOOKS, (hidden.FED, hidden.FC_OUT), strict=True))
"""Of which place each column tells."""
Sums = tuple[int | None, int | None]
"""Checksum of the proposals and of the accepts of one step."""


def forget(connection: Connection, rows: Iterable[Values]) -> None:
    """Delete all but the newest :data:`KEPT` records of the processes that these rows are of.

    What is newest goes by step number, so that late and doubled records change nothing.
    """
    for engine_uid, process_uid in sorted({(row["engine_uid"], row["process_uid"]) for row in rows}):
        mine = and_(_T.engine_uid == engine_uid, _T.process_uid == process_uid)
        oldest_kept = (
            select(_T.first_step)
            .where(mine)
            .order_by(_T.first_step.desc())
            .offset(KEPT - 1)
            .limit(1)
            .scalar_subquery()
        )
        connection.execute(delete(schema.rank_steps).where(mine, _T.first_step < oldest_kept))


@dataclass(slots=True)
class _Group:
    """Ranks that must agree: the newest process of each tensor-parallel rank, with its steps by number."""

    size: int = 0
    ranks: dict[int, dict[int, Sums]] = field(default_factory=dict[int, dict[int, Sums]])
    looks: dict[str, dict[int, dict[int, tuple[int, ...]]]] = field(
        default_factory=lambda: {name: defaultdict[int, dict[int, tuple[int, ...]]](dict) for name in _PLACES}
    )
    """By column, step and rank."""


def rank_evidence(connection: Connection, engine: StoredEngine) -> tuple[RankEvidence, ...]:
    """Return one entry a group of ranks of which any rank was heard."""
    told: dict[str, list[_Record]] = defaultdict(list)
    for row in _TOLD.rows(connection, {"engine": engine.row.engine_uid}):
        told[row.process_uid].append(row)
    groups: dict[_Key, _Group] = defaultdict(_Group)
    for process in _together([p for p in engine.processes if p.uid in told]):
        group = groups[_key(process)]
        group.size = max(group.size, *(row.size for row in told[process.uid]))
        steps = group.ranks[process.row.tp] = {}
        for step, sums, looks in _steps(told[process.uid]):
            steps[step] = sums
            for name, look in looks.items():
                if look is not None:
                    group.looks[name][step][process.row.tp] = look
    return tuple(_compared(*found, group) for found, group in sorted(groups.items()))


def _key(process: StoredProcess) -> _Key:
    return process.row.dp, process.row.pp, process.row.serving_role


def _together(processes: Sequence[StoredProcess]) -> Iterable[StoredProcess]:
    """Return of each rank its newest process, as far as they ran at the same time.

    An instance that is started again counts its steps anew: a rank of the launch before must not be held
    against one of this launch. Times are the server's, by each process' clock offset.
    """
    groups: dict[_Key, list[StoredProcess]] = defaultdict(list)
    for process in processes:
        groups[_key(process)].append(process)
    for members in groups.values():
        last = max(_started(process) for process in members)
        newest: dict[int, StoredProcess] = {}
        for process in sorted(members, key=_started):
            if _last_heard(process) >= last:
                newest[process.row.tp] = process
        yield from newest.values()


def _started(process: StoredProcess) -> int:
    return process.row.start_ns + (process.row.clock_offset_ns or 0)


def _last_heard(process: StoredProcess) -> int:
    event: int | None = process.row.last_event_ns
    if event is None:
        return process.row.last_received_ns
    return event + (process.row.clock_offset_ns or 0)


def _steps(rows: Iterable[_Record]) -> Iterable[tuple[int, Sums, Mapping[str, tuple[int, ...] | None]]]:
    """Yield (step, checksums, looks by column) of one rank."""
    for row in rows:
        try:
            unpacked = chunks.unpack_ranks(row.sums)
            looks = [chunks.unpack_rank_looks(row.sums, name) for name in _PLACES]
        except CodecError as error:
            log.warning(
                "process %s: its rank steps from %d on cannot be read: %s",
                row.process_uid,
                row.first_step,
                error,
            )
            continue
        for (step, proposals, accepts), *told in zip(unpacked, *looks, strict=True):
            yield step, (proposals, accepts), dict(zip(_PLACES, told, strict=True))


def _compared(dp: int, pp: int, serving_role: str, group: _Group) -> RankEvidence:
    by_step: dict[int, dict[int, Sums]] = defaultdict(dict)
    for tp, steps in group.ranks.items():
        for step, sums in steps.items():
            by_step[step][tp] = sums
    shared = {step: told for step, told in by_step.items() if _comparable(told)}
    proposals = sorted(step for step, told in shared.items() if _differ(told, 0))
    accepts = sorted(step for step, told in shared.items() if _differ(told, 1))
    first = min((*proposals[:1], *accepts[:1]), default=None)
    # Of one step the proposals come first: accepts that differ after them are a consequence.
    boundary = "" if first is None else convention.TARGET_VERIFY
    if first is not None and proposals[:1] == [first]:
        boundary = convention.DRAFT_PROPOSE
    return RankEvidence(
        dp=dp,
        pp=pp,
        size=group.size,
        heard=tuple(sorted(group.ranks)),
        compared=len(shared),
        proposals_compared=sum(_several(told, 0) for told in shared.values()),
        proposals_differ=len(proposals),
        accepts_differ=len(accepts),
        first_step=first,
        boundary=boundary,
        apart=() if first is None else _apart(shared[first], boundary != convention.DRAFT_PROPOSE),
        steps=(min(shared), max(shared)) if shared else None,
        alone=len(by_step) - len(shared),
        serving_role=serving_role,
        hidden=tuple(
            one for name, place in _PLACES.items() for one in rank_hidden.compared(group.looks[name], place)
        ),
    )


def _several(told: Mapping[int, Sums], which: int) -> bool:
    return sum(sums[which] is not None for sums in told.values()) > 1


def _comparable(told: Mapping[int, Sums]) -> bool:
    return _several(told, 0) or _several(told, 1)


def _differ(told: Mapping[int, Sums], which: int) -> bool:
    return len({sums[which] for sums in told.values()} - {None}) > 1


def _apart(told: Mapping[int, Sums], which: int) -> tuple[int, ...]:
    """Return the ranks that are not with the most; where none are more, all that could be compared."""
    known = {tp: sums[which] for tp, sums in told.items() if sums[which] is not None}
    counts = Counter(known.values()).most_common(2)
    most = counts[0][0] if len(counts) < 2 or counts[0][1] > counts[1][1] else None
    return tuple(sorted(tp for tp, value in known.items() if value != most))
