"""The ``specscope`` command.

Rooms that the tracer must not import add their own commands through the entry-point group
``specscope.commands``: each entry is a ``typer.Typer`` (a group of commands) or a function (one command).
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from specscope import columns
from specscope import settings as settings_module
from specscope.version import __version__

GROUP: Final = "specscope.commands"
_HEX: Final = columns.MAGIC.hex()

app = typer.Typer(
    name="specscope",
    help="Shows why speculative decoding in an LLM server accepts draft tokens or does not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # it would read 'specscope[server]' as markup
)


@app.command()
def version() -> None:
    """Print the version of SpecScope and of its wire format."""
    from specscope import convention

    typer.echo(f"specscope {__version__}, wire version {convention.WIRE_VERSION}")


def meanings() -> dict[str, str]:
    """Return what each variable of the tracer means, from the text beside its constant."""
    body = ast.parse(inspect.getsource(settings_module)).body
    found: dict[str, str] = {}
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant):
            name, text = node.value.value, after.value if isinstance(after, ast.Expr) else None
            if isinstance(name, str) and isinstance(text, ast.Constant):
                found[name] = " ".join(str(text.value).replace("``", "").split())
    return found


@app.command()
def settings() -> None:
    """Print every setting of the tracer, and what this environment sets."""
    read = settings_module.read()
    for name, meaning in meanings().items():
        value = os.environ.get(name)
        if value is None:
            shown = "not set"
        elif name == settings_module.HEADERS:
            shown = "set: " + ", ".join(header for header, _ in read.headers) + " (values not shown)"
        else:
            shown = f"set: {settings_module.without_userinfo(value)}"
        typer.echo(f"{name}\n    {meaning}\n    {shown}")
    for ignored in read.ignored:
        typer.echo(f"ignored: {ignored}")
    place = settings_module.without_userinfo(read.endpoint)
    typer.echo(f"The tracer is off: {read.off}" if read.off else f"The tracer sends to {place}")


@app.command()
def decode(
    file: Annotated[Path, typer.Argument(help="A packed blob, raw or as hex text; - reads standard input.")],
) -> None:
    """Print a packed column blob as JSON lines, one a row."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        _fail(f"cannot read {file}: {error.strerror}")
    if data[:8].lower() == _HEX.encode():
        try:
            data = bytes.fromhex(data.decode("ascii"))
        except ValueError as error:
            _fail(f"{file} starts like a blob in hex, but is not hex: {error}")
    try:
        decoded = columns.decode(data)
    except columns.CodecError as error:
        _fail(f"{file}: {error}")
    for row in zip(*decoded.values(), strict=True):
        typer.echo(json.dumps(dict(zip(decoded, row, strict=True))))


@app.command()
def fingerprint(
    target: Annotated[Path, typer.Option(help="Folder of the target's checkpoint.")],
    prompts: Annotated[Path, typer.Option(help="Prompts as a JSON list or JSON lines: ids or text.")],
    out: Annotated[Path, typer.Option(help="File to write.")],
    draft: Annotated[
        Path | None, typer.Option(help="Folder of its EAGLE-3 draft: fc and embeddings too.")
    ] = None,
    more: Annotated[
        int,
        typer.Option("--continue", min=0, max=4096, help="Tokens of the target's own greedy choice to add."),
    ] = 0,
    layers: Annotated[
        str,
        typer.Option(help="Hidden states to take, as 2,4,5 (inputs of those layers); default: as SGLang."),
    ] = "",
    send: Annotated[
        str | None, typer.Option(help="Server to post the file to, e.g. http://localhost:4318.")
    ] = None,
    workspace: Annotated[str, typer.Option(help="Workspace there.")] = "default",
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
) -> None:
    """Run a target over prompts and write what its hidden states are, to compare engines with."""
    from specscope.reference import Problem, run
    from specscope.reference.command import fingerprint as make
    from specscope.reference.make import Wanted

    numbers = [part.strip() for part in layers.split(",")] if layers else []
    if not all(part.isascii() and part.isdigit() for part in numbers):
        _fail(f"--layers {layers!r}: whole numbers with commas between them are wanted, such as 2,4,5")
    if dtype not in run.DTYPES:
        _fail(f"--dtype {dtype!r} is none of {', '.join(run.DTYPES)}")
    chosen = tuple(map(int, numbers)) or None
    wanted = Wanted(target, draft, prompts, chosen, more, device, dtype)
    try:
        make(wanted, out, send, workspace, lambda told: typer.echo(told, err=True))
    except Problem as problem:
        _fail(str(problem))


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)


def _needs_server(name: str, missing: str) -> Callable[[], None]:
    def command() -> None:
        typer.echo(
            f"'specscope {name}' needs the server, and {missing!r} is not installed.\n"
            "Install it with: pip install 'specscope[server]'",
            err=True,
        )
        raise typer.Exit(1)

    command.__doc__ = "Not installed: pip install 'specscope[server]'."
    return command


def add(to: typer.Typer, entry: EntryPoint) -> None:
    """Add the command or group of an entry point; where it cannot be imported, one that says why."""
    try:
        loaded = entry.load()
    except ModuleNotFoundError as error:
        any_arguments = {"ignore_unknown_options": True, "allow_extra_args": True}
        to.command(entry.name, context_settings=any_arguments)(_needs_server(entry.name, error.name or "?"))
        return
    if isinstance(loaded, typer.Typer):
        to.add_typer(loaded, name=entry.name)
    else:
        to.command(entry.name)(loaded)


def main() -> None:
    """Run the command line."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    asked = next((a for a in sys.argv[1:] if not a.startswith("-")), None)
    own = {"version", "settings", "decode", "fingerprint"}
    # Loading the server takes a second: not for the tracer's own commands.
    for name, entry in sorted(found.items()):
        if asked not in own and (asked not in found or asked == name):
            add(app, entry)
    app()
