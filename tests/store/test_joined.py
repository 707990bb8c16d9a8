"""Other tools' spans are joined by trace, request or response id, when their time is the request's."""

from __future__ import annotations

from typing import Any

import pytest
from serverkit.recorded import recorded
from specscope_server.ingest import traces
from specscope_server.store import joined
from specscope_server.store import request_names as names
from specscope_server.store.model import JoinedTrace, RequestDetail, RequestFilter
from specscope_server.store.port import Store
from specscope_server.store.told import ForeignSpan, LogBatch, RequestReport, SpanBatch
from storekit import facts

SECOND = facts.SECOND


def told(store: Store, *spans: ForeignSpan, workspace: str = "default", **request: Any) -> RequestDetail:
    """Write a request and spans, the spans first and in reverse; return the request."""
    store.write([SpanBatch(workspace, spans[::-1])], facts.NOW)
    store.write([facts.batch(facts.request(**request))], facts.NOW)
    return detail(store)


def detail(store: Store, uid: str = "u0") -> RequestDetail:
    found = store.request("default", uid)
    assert found is not None
    return found


def theirs(number: int = 0, trace: str = "theirs", **changes: Any) -> ForeignSpan:
    return facts.span(number, trace=trace, **changes)


def found(store: Store, **where: Any) -> list[str]:
    return [row.uid for row in store.requests(RequestFilter(**where), 10).items]


def test_each_id_joins_and_says_how(store: Store) -> None:
    ways: tuple[tuple[dict[str, Any], str], ...] = (
        ({"request_id": "rid-u0"}, names.BY_REQUEST),
        ({"response_id": "rid-u0"}, names.BY_RESPONSE),
        ({"response_id": "answer"}, names.BY_RESPONSE),
        ({"request_id": f"{names.ENDS_SO}rid-u0"}, names.BY_END),
    )
    spans = [theirs(0, f"by-{number}", **ids) for number, (ids, _) in enumerate(ways)]
    wanted = [JoinedTrace(s.trace_id, rule, (s,)) for s, (_, rule) in zip(spans, ways, strict=True)]
    assert told(store, *spans, response_id="answer").joined == tuple(wanted)


def test_nothing_else_does(store: Store) -> None:
    others: tuple[dict[str, Any], ...] = (
        {},
        {"request_id": "rid-u00"},
        {"request_id": "RID-U0"},
        {"response_id": "other"},
        {"request_id": f"{names.ENDS_SO}u0"},
    )
    spans = [theirs(number, **ids) for number, ids in enumerate(others)]
    assert told(store, *spans, facts.span(9, request_id="rid-u0")).joined == ()


def test_requests_and_spans_without_ids_are_not_joined(store: Store) -> None:
    assert told(store, theirs(), rid="", trace_id="").joined == ()
    assert found(store, text="theirs") == []


def test_another_workspace_is_another_world(store: Store) -> None:
    span = theirs(request_id="rid-u0", response_id="answer")
    assert told(store, span, workspace="second").joined == ()
    assert found(store, text="theirs") == found(store, text="answer") == []
    assert found(store, response_id="answer") == []


def test_a_reused_id_joins_what_was_at_its_time(store: Store) -> None:
    """The request lived from 20 to 18 s ago; the margin is 10 s."""
    assert joined.MARGIN_NS == 10 * SECOND
    times = {
        "before": (60, 31),
        "until its start": (60, 29),
        "within": (19, 18.5),
        "from its end": (9, 1),
        "around": (3600, 0),
        "after": (7, 6),
    }
    spans = [
        theirs(0, trace, request_id="rid-u0", start_ns=facts.ago_ns(start), end_ns=facts.ago_ns(end))
        for trace, (start, end) in times.items()
    ]
    wanted = {"until its start", "within", "from its end", "around"}
    assert {trace.trace_id for trace in told(store, *spans).joined} == wanted
    assert {trace for trace in times if found(store, text=trace)} == wanted


def test_a_request_that_goes_on_is_joined_until_it_was_last_heard(store: Store) -> None:
    late = theirs(request_id="rid-u0", start_ns=facts.ago_ns(-9), end_ns=facts.ago_ns(-9))
    later = theirs(trace="later", request_id="rid-u0", start_ns=facts.ago_ns(-11), end_ns=facts.ago_ns(-11))
    running = told(store, late, later, state="running", end_ns=None)
    assert [trace.trace_id for trace in running.joined] == ["theirs"]


def test_what_hangs_below_a_joined_span_comes_with_it(store: Store) -> None:
    root = theirs(0)
    mine = theirs(1, request_id="rid-u0")
    below = theirs(2, parent_id=mine.span_id)
    deep = theirs(3, parent_id=below.span_id)
    circle = theirs(4, parent_id=f"{4:016x}")
    other = theirs(5)
    [trace] = told(store, root, mine, below, deep, circle, other).joined
    assert trace.spans == (mine, below, deep)


def test_the_surest_rule_comes_first_and_many_traces_are_bounded(store: Store) -> None:
    spans = [theirs(n, trace=f"t{n:02}", response_id="rid-u0", parent_id="") for n in range(60)]
    sure = theirs(70, trace="sure", request_id="rid-u0", parent_id="")
    both = told(store, *spans, sure).joined
    assert [trace.rule for trace in both] == [names.BY_REQUEST] + [names.BY_RESPONSE] * 7
    assert [trace.trace_id for trace in both[:3]] == ["sure", "t00", "t01"]


def test_the_answers_id_is_ours_before_that_of_a_span(store: Store) -> None:
    span = theirs(request_id="rid-u0", response_id="theirs")
    assert told(store, span, response_id="ours").request.response_id == "ours"


def test_the_answers_id_comes_from_a_span_of_the_request(store: Store) -> None:
    assert told(store, theirs(request_id="rid-u0", response_id="answer")).request.response_id == "answer"


def test_the_answers_id_comes_from_the_callers_span(store: Store) -> None:
    call = facts.span(1, response_id="answer", parent_id="")
    server = facts.span(2, parent_id=call.span_id)
    other = facts.span(3, response_id="other call")
    here = told(store, call, server, other, parent_span_id=server.span_id)
    assert here.request.response_id == "answer"
    circle = (facts.span(8, parent_id=f"{9:016x}"), facts.span(9, parent_id=f"{8:016x}"))
    store.write(
        [
            SpanBatch("default", circle),
            facts.batch(facts.request("u1", trace_id="trace-u0", parent_span_id=f"{8:016x}")),
        ],
        facts.NOW,
    )
    assert detail(store, "u1").request.response_id == ""


def test_search_finds_a_request_by_what_its_spans_are_called(store: Store) -> None:
    told(
        store,
        theirs(0, request_id="rid-u0", response_id="chatcmpl-1"),
        facts.span(1, request_id="inner-7", response_id="chatcmpl-2"),
        response_id="answer",
    )
    store.write([facts.batch(facts.request("u1", arrival_ns=facts.ago_ns(5000)))], facts.NOW)
    for text in ("theirs", "THEIRS", "inner-7", "chatcmpl-1", "chatcmpl-2", "answer", "ans", "rid-u0"):
        assert found(store, text=text) == ["u0"], text
    assert found(store, text="their") == [], "another tool's id is searched whole"
    for response_id in ("answer", "chatcmpl-1", "chatcmpl-2", "rid-u0"):
        assert found(store, response_id=response_id) == ["u0"], response_id
    for none in ("ans", "inner-7", "theirs", "' OR 1=1 --"):
        assert found(store, response_id=none) == [], none


def test_records_come_with_the_traces_and_the_joined_spans(store: Store) -> None:
    span = theirs(7, request_id="rid-u0")
    mine, late = facts.log_record(0, span_id=""), facts.log_record(9)
    joins = facts.log_record(5, trace="theirs", span_id=span.span_id)
    others = facts.log_record(6, trace="theirs"), facts.log_record(7, trace="elsewhere")
    store.write([LogBatch("default", (late, *others, joins, mine)), LogBatch("second", (mine,))], facts.NOW)
    assert told(store, span).logs == (mine, joins, late)


def _requests(name: str, **changes: Any) -> dict[str, RequestReport]:
    told = [dict(one) | changes for one in recorded(name).requests]
    made = [facts.request(arrival_ns=one.pop("start_ns"), **one) for one in told]
    return {one.rid: one for one in made}


def test_sglang_as_recorded(store: Store) -> None:
    """By the trace id of 64 bits that SGLang makes itself, and by the caller's."""
    spans, _ = traces.read(recorded("sglang-0.5.23").export)
    requests = _requests("sglang-0.5.23")
    store.write([*spans, facts.batch(*requests.values())], facts.NOW)
    whole = {"my_own_rid-1": 10, "team_a_7": 10}
    for rid, request in requests.items():
        here = detail(store, request.uid)
        (root,) = (span for span in here.spans if span.span_id == request.parent_span_id)
        assert here.joined == ()
        if rid in whole:
            assert (root.request_id, len(here.spans)) == (rid, whole[rid])
        else:  # the prefix pass before two samples: its own id in the scheduler, no id but the cut one here
            assert root.request_id.startswith(names.ENDS_SO) and not root.request_id.endswith(rid)


def test_sglang_as_recorded_without_its_trace(store: Store) -> None:
    """A tracer that was told no trace finds the same spans by the request's id, whole on SGLang's root."""
    spans, _ = traces.read(recorded("sglang-0.5.23").export)
    store.write([*spans, facts.batch(*_requests("sglang-0.5.23", trace_id="").values())], facts.NOW)
    for rid, request in _requests("sglang-0.5.23").items():
        others = detail(store, request.uid).joined
        if rid in ("my_own_rid-1", "team_a_7"):
            assert [(trace.trace_id, trace.rule) for trace in others] == [
                (request.trace_id, names.BY_REQUEST)
            ]
            assert len(others[0].spans) == 10
            assert request.uid in found(store, text=request.trace_id)
        else:
            assert others == ()


def test_vllm_as_observed(store: Store) -> None:
    """vLLM's own ids have digits after the id that its spans have, and samples a number before it."""
    spans, _ = traces.read(recorded("vllm-0.32").export)
    requests = _requests("vllm-0.32")
    requests["5_cmpl-req-gamma-0-964a8ed1"] = facts.request(
        "a4",
        rid="5_cmpl-req-gamma-0-964a8ed1",
        trace_id="",
        arrival_ns=requests["cmpl-req-gamma-0-964a8ed1"].arrival_ns,
    )
    vllm: dict[str, Any] = {"engine_name": "vllm"}
    store.write([*spans, facts.batch(*requests.values(), **vllm)], facts.NOW)
    rules = {
        rid: [(trace.rule, trace.spans[0].request_id) for trace in detail(store, one.uid).joined]
        for rid, one in requests.items()
    }
    assert rules == {
        "cmpl-req-gamma-0-964a8ed1": [(names.BY_REQUEST, "cmpl-req-gamma-0")],
        "0_cmpl-req-delta-0-95adb195": [(names.BY_CHILD, "cmpl-req-delta-0")],
        "1_cmpl-req-delta-0-95adb195": [(names.BY_CHILD, "cmpl-req-delta-0")],
        "5_cmpl-req-gamma-0-964a8ed1": [],  # one sample was asked for: its id begins so by itself
    }


@pytest.mark.parametrize(
    ("rid", "engine", "wanted"),
    [
        ("", "vllm", {}),
        ("a", "sglang", {"a", "\u2026a"}),
        ("a_b-0123abcd", "sglang", {"a_b-0123abcd", "\u2026b-0123abcd"}),
        ("a-0123abcd", "vllm", {"a-0123abcd", "\u2026a-0123abcd", "a"}),
        ("1_a-0123abcd", "vllm", {"1_a-0123abcd", "\u2026a-0123abcd", "1_a", "a-0123abcd", "a"}),
        ("a-0123ABCD", "vllm", {"a-0123ABCD", "\u2026a-0123ABCD"}),
        ("-0123abcd", "vllm", {"-0123abcd", "\u2026-0123abcd"}),
    ],
)
def test_what_a_request_may_be_called(rid: str, engine: str, wanted: set[str]) -> None:
    assert set(names.request_names(rid, engine)) == set(wanted)
