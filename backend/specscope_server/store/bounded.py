"""Tables of what other tools send: bounded per trace and per workspace, so that none can fill the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, Connection, Table, and_, delete, func, or_, select, tuple_

_AT_ONCE: Final = 500
"""Traces counted with one query: an export may hold hundreds of thousands."""


@dataclass(frozen=True)
class Bounded:
    """A table keyed (workspace, trace id, ``name``), of which ``by`` tells the order within a trace."""

    table: Table
    name: str
    by: str

    def forget(
        self, connection: Connection, rows: Iterable[Mapping[str, Any]], of_trace: int, of_workspace: int
    ) -> None:
        """Delete what is beyond the bounds in the traces and workspaces that these rows are of.

        Of a trace the first ``of_trace`` stay, of a workspace the ``of_workspace`` received last.
        """
        traces = sorted({(row["workspace"], row["trace_id"]) for row in rows})
        for trace in self._too_long(connection, traces, of_trace):
            self._shorten(connection, trace, of_trace)
        for workspace in sorted({workspace for workspace, _ in traces}):
            self._drop_oldest(connection, workspace, of_workspace)

    def _shorten(self, connection: Connection, trace: tuple[str, str], most: int) -> None:
        columns = self.table.c
        by, name = columns[self.by], columns[self.name]
        mine = and_(columns.workspace == trace[0], columns.trace_id == trace[1])
        order = select(by, name).where(mine).order_by(by, name)
        last = connection.execute(order.offset(most - 1).limit(1)).first()
        if last is not None:
            later = or_(by > last[0], and_(by == last[0], name > last[1]))
            connection.execute(delete(self.table).where(mine, later))

    def _drop_oldest(self, connection: Connection, workspace: str, most: int) -> None:
        columns = self.table.c
        mine = columns.workspace == workspace
        # By the whole order: one export, received at one time, may hold more than is kept.
        order: tuple[Column[Any], ...] = (columns.received_ns, columns.trace_id, columns[self.name])
        oldest = connection.execute(
            select(*order).where(mine).order_by(*(column.desc() for column in order)).offset(most).limit(1)
        ).first()
        if oldest is not None:
            connection.execute(delete(self.table).where(mine, tuple_(*order) <= tuple_(*oldest)))

    def _too_long(
        self, connection: Connection, traces: Sequence[tuple[str, str]], most: int
    ) -> Iterator[tuple[str, str]]:
        """Yield the traces that hold more than is kept of one."""
        columns = self.table.c
        for start in range(0, len(traces), _AT_ONCE):
            part = traces[start : start + _AT_ONCE]
            for workspace in sorted({name for name, _ in part}):
                ids = [trace_id for name, trace_id in part if name == workspace]
                found = connection.execute(
                    select(columns.trace_id)
                    .where(columns.workspace == workspace, columns.trace_id.in_(ids))
                    .group_by(columns.trace_id)
                    .having(func.count() > most)
                ).scalars()
                yield from [(workspace, trace_id) for trace_id in found]
