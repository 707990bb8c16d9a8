"""How two tellings of one value become one.

Each merge is written twice, side by side: for the database, which merges with what is stored, and for Python,
which merges what one commit tells of a row several times.

All but two commute and may be repeated: sums, which their caller adds once, and what is told last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specscope import convention
from sqlalchemy import ColumnElement, and_, case, false, literal_column, or_

Value = ColumnElement[Any]


@dataclass(frozen=True, slots=True)
class Merge:
    """(stored value, value told now) to the value to keep, in SQL and in Python."""

    sql: Callable[[Value, Value], Value]
    python: Callable[[Any, Any], Any]


def _larger_sql(stored: Value, told: Value) -> Value:
    # Spelt out: SQLite's ``max`` is NULL as soon as one argument is, PostgreSQL's ``greatest`` is not.
    return case((or_(stored.is_(None), told > stored), told), else_=stored)


def _larger(stored: Any, told: Any) -> Any:
    return told if stored is None or (told is not None and told > stored) else stored


def _smaller_sql(stored: Value, told: Value) -> Value:
    return case((or_(stored.is_(None), told < stored), told), else_=stored)


def _smaller(stored: Any, told: Any) -> Any:
    return told if stored is None or (told is not None and told < stored) else stored


_ENDS: Final = (convention.STATE_ABORTED, convention.STATE_FINISHED)
"""States of a request that stay, the stronger one first."""


def _state_sql(stored: Value, told: Value) -> Value:
    # Written into the statement: they are constants of ours, and no parameter has to be bound for each row.
    ends: list[Value] = [literal_column(f"'{end}'") for end in _ENDS]
    return case(*((or_(stored == end, told == end), end) for end in ends), else_=_larger_sql(stored, told))


def _state(stored: str, told: str) -> str:
    return next((end for end in _ENDS if end in (stored, told)), max(stored, told))


LARGER: Final = Merge(_larger_sql, _larger)
"""The larger one; one that is NULL does not count."""
SMALLER: Final = Merge(_smaller_sql, _smaller)
"""The smaller one; one that is NULL does not count."""
TOLD: Final = Merge(lambda _, told: told, lambda _, told: told)
"""The one told last."""
SUM: Final = Merge(lambda stored, told: stored + told, lambda stored, told: stored + told)
STATE: Final = Merge(_state_sql, _state)
"""Running until an end is told; aborted over finished, so that the order of telling does not matter."""


@dataclass(frozen=True, slots=True)
class Together:
    """Columns kept or replaced as one: replaced where those of ``by``, compared in order, are larger now.

    Where one of ``by`` may be NULL, an earlier one decides alone.
    """

    by: tuple[str, ...]
    carried: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns that are kept or replaced."""
        return (*self.by, *self.carried)

    def replaces_sql(self, stored: Callable[[str], Value], told: Callable[[str], Value]) -> Value:
        """Return the condition that what is told now replaces what is stored."""
        condition: Value = false()
        for name in reversed(self.by):
            larger, same = told(name) > stored(name), told(name) == stored(name)
            condition = larger if name == self.by[-1] else or_(larger, and_(same, condition))
        return condition

    def replaces(self, stored: Sequence[Any], told: Sequence[Any]) -> bool:
        """Say the same of the values of ``by``."""
        for old, new in zip(stored, told, strict=True):
            if old is None or new is None:
                return False
            if old != new:
                return bool(new > old)
        return False
