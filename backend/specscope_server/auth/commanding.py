"""What ``specscope user`` and ``specscope token`` share: the database, who types, and how they fail."""

from __future__ import annotations

import getpass
import json
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from specscope_server.auth.model import Act
from specscope_server.auth.names import BadName
from specscope_server.auth.passwords import PasswordError
from specscope_server.cli_parts import fail
from specscope_server.settings import SettingsError, default_database
from specscope_server.store import check, open_store
from specscope_server.store.accounts import Accounts, LastOne
from specscope_server.store.port import StoreError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OpenToAll = Annotated[
    bool, typer.Option("--open", help="Also the last one: then nobody has to sign in any more.")
]


@contextmanager
def accounts_of(database: str, *, make: bool = False) -> Generator[Accounts]:
    """Open a database's users and tokens; end with a message where it, or what was typed, cannot be.

    ``make``: the database is made, or brought up to date, where it is not there; a mistyped name must not do
    so otherwise.
    """
    try:
        url = database or default_database()
        if not make:
            check(url)
        with closing(open_store(url)) as store:
            yield store.accounts
    except LastOne as error:
        fail(f"{error}. Say --open if that is meant", 1)
    except (SettingsError, BadName, PasswordError) as error:
        fail(str(error), 2)
    except StoreError as error:
        fail(str(error), 1)


def typed_by() -> str:
    """Return who types, for the audit trail."""
    try:
        return f"command line ({getpass.getuser()})"
    except (KeyError, OSError):  # a container's user may have no name
        return "command line"


def noted(accounts: Accounts, action: str, what: str, workspace: str = "") -> None:
    """Add what was done to the audit trail."""
    accounts.note(Act(datetime.now(UTC), workspace, typed_by(), action, what))


def when(moment: datetime | None) -> str:
    """Return a time as it is printed."""
    return "never" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%SZ")


def print_rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below the names of their columns."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in (names, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_json(value: Any) -> None:
    """Print an object; times in ISO 8601."""
    typer.echo(json.dumps(value, default=lambda moment: moment.isoformat()))
