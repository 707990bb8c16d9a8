"""``specscope baseline``: say what a draft promises, learn it from a healthy period, show it, clear it."""

from __future__ import annotations

import getpass
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from specscope_server.cli_parts import fail
from specscope_server.client import DEFAULT_URL, AskError, Client, Url, WorkspaceOption
from specscope_server.spans_of_time import span

UNASKED: Final = 2
PATH: Final = "/api/v1/expectations"

baseline = typer.Typer(
    help="What is expected of drafts: declared from training, or learned from a period you confirm.",
    no_args_is_help=True,
)

Engine = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="Of this engine: uid, instance or name. [default: any]"),
]
ModelName = Annotated[str, typer.Option("--model", metavar="NAME", help="Of this model. [default: any]")]
Workload = Annotated[
    str,
    typer.Option("--workload", metavar="SLICE", help="Of this slice, e.g. context=128-255. [default: all]"),
]
Who = Annotated[str, typer.Option("--who", metavar="NAME", help="Who says so. [default: you]")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Where it comes from.")]
Floor = Annotated[
    float | None,
    typer.Option("--floor", metavar="LENGTH", help="Acceptance length that is too low in any case."),
]
AcceptLow = Annotated[
    bool,
    typer.Option("--accept-low", help="It is meant although it promises very little, or of a faulty engine."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@baseline.command("set")
def set_(
    per_position: Annotated[
        str,
        typer.Option(
            "--per-position",
            metavar="P,P,...",
            help="Conditional acceptance from the first position on, e.g. 0.745,0.7,0.66.",
        ),
    ],
    engine: Engine = "",
    model: ModelName = "",
    workload: Workload = "",
    floor: Floor = None,
    who: Who = "",
    note: Note = "",
    accept_low: AcceptLow = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    workspace: WorkspaceOption = "default",
) -> None:
    """Declare what training promises."""
    try:
        numbers = [float(part) for part in per_position.split(",")]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        fail(f"--per-position {per_position!r}: write numbers from 0 to 1 with commas between", UNASKED)
    body = _said(engine, model, workload, floor, who, note, accept_low) | {"per_position": numbers}
    _print(_ask(url, workspace, "PUT", PATH, body), as_json)


@baseline.command()
def learn(
    engine: Annotated[str, typer.Option("--engine", metavar="NAME", help="The engine to learn from.")],
    since: Annotated[
        str,
        typer.Option("--since", metavar="SINCE[..UNTIL]", help="The period: 1h, 2h..1h, or ISO 8601 times."),
    ] = "1h",
    model: ModelName = "",
    workload: Workload = "",
    of_any: Annotated[
        bool,
        typer.Option("--any-engine", help="Expect it of any engine (of --model), not of this one alone."),
    ] = False,
    floor: Floor = None,
    who: Who = "",
    note: Note = "",
    accept_low: AcceptLow = False,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm without being asked: it was healthy.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    workspace: WorkspaceOption = "default",
) -> None:
    """Learn from a period that you confirm to have been healthy."""
    try:
        now = datetime.now(UTC)
        start, end = span(since, now)
        found = Client(url, workspace).engine(engine, start, None if end == now else end)
    except (AskError, ValueError) as error:
        fail(str(error), UNASKED)
    # By its name, which outlives the launch.
    scope = "" if of_any else found["name"]
    body = _said(scope, model, workload, floor, who, note, accept_low) | {
        "engine_uid": found["engine_uid"],
        "since": start.isoformat(),
        "until": end.isoformat(),
        "confirmed": yes,
    }
    told = _ask(url, workspace, "POST", f"{PATH}/learn", body)
    if not yes:
        for line in _lines(told):
            typer.echo(line, err=as_json)
        if not typer.confirm(
            "Was that period healthy, so that it is to be expected from now on?", err=as_json
        ):
            raise typer.Exit(1)
        told = _ask(url, workspace, "POST", f"{PATH}/learn", body | {"confirmed": True})
    _print(told, as_json)


@baseline.command()
def show(
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="Also what this engine serves of it.")
    ] = "",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    workspace: WorkspaceOption = "default",
) -> None:
    """Show what is expected, and what an engine serves of it."""
    try:
        asked = Client(url, workspace)
        if engine:
            uid = asked.engine(engine)["engine_uid"]
            items = asked.get(f"/api/v1/engines/{uid}/expectation")["items"]
        else:
            items = asked.get(PATH)["items"]
    except AskError as error:
        fail(str(error), UNASKED)
    if as_json:
        typer.echo(json.dumps({"items": items}, indent=2))
        return
    if not items:
        typer.echo("Nothing is expected: specscope baseline set, or learn.")
    for item in items:
        for line in _served(item) if engine else _lines(item):
            typer.echo(line)


@baseline.command()
def clear(
    engine: Engine = "",
    model: ModelName = "",
    workload: Workload = "",
    source: Annotated[
        str, typer.Option("--source", metavar="WORD", help="Only the declared or the learned one.")
    ] = "",
    url: Url = DEFAULT_URL,
    workspace: WorkspaceOption = "default",
) -> None:
    """Clear the expectations of exactly this scope."""
    try:
        told = Client(url, workspace).delete(
            PATH, engine=engine, model=model, workload=workload, source=source or None
        )
    except AskError as error:
        fail(str(error), UNASKED)
    typer.echo(f"{told['cleared']} cleared")


def _said(
    engine: str, model: str, workload: str, floor: float | None, who: str, note: str, accept_low: bool
) -> dict[str, Any]:
    if floor is not None and not math.isfinite(floor):
        fail(f"--floor {floor}: an acceptance length is a number", UNASKED)
    return {
        "engine": engine,
        "model": model,
        "workload": workload,
        "floor": floor,
        "who": who or _login(),
        "note": note,
        "accept_low": accept_low,
    }


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container often runs as a user without a name.
        fail("this system has no name for you: say --who", UNASKED)


def _ask(url: str, workspace: str, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        return Client(url, workspace).send(method, path, body)
    except AskError as error:
        fail(str(error), UNASKED)


def _print(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    for line in _lines(told):
        typer.echo(line)


def _lines(told: dict[str, Any]) -> Iterator[str]:
    scope = [f"{name} {told[name]}" for name in ("engine", "model", "workload") if told[name]]
    numbers = ", ".join(f"{p:.3g}" for p in told["per_position"])
    whose = " · ".join(scope) or "any engine"
    yield f"{whose}: acceptance length {told['length']:.2f} ({numbers} by position)"
    learned = f" from {told['steps']} verify steps" if told["steps"] else ""
    floor = "" if told["floor"] is None else f", floor {told['floor']:g}"
    note = f": {told['note']}" if told["note"] else ""
    yield f"    {told['source']}{learned} by {told['who']} on {told['said'][:16]}{floor}{note}"


def _served(item: dict[str, Any]) -> Iterator[str]:
    if item["length"] is None:
        yield f"{item['promise']}: {item['sentence']}"
        return
    yield (
        f"{item['promise']}: acceptance length {item['length']:.2f} of {item['promised_length']:.2f}"
        f" promised, over {item['verify_steps']} verify steps"
    )
    for one in item["positions"]:
        yield f"    position {one['position']}: {one['served']:.1%} (promised {one['promised']:.1%})"
    yield f"    {item['sentence']}"
    if item["below_floor"]:
        yield f"    Below its floor of {item['floor']:g}."
