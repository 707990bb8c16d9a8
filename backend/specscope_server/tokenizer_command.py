"""``specscope tokenizer``: register what token ids stand for, so that pages show text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from specscope_server.cli_parts import fail
from specscope_server.client import DEFAULT_URL, AskError, Client, Url, WorkspaceOption

UNASKED: Final = 2
PATH: Final = "/api/v1/tokenizers"
FILE: Final = "tokenizer.json"
CONTENT_TYPE: Final = "application/vnd.specscope.tokenizer+json"

tokenizer = typer.Typer(
    help="Tokenizers: what token ids stand for, so that a request's page shows text.",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@tokenizer.command()
def add(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER", help="A tokenizer.json, or the folder of the model that has one."
        ),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What to call it. [default: the folder's name]")
    ] = "",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    workspace: WorkspaceOption = "default",
) -> None:
    """Register the tokenizer of a target."""
    file = path / FILE if path.is_dir() else path
    try:
        content = file.read_bytes()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror or error}", UNASKED)
    called = name or file.resolve().parent.name
    try:
        told = Client(url, workspace).send_file(PATH, content, CONTENT_TYPE, name=called)
    except AskError as error:
        fail(f"{file} was not taken: {error}", UNASKED)
    _print(told, as_json)


@tokenizer.command("list")
def list_(as_json: AsJson = False, url: Url = DEFAULT_URL, workspace: WorkspaceOption = "default") -> None:
    """List the tokenizers of a workspace, newest first."""
    try:
        items = Client(url, workspace).get(PATH)["items"]
    except AskError as error:
        fail(str(error), UNASKED)
    if as_json:
        typer.echo(json.dumps({"items": items}, indent=2))
        return
    if not items:
        typer.echo("No tokenizer is registered: specscope tokenizer add FOLDER.")
    for item in items:
        typer.echo(_line(item))


@tokenizer.command()
def remove(
    which: Annotated[str, typer.Argument(metavar="HASH|NAME", help="Its hash, or its name if one has it.")],
    url: Url = DEFAULT_URL,
    workspace: WorkspaceOption = "default",
) -> None:
    """Remove a tokenizer: requests of engines with it show ids again."""
    try:
        client = Client(url, workspace)
        items: list[dict[str, Any]] = client.get(PATH)["items"]
        meant = [one for one in items if one["tokenizer_hash"] == which]
        meant = meant or [one for one in items if one["name"] == which]
        if len(meant) != 1:
            many = f"{len(meant)} tokenizers are called {which!r}: give the hash of one"
            none = f"there is no tokenizer {which!r} in workspace {workspace!r}"
            fail(f"{many if meant else none} (specscope tokenizer list)", UNASKED)
        client.delete(f"{PATH}/{meant[0]['tokenizer_hash']}")
    except AskError as error:
        fail(str(error), UNASKED)
    typer.echo(f"{meant[0]['tokenizer_hash']} removed")


def _print(told: dict[str, Any], as_json: bool) -> None:
    typer.echo(json.dumps(told, indent=2) if as_json else _line(told))


def _line(one: dict[str, Any]) -> str:
    return (
        f"{one['tokenizer_hash']}  {one['name']}: {one['tokens']} tokens, "
        f"{one['bytes'] / (1 << 20):.1f} MiB, added {one['created'][:16]}"
    )
