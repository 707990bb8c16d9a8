"""A trace as an indented list: parents before children, ours among the others, whatever the ids say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specscope import convention as c
from specscope import identity
from specscope_server.store import request_names as names
from specscope_server.store.model import JoinedTrace, RequestDetail, RequestRow
from specscope_server.store.told import ForeignSpan, LogRecord, RequestTotals
from specscope_server.store.values import from_ns
from specscope_server.web.trace import HOW, MAX_DEPTH, of_request, trace

START = 1_800_000_000_000_000_000
UID = "0" * 32
OURS = f"{identity.request_span_id(UID):016x}"


def request(parent: str = "") -> RequestRow:
    return RequestRow(
        uid=UID,
        engine_uid="e",
        engine="tiny",
        model="m",
        rid="r",
        trace_id="t",
        state="finished",
        kind="user",
        arrival=from_ns(START + 2_000_000),
        end=from_ns(START + 9_000_000),
        last_received=from_ns(START),
        prompt_tokens=None,
        output_tokens=None,
        cached_tokens=None,
        temperature=None,
        max_tokens=None,
        finish_reason=None,
        queue_s=None,
        first_token_s=None,
        totals=RequestTotals(),
        detail="steps",
        parent_span_id=parent,
    )


def span(name: str, parent: str = "", at_ms: int = 0) -> ForeignSpan:
    start = START + at_ms * 1_000_000
    return ForeignSpan("t", name, parent, name, "sglang", "s", start, start + 1_000_000, False, {"rid": "a"})


def test_parents_before_children_by_start() -> None:
    spans = (span("c", "b", 3), span("b", "a", 1), span("a", "caller"), span("d", "a", 5))
    made = trace(request("a"), spans)
    assert [(line.depth, line.name) for line in made.lines] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
        (1, c.SPAN_REQUEST),
        (1, "d"),
    ]
    assert made.caller == "caller"
    ours = next(line for line in made.lines if line.ours)
    assert (ours.service, ours.offset_s, ours.took_s) == ("tiny", 0.002, 0.007)
    assert made.lines[0].attributes == "rid=a"


def test_alone_it_hangs_below_a_caller_that_was_not_received() -> None:
    made = trace(request("caller"), ())
    assert [(line.depth, line.ours) for line in made.lines] == [(0, True)]
    assert made.caller == "caller"
    assert trace(request(), ()).caller == ""


def test_spans_that_name_each_other_as_parents_are_told_once() -> None:
    made = trace(request("x"), (span("x", "y"), span("y", "x"), span("self", "self")))
    assert sorted(line.name for line in made.lines) == ["self", c.SPAN_REQUEST, "x", "y"]


def test_a_span_that_takes_our_id_does_not_take_our_place() -> None:
    made = trace(request(), (replace(span("a"), span_id=OURS),))
    assert [line.ours for line in made.lines] == [True]


def test_a_deep_trace_is_indented_to_a_limit() -> None:
    chain = [span("s0"), *(span(f"s{n}", f"s{n - 1}", n) for n in range(1, 400))]
    made = trace(request("s399"), chain)
    assert len(made.lines) == 401
    assert max(line.depth for line in made.lines) == MAX_DEPTH


def told(**more: Any) -> RequestDetail:
    return RequestDetail(request(), (), (), (), 0, **more)


def log(severity: int = 9, at_ms: int | None = 1) -> LogRecord:
    at = 0 if at_ms is None else START + at_ms * 1_000_000
    return LogRecord("t", "r", "s", at, severity, "shop", "app", "asked", {"n": 1})


def test_joined_spans_stand_apart_and_say_how() -> None:
    spans = (span("call", at_ms=1), span("inner", "call", 5))
    made = of_request(told(joined=(JoinedTrace("other", names.BY_RESPONSE, spans),)))
    [other] = made.others
    assert (other.trace_id, other.how) == ("other", "has the id of this request's answer")
    # The request arrived 2 ms after START, and a caller starts before that.
    assert [(line.depth, line.name, line.offset_s) for line in other.lines] == [
        (0, "call", -0.001),
        (1, "inner", 0.003),
    ]
    assert [line.ours for line in made.lines] == [True]


def test_every_rule_that_joins_another_trace_is_said_in_words() -> None:
    assert set(HOW) == set(names.RULES) - {names.BY_TRACE}


def test_records_have_a_severity_and_a_time_where_they_were_told() -> None:
    made = of_request(told(logs=(log(0, None), log(1), log(12), log(13), log(17), log(24, 4))))
    assert [(line.severity, line.failed) for line in made.logs] == [
        ("", False),
        ("trace", False),
        ("info", False),
        ("warn", False),
        ("error", True),
        ("fatal", True),
    ]
    assert [line.offset_s for line in made.logs] == [None, *[-0.001] * 4, 0.002]
    assert made.logs[0].attributes == "n=1"
