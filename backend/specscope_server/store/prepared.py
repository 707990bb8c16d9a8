"""Queries that are asked often, compiled once: SQLAlchemy's statement as the text that a driver takes.

To build a statement, to look up what it was compiled to and to lay out its result takes SQLAlchemy several
times as long as the database takes to find a request. So a query is built once for each shape of it (which
filters there are), its values are ``bindparam``s without a value, and each database's text of it is kept.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import Connection, Row, Select
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError

_Values = tuple[Any, ...] | dict[str, Any]
_Rows = Sequence[Row[*tuple[Any, ...]]]


@dataclass(slots=True)
class _Compiled:
    """The text of a query, what arranges its values as the driver wants them, and what makes a row."""

    text: str
    arranged: Callable[[Mapping[str, Any]], _Values]
    made: Callable[[Iterable[Any]], tuple[Any, ...]] | None = None


class Prepared:
    """A query whose rows come as the driver gives them: a type of our own (``JsonText``) is not unpacked."""

    def __init__(self, query: Select[*tuple[Any, ...]]) -> None:
        """Take over a query without expanding parameters (``column.in_(values)``)."""
        self._query: Final = query
        self._by_dialect: dict[str, _Compiled] = {}

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> _Rows:
        """Return all rows, by name and by place; ``values`` by name of parameter, others are left aside.

        Raises:
            KeyError: a parameter has no value.
            DBAPIError: the driver failed.
        """
        dialect = connection.dialect
        found = self._by_dialect.get(dialect.name)
        if found is None:
            # Two threads may do so at once: both come to the same.
            found = self._by_dialect[dialect.name] = _compiled(self._query, dialect)
        arranged = found.arranged(values)
        driver = connection.connection
        try:
            cursor = driver.cursor()
            try:
                # Who watches SQLAlchemy's queries sees these too.
                for told_of in connection.dispatch.before_cursor_execute:
                    told_of(connection, cursor, found.text, arranged, None, False)
                cursor.execute(found.text, arranged)
                told = cursor.fetchall()
                if found.made is None:
                    found.made = _maker(cursor)
            finally:
                cursor.close()
        except dialect.loaded_dbapi.Error as error:
            raise _of_sqlalchemy(error, connection, found.text, arranged) from error
        return cast("_Rows", list(map(found.made, told)))


def _maker(cursor: DBAPICursor) -> Callable[[Iterable[Any]], tuple[Any, ...]]:
    """Return what makes a row of those that a cursor told: a tuple whose numbers have names."""
    names = [column[0] for column in cursor.description or ()]
    # Without a name of its own a column (``count_1``, ``max(x)``) is asked for by its place.
    made = namedtuple("Told", names, rename=True)  # pyright: ignore[reportUntypedNamedTuple] - any query's
    return made._make


def _of_sqlalchemy(error: Exception, connection: Connection, text: str, values: _Values) -> BaseException:
    """Return a driver's error as SQLAlchemy would have told it, so that all that handle errors know it."""
    dialect = connection.dialect
    gone = dialect.is_disconnect(error, connection.connection, None)  # type: ignore[arg-type]
    told = DBAPIError.instance(
        text, values, error, dialect.loaded_dbapi.Error, connection_invalidated=gone, dialect=dialect
    )
    if gone:
        connection.invalidate(error)
    return told


def _compiled(query: Select[*tuple[Any, ...]], dialect: Dialect) -> _Compiled:
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

        return _Compiled(expanded.statement, by_name)

    def by_place(values: Mapping[str, Any]) -> _Values:
        every = {**values, **fixed}
        return tuple([every[name] for name in places])

    return _Compiled(expanded.statement, by_place)
