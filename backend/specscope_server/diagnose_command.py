"""``specscope diagnose``: what a server says of its engines, or of one request, for people and for gates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from specscope_server.cli_parts import fail
from specscope_server.client import DEFAULT_URL, AskError, Client, Url, WorkspaceOption
from specscope_server.diagnosis.model import CERTAIN, OBSERVATION, SUSPECTED
from specscope_server.spans_of_time import seconds

FOUND: Final = 1
UNASKED: Final = 2
UNKNOWN: Final = 3
"""Exit codes: a finding of the level asked for; nothing could be asked; nothing could be judged."""
LEAST_S: Final = 10
MOST_S: Final = 30 * 86_400
"""What a server judges by at least and at most."""
_JUDGED: Final = ("healthy", "faulty", "suspect")
"""States in which an engine was judged at all."""
_INDENT: Final = "    "


class FailOn(StrEnum):
    """The least confidence that a gate fails on."""

    certain = CERTAIN
    suspected = SUSPECTED
    observation = OBSERVATION


_RANK: Final = {CERTAIN: 2, SUSPECTED: 1, OBSERVATION: 0}


def diagnose(
    url: Url = DEFAULT_URL,
    workspace: WorkspaceOption = "default",
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="Only this engine: uid, instance or name.")
    ] = "",
    request: Annotated[
        str, typer.Option("--request", metavar="ID", help="Only the engine of this request, and its verdict.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="LENGTH", help="Judge by so much up to now: 90s, 2h. [default: the server's]"
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    fail_on: Annotated[
        FailOn | None,
        typer.Option("--fail-on", help="Exit with 1 on a finding of this confidence or a greater one."),
    ] = None,
) -> None:
    """Say what is wrong with the drafts of a server's engines, and how it is known."""
    try:
        judge_s = _judge_s(since) if since else None
        asked = Client(url, workspace)
        found = _request(asked, request) if request else None
        if found is not None:
            engine = found["request"]["engine_uid"]
        engines = _engines(asked, engine, judge_s)
    except (AskError, ValueError) as error:
        fail(str(error), UNASKED)
    if as_json:
        kept = {} if found is None else {"request": found["request"], "verdict": found["verdict"]}
        typer.echo(json.dumps({"engines": engines} | kept, indent=2))
    else:
        for line in _lines(engines, found):
            typer.echo(line)
    if fail_on is not None:
        raise typer.Exit(_code(engines, fail_on))


def _judge_s(since: str) -> int:
    length = seconds(since)
    if not LEAST_S <= length <= MOST_S:
        raise ValueError(f"--since {since}: an engine is judged by 10s to 30d")
    return length


def _engines(asked: Client, engine: str, judge_s: int | None) -> list[dict[str, Any]]:
    if engine:
        uid = asked.engine(engine)["engine_uid"]
        return [asked.get(f"/api/v1/engines/{uid}", judge_s=judge_s)]
    return asked.get("/api/v1/engines", judge_s=judge_s)["items"]


def _request(asked: Client, name: str) -> dict[str, Any]:
    items: list[dict[str, Any]] = asked.get("/api/v1/requests", text=name, limit=2)["items"]
    if not items:
        raise AskError(f"no request has the id {name!r}, whole or as its beginning")
    exact = [one for one in items if name in (one["uid"], one["rid"], one["trace_id"], one["response_id"])]
    if len(items) > 1 and len(exact) != 1:
        raise AskError(f"several requests have an id that begins with {name!r}: give the uid of one")
    return asked.get(f"/api/v1/requests/{(exact or items)[0]['uid']}", limit=1)


def _code(engines: Sequence[dict[str, Any]], fail_on: FailOn) -> int:
    least = _RANK[fail_on.value]
    if any(_RANK[one["confidence"]] >= least for engine in engines for one in engine["findings"]):
        return FOUND
    judged = engines and all(engine["state"] in _JUDGED for engine in engines)
    return 0 if judged else UNKNOWN


def _lines(engines: Sequence[dict[str, Any]], request: dict[str, Any] | None) -> Iterator[str]:
    if request is not None:
        row, verdict = request["request"], request["verdict"]
        yield f"request {row['rid'] or row['uid']}: {verdict['headline']}"
        yield from (f"{_INDENT}{reason}" for reason in verdict["reasons"])
        yield ""
    if not engines:
        yield "No engine has told anything yet: nothing is known, which is not health."
    for engine in engines:
        yield f"{engine['name']} ({engine['engine_uid']}): {engine['state']}. {engine['state_reason']}"
        for finding in engine["findings"]:
            yield from (_INDENT + line for line in _finding(finding))
        for kind, why in engine["unknown"].items():
            yield f"{_INDENT}not judged: {kind}: {why}"


def _finding(finding: dict[str, Any]) -> Iterator[str]:
    named = " ".join(part for part in (finding["confidence"], finding["fault_class"]) if part)
    after = f", a consequence of {finding['root']}" if finding["root"] else ""
    yield f"[{named}, {finding['severity']}{after}] {finding['title']}"
    yield f"{_INDENT}{finding['sentence']}"
    for number in finding["numbers"]:
        expected = "" if number["expected"] is None else f", expected {number['expected']}"
        unit = f" {number['unit']}" if number["unit"] else ""
        value = "not known" if number["value"] is None else f"{number['value']}{unit}"
        yield f"{_INDENT}- {number['name']}: {value}{expected}"
    for ruled in finding["ruled_out"]:
        yield f"{_INDENT}- not {ruled['fault']}: {ruled['by']}"
    for word, text in (("next check", finding["next_check"]), ("fix", finding["fix"])):
        if text:
            yield f"{_INDENT}{word}: {text}"
