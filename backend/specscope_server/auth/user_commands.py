"""``specscope user``: who may sign in; works on the database, with or without a server at work on it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from specscope_server.auth import names, passwords, tokens
from specscope_server.auth.commanding import (
    AsJson,
    OpenToAll,
    accounts_of,
    noted,
    print_json,
    print_rows,
    when,
)
from specscope_server.auth.model import ALL_WORKSPACES, ROLES, User
from specscope_server.cli_parts import Database, fail

user = typer.Typer(help="Say who may sign in.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


class RoleName(StrEnum):
    """Roles as they are typed."""

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"


Role = Annotated[
    RoleName,
    typer.Option("--role", help="viewer reads, editor changes what people say, admin manages users, tokens."),
]


@user.command()
def add(
    name: Name,
    role: Role = RoleName.VIEWER,
    workspace: Annotated[
        str, typer.Option("--workspace", help="The only one that the user sees. [default: all]")
    ] = "",
    database: Database = "",
) -> None:
    """Add a user. The password is asked for, or read from standard input; from then on people sign in."""
    with accounts_of(database, make=True) as accounts:
        known = names.user_name(name)
        seen = names.workspace_name(workspace) if workspace else ALL_WORKSPACES
        if accounts.user(known) is not None:
            fail(f"there is a user {known!r} already: specscope user password {known}", 1)
        kept, now = passwords.hashed(_password(), known), datetime.now(UTC)
        accounts.add_user(User(known, ROLES[role], seen, now, now, None, kept, tokens.new_session_key()))
        noted(accounts, "user added", f"{known}, {role}", seen)
    typer.echo(f"{known} may sign in as {role} of {f'workspace {seen!r}' if seen else 'all workspaces'}")


@user.command("list")
def list_(database: Database = "", as_json: AsJson = False) -> None:
    """List who may sign in."""
    with accounts_of(database) as accounts:
        found = accounts.users()
    if as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "role": one.role.word,
                    "workspace": one.workspace or None,
                    "created": one.created,
                    "signed_in": one.signed_in,
                }
                for one in found
            ]
        )
        return
    if not found:
        typer.echo("there is no user: specscope user add NAME --role admin")
        return
    print_rows(
        ("name", "role", "workspace", "created", "signed in"),
        [
            (one.name, one.role.word, one.workspace or "all", when(one.created), when(one.signed_in))
            for one in found
        ],
    )


@user.command()
def remove(name: Name, open_to_all: OpenToAll = False, database: Database = "") -> None:
    """Remove a user; their sessions end."""
    with accounts_of(database) as accounts:
        known = names.user_name(name)
        if not accounts.remove_user(known, open_to_all=open_to_all):
            fail(f"there is no user {known!r}", 1)
        noted(accounts, "user removed", known)
    typer.echo(f"{known} may not sign in any more")


@user.command()
def password(name: Name, database: Database = "") -> None:
    """Set a user's password, asked for or read from standard input; their sessions end."""
    with accounts_of(database) as accounts:
        known = names.user_name(name)
        if accounts.user(known) is None:
            fail(f"there is no user {known!r}", 1)
        changed = {"password": passwords.hashed(_password(), known), "session_key": tokens.new_session_key()}
        accounts.change_user(known, datetime.now(UTC), **changed)
        noted(accounts, "password set", known)
    typer.echo(f"the password of {known} is set; their sessions have ended")


@user.command("role")
def role_(name: Name, role: Role, database: Database = "") -> None:
    """Give a user another role."""
    with accounts_of(database) as accounts:
        known = names.user_name(name)
        if not accounts.change_user(known, datetime.now(UTC), role=role):
            fail(f"there is no user {known!r}", 1)
        noted(accounts, "role set", f"{known}, {role}")
    typer.echo(f"{known} is {role} now")


def _password() -> str:
    """Return a password from the terminal, or the first line of what is piped in. Never an argument's:
    those are seen by everyone on the machine.
    """
    if sys.stdin.isatty():
        return typer.prompt("Password", hide_input=True, confirmation_prompt=True, type=str)
    return sys.stdin.readline().rstrip("\r\n")
