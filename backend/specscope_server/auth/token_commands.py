"""``specscope token``: what programs show; works on the database, with or without a server at work on it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from specscope_server.auth import names, tokens
from specscope_server.auth.commanding import (
    AsJson,
    OpenToAll,
    accounts_of,
    noted,
    print_json,
    print_rows,
    typed_by,
    when,
)
from specscope_server.auth.model import Scope, Token
from specscope_server.cli_parts import Database, fail

token = typer.Typer(help="Make tokens for programs.", no_args_is_help=True, rich_markup_mode=None)


@token.command()
def add(
    scope: Annotated[
        list[Scope],
        typer.Option("--scope", help="ingest sends, read reads, edit changes, admin also. Repeatable."),
    ],
    workspace: Annotated[
        str, typer.Option("--workspace", help="The one that it sends to and reads.")
    ] = "default",
    name: Annotated[str, typer.Option("--name", help="What it is for.")] = "",
    database: Database = "",
) -> None:
    """Make a token and print it, this once; from then on requests must show one, and people sign in."""
    with accounts_of(database, make=True) as accounts:
        made, uid, kept = tokens.new_token()
        row = Token(
            token_uid=uid,
            workspace=names.workspace_name(workspace),
            scopes=frozenset(scope),
            name=names.line(name, "--name"),
            created=datetime.now(UTC),
            created_by=typed_by(),
            used=None,
            secret=kept,
        )
        accounts.add_token(row)
        noted(accounts, "token added", f"{uid}, {' '.join(sorted(row.scopes))}", row.workspace)
    # The token alone on standard output: that is what a script takes.
    typer.echo(f"token {uid} for workspace {row.workspace!r}; it is not shown again:", err=True)
    typer.echo(made)


@token.command("list")
def list_(database: Database = "", as_json: AsJson = False) -> None:
    """List tokens, never their secrets."""
    with accounts_of(database) as accounts:
        found = accounts.tokens()
    if as_json:
        print_json(
            [
                {
                    "token_uid": one.token_uid,
                    "workspace": one.workspace,
                    "scopes": sorted(one.scopes),
                    "name": one.name,
                    "created": one.created,
                    "created_by": one.created_by,
                    "used": one.used,
                }
                for one in found
            ]
        )
        return
    if not found:
        typer.echo("there is no token: specscope token add --scope ingest --workspace default")
        return
    print_rows(
        ("token", "workspace", "scopes", "name", "created", "last used"),
        [
            (
                *(one.token_uid, one.workspace, " ".join(sorted(one.scopes)), one.name),
                *(when(one.created), when(one.used)),
            )
            for one in found
        ],
    )


@token.command()
def revoke(
    token_uid: Annotated[str, typer.Argument(metavar="TOKEN", help="Its uid, as listed.")],
    open_to_all: OpenToAll = False,
    database: Database = "",
) -> None:
    """Revoke a token; servers notice within seconds."""
    with accounts_of(database) as accounts:
        # Whoever pastes the whole token means it as well.
        whole = tokens.parts(token_uid.strip())
        uid = whole[0] if whole else token_uid.strip()
        if not accounts.revoke(uid, open_to_all=open_to_all):
            fail("there is no such token: specscope token list", 1)
        noted(accounts, "token revoked", uid)
    typer.echo(f"token {uid} is revoked")
