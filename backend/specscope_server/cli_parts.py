"""What the server's commands share: the option that names a database, and how they end in failure."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from specscope_server import settings as s

Database = Annotated[
    str,
    typer.Option(
        "--db",
        envvar=s.DB,
        metavar="URL",
        help="sqlite:///file, postgresql://... or a file path. [default: specscope.db in the data directory]",
        show_default=False,
    ),
]


def fail(message: str, code: int) -> NoReturn:
    """End with a message.

    Raises:
        typer.Exit: always, with the code.
    """
    typer.echo(f"specscope: {message}", err=True)
    raise typer.Exit(code)
