"""``specscope compare``: is B's acceptance as good as A's? For release gates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from specscope.rollup import power_slice, temperature_slice

from specscope_server.cli_parts import fail
from specscope_server.client import DEFAULT_URL, AskError, Client, Url, WorkspaceOption
from specscope_server.diagnosis import comparison
from specscope_server.diagnosis.comparison import Compared, Corrected, Unit
from specscope_server.spans_of_time import span

BELOW: Final = 1
UNASKED: Final = 2
NOT_SHOWN: Final = 3
"""Exit codes: B is shown to be worse than allowed; nothing could be asked; the data do not decide."""
MOST_REQUESTS: Final = 5000
MOST_BUCKETS: Final = 4000
DEFAULT_SPAN: Final = "1h"


@dataclass(frozen=True, slots=True)
class Side:
    """One side as it was asked for, and what it served."""

    name: str
    engine: Mapping[str, Any]
    since: datetime
    until: datetime
    units: tuple[Unit, ...]
    """One a request of a user with a verify step that drafted."""
    positions: tuple[tuple[Unit, ...], ...]
    """By position, one a bucket of time: drafts accepted of those drafted."""
    left_out: Counter[str]


@dataclass(frozen=True, slots=True)
class Position:
    """Acceptance at one position on both sides; each position has an interval of its own."""

    position: int
    compared: Compared


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="ENGINE[@SINCE[..UNTIL]]: uid, instance or name.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is held against it, likewise.")],
    url: Url = DEFAULT_URL,
    workspace: WorkspaceOption = "default",
    fail_below: Annotated[
        float | None,
        typer.Option(
            "--fail-below",
            metavar="RATIO",
            min=0.0,
            max=10.0,
            help="Exit with 1 where B's acceptance length is shown to be below RATIO of A's, with 3 where "
            "the data do not show either.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Hold the acceptance of two engines, or of one in two spans of time, against each other."""
    try:
        asked, now = Client(url, workspace), datetime.now(UTC)
        sides = [_side(asked, text, now) for text in (a, b)]
    except (AskError, ValueError) as error:
        fail(str(error), UNASKED)
    raw = comparison.compare(sides[0].units, sides[1].units)
    corrected = comparison.corrected(sides[0].units, sides[1].units)
    positions = [
        Position(number + 1, comparison.compare(mine, theirs))
        for number, (mine, theirs) in enumerate(zip(sides[0].positions, sides[1].positions, strict=False))
    ]
    verdict = corrected.compared.verdict(1.0 if fail_below is None else fail_below)
    if as_json:
        typer.echo(json.dumps(_document(sides, raw, corrected, positions, verdict), indent=2))
    else:
        for line in _lines(sides, raw, corrected, positions):
            typer.echo(line)
    if fail_below is None:
        return
    if not as_json:
        typer.echo(f"B has {fail_below:g} of A's acceptance length: {verdict}")
    raise typer.Exit({comparison.AT_LEAST: 0, comparison.BELOW: BELOW}.get(verdict, NOT_SHOWN))


def _side(asked: Client, text: str, now: datetime) -> Side:
    name, _, when = text.partition("@")
    since, until = span(when or DEFAULT_SPAN, now)
    engine = asked.engine(name, since, None if until == now else until)
    within = {"engine": engine["engine_uid"], "since": since.isoformat(), "until": until.isoformat()}
    units: list[Unit] = []
    left_out: Counter[str] = Counter()
    rows = list(asked.pages("/api/v1/requests", MOST_REQUESTS + 1, kind="user", **within))
    if len(rows) > MOST_REQUESTS:
        left_out[f"older than the newest {MOST_REQUESTS}, at least"] += 1
    for row in rows[:MOST_REQUESTS]:
        totals = row["totals"]
        if not totals["drafted_depth"]:
            left_out["nothing was drafted"] += 1
            continue
        units.append(Unit(totals["accepted"] + totals["bonus"], totals["verify_steps"], _stratum(row)))
    return Side(text, engine, since, until, tuple(units), _positions(asked, within, since, until), left_out)


def _stratum(row: Mapping[str, Any]) -> str:
    """Return which traffic a request is of: what is known of it before the draft says a word."""
    prompt, temperature, cached = row["prompt_tokens"], row["temperature"], row["cached_tokens"]
    return ", ".join(
        (
            "prompt length unknown" if prompt is None else f"prompt {power_slice(prompt)} tokens",
            "temperature unknown" if temperature is None else f"temperature {temperature_slice(temperature)}",
            "cache unknown" if cached is None else "cached" if cached else "cold",
        )
    )


def _positions(
    asked: Client, within: Mapping[str, str], since: datetime, until: datetime
) -> tuple[tuple[Unit, ...], ...]:
    length = (until - since).total_seconds()
    bucket = max(10, int(length / MOST_BUCKETS) // 10 * 10 + 10)
    found: dict[int, list[Unit]] = {}
    for point in asked.get("/api/v1/series", bucket=bucket, **within)["items"]:
        for one in point["positions"]:
            if one["drafted"]:
                found.setdefault(one["position"], []).append(Unit(one["accepted"], one["drafted"]))
    return tuple(tuple(found[position]) for position in sorted(found))


def _document(
    sides: Sequence[Side], raw: Compared, corrected: Corrected, positions: Sequence[Position], verdict: str
) -> dict[str, Any]:
    return {
        "a": _told(sides[0]),
        "b": _told(sides[1]),
        "level": comparison.LEVEL,
        "acceptance_length": asdict(raw),
        "corrected": asdict(corrected),
        "positions": [asdict(one) for one in positions],
        "verdict": verdict,
    }


def _told(side: Side) -> dict[str, Any]:
    return {
        "asked": side.name,
        "engine_uid": side.engine["engine_uid"],
        "name": side.engine["name"],
        "since": side.since.isoformat(),
        "until": side.until.isoformat(),
        "requests": len(side.units),
        "left_out": dict(side.left_out),
    }


def _lines(
    sides: Sequence[Side], raw: Compared, corrected: Corrected, positions: Sequence[Position]
) -> Iterator[str]:
    for letter, side in zip("AB", sides, strict=True):
        left = "; ".join(f"{why}: {count}" for why, count in side.left_out.items())
        yield (
            f"{letter}: {side.engine['name']} ({side.engine['engine_uid']}),"
            f" {side.since:%Y-%m-%d %H:%M:%S} to {side.until:%Y-%m-%d %H:%M:%S} UTC,"
            f" {len(side.units)} requests" + (f" ({left})" if left else "")
        )
    yield ""
    yield f"acceptance length          {_row(raw)}"
    yield f"  with the same traffic    {_row(corrected.compared)}"
    yield from (f"accepted at position {one.position:<5} {_row(one.compared)}" for one in positions)
    changed = {n: s for n, s in corrected.mix.items() if abs(s[0] - s[1]) >= 0.05}
    if changed:
        yield "The traffic differs (share of verify steps, A and B):"
        yield from (f"  {name}: {mine:.0%}, {theirs:.0%}" for name, (mine, theirs) in changed.items())


def _row(one: Compared) -> str:
    if one.b_over_a is None or one.a is None or one.b is None or one.low is None or one.high is None:
        return f"not compared: {one.why_not}"
    return (
        f"A {one.a.value:.3f}, B {one.b.value:.3f}: B/A {one.b_over_a:.3f}"
        f" ({comparison.LEVEL:.0%} interval {one.low:.3f} to {one.high:.3f})"
    )
