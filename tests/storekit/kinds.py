"""The kinds of database that all store tests run on: adding one is adding a line here, and its fixtures."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest
from specscope_server.store.port import Capabilities, Store


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of database, and the fixtures of ``tests/conftest.py`` that make its databases."""

    name: str
    migrated: str
    """Fixture of the address of one with its schema, or of one that gets it when it is opened."""
    empty: str
    """Fixture of the address of one without tables."""
    marks: tuple[pytest.MarkDecorator, ...] = ()


KINDS = (
    Kind("sqlite", "sqlite_url", "sqlite_url"),
    Kind("postgres", "postgres_url", "empty_postgres_url", (pytest.mark.postgres,)),
)


def params() -> list[object]:
    """Return the kinds as parameters of a fixture."""
    return [pytest.param(kind, id=kind.name, marks=kind.marks) for kind in KINDS]


def need(store: Store, capability: str) -> None:
    """Skip the test where the store does not have a capability."""
    assert capability in {field.name for field in fields(Capabilities)}
    if not getattr(store.capabilities, capability):
        pytest.skip(f"this store has no {capability}")
