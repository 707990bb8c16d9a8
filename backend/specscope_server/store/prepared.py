"""Queries that are asked often, compiled once: SQLAlchemy's statement as the text that a driver takes.

To build a statement, to look up what it was compiled to and to lay out its result takes SQLAlchemy several
times as long as the database takes to find a request. So a query is built once for each shape of it (which
filters there are), its values are ``bindparam``s without a value, and each database's text of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, Select
from sqlalchemy.engine import Dialect

_Values = tuple[Any, ...] | dict[str, Any]


class Prepared:
    """A query whose rows come as the driver gives them: a type of our own (``JsonText``) is not unpacked."""

    def __init__(self, query: Select[*tuple[Any, ...]]) -> None:
        """Take over a query without expanding parameters (``column.in_(values)``)."""
        self._query: Final = query
        self._by_dialect: dict[str, tuple[str, Callable[[Mapping[str, Any]], _Values]]] = {}

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return all rows; ``values`` of the query's parameters by name, others are left aside.

        Raises:
            KeyError: a parameter has no value.
        """
        dialect = connection.dialect
        found = self._by_dialect.get(dialect.name)
        if found is None:
            # Two threads may do so at once: both come to the same.
            found = self._by_dialect[dialect.name] = _compiled(self._query, dialect)
        text, arranged = found
        return connection.exec_driver_sql(text, arranged(values)).all()


def _compiled(
    query: Select[*tuple[Any, ...]], dialect: Dialect
) -> tuple[str, Callable[[Mapping[str, Any]], _Values]]:
    """Return the text of a query and what arranges its values as the driver wants them."""
    compiled = query.compile(dialect=dialect)
    asked = {name for name, bind in compiled.binds.items() if bind.required}
    # Puts constants of the statement that must be in its text there.
    expanded = compiled.construct_expanded_state(dict.fromkeys(asked))
    fixed = {name: value for name, value in expanded.parameters.items() if name not in asked}
    places = expanded.positiontup
    if places is None:
        names = tuple(expanded.parameters)

        def by_name(values: Mapping[str, Any]) -> _Values:
            every = {**values, **fixed}
            return {name: every[name] for name in names}

        return expanded.statement, by_name

    def by_place(values: Mapping[str, Any]) -> _Values:
        every = {**values, **fixed}
        return tuple([every[name] for name in places])

    return expanded.statement, by_place
