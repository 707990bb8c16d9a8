"""Spans of engines and of GenAI instrumentation: whose they are, and today's names beside older ones."""

from __future__ import annotations

from typing import Any

import pytest
from serverkit import otlp
from serverkit.recorded import recorded
from specscope import convention as c
from specscope_server.ingest import genai, plain, traces
from specscope_server.store.request_names import ENDS_SO
from specscope_server.store.told import ForeignSpan, SpanBatch


def spans_of(name: str) -> tuple[ForeignSpan, ...]:
    [batch], tally = traces.read(recorded(name).export)
    assert isinstance(batch, SpanBatch)
    assert (tally.foreign, tally.rejected, tally.notes) == (len(batch.spans), 0, {})
    return batch.spans


def kept(values: dict[str, Any], **changed: Any) -> ForeignSpan:
    span = otlp.span("chat", values)
    for name, value in changed.items():
        setattr(span, name, value)
    [batch], _ = traces.read(otlp.traces(span, scope="other"))
    assert isinstance(batch, SpanBatch)
    [found] = batch.spans
    return found


def test_sglang_as_recorded() -> None:
    spans = spans_of("sglang-0.5.23")
    assert {span.trace_id[:16] for span in spans} == {"4bf92f3577b34da6", "0" * 16}, "64 bits are enough"
    roots = [span for span in spans if "rid" in span.attributes]
    assert [(root.attributes["rid"], root.request_id) for root in roots] == [
        ("rid-1", "my_own_rid-1"),
        ("7", "team_a_7"),
        ("7b736d5244be4145bd66d0434739c74a", f"{ENDS_SO}7b736d5244be4145bd66d0434739c74a"),
    ]
    told = roots[1].attributes
    assert (told["gen_ai.usage.prompt_tokens"], told[c.GEN_AI_INPUT_TOKENS]) == (10, 10)
    assert (told["gen_ai.usage.completion_tokens"], told[c.GEN_AI_OUTPUT_TOKENS]) == (12, 12)
    assert (told["gen_ai.usage.cached_tokens"], told[genai.CACHED_TOKENS]) == (8, 8)
    assert {span.request_id for span in spans if span not in roots} == {""}


def test_vllm_as_observed() -> None:
    one, two = spans_of("vllm-0.32")
    assert (one.request_id, two.request_id) == ("cmpl-req-gamma-0", "cmpl-req-delta-0")
    assert (one.service, one.scope, one.response_id) == ("unknown_service", "vllm.tracing.otel", "")
    assert (one.attributes[c.GEN_AI_INPUT_TOKENS], one.attributes[c.GEN_AI_OUTPUT_TOKENS]) == (10, 12)
    assert (one.attributes[genai.CHOICES], two.attributes[genai.CHOICES]) == (1, 2)


@pytest.mark.parametrize(("old", "today"), genai.TODAY.items())
def test_older_names_stand_beside_todays(old: str, today: str) -> None:
    assert kept({old: 7}).attributes == {old: 7, today: 7}
    assert kept({old: 7, today: 8}).attributes == {old: 7, today: 8}, "what is told under today's name holds"


def test_ids_are_found_wherever_they_stand() -> None:
    many = {f"n{number}": number for number in range(plain.MAX_ATTRIBUTES)}
    found = kept(many | {c.GEN_AI_RESPONSE_ID: "chatcmpl-1", c.GEN_AI_REQUEST_ID: "r"})
    assert (found.request_id, found.response_id) == ("r", "chatcmpl-1")
    assert set(found.attributes) == set(many)


@pytest.mark.parametrize(
    ("values", "ids"),
    [
        ({"llm.response.id": "older"}, ("", "older")),
        ({"llm.response.id": "older", c.GEN_AI_RESPONSE_ID: "today"}, ("", "today")),
        ({c.GEN_AI_REQUEST_ID: 17}, ("17", "")),
        ({c.GEN_AI_REQUEST_ID: f"{ENDS_SO}7"}, ("", "")),
        ({c.GEN_AI_REQUEST_ID: ["a"], c.GEN_AI_RESPONSE_ID: b"a"}, ("", "")),
        ({c.GEN_AI_REQUEST_ID: "a\0b"}, ("a\ufffdb", "")),
        ({c.GEN_AI_REQUEST_ID: "x" * 600}, ("x" * 512, "")),
        ({"rid": "cut"}, ("", "")),
        ({"rid": "cut", "module": "shop"}, ("", "")),
        ({"rid": "cut", "module": "sglang::request"}, (f"{ENDS_SO}cut", "")),
        ({"rid": "cut", "module": "sglang::request", c.GEN_AI_REQUEST_ID: "un_cut"}, ("un_cut", "")),
        ({"rid": 3, "module": "sglang::request"}, (f"{ENDS_SO}3", "")),
        ({"rid": "", "module": "sglang::request"}, ("", "")),
    ],
)
def test_whose_span_it_is(values: dict[str, Any], ids: tuple[str, str]) -> None:
    found = kept(values)
    assert (found.request_id, found.response_id) == ids


def test_an_id_of_64_bits_is_one_and_a_shorter_one_is_none() -> None:
    assert kept({}, trace_id=bytes(8) + b"\1" * 8).trace_id == "0" * 16 + "01" * 8
    for wrong in (b"\1" * 8, b"\1" * 15, b"\1" * 17, bytes(16), b""):
        span = otlp.span("chat", {})
        span.trace_id = wrong
        batches, tally = traces.read(otlp.traces(span, scope="other"))
        assert (batches, tally.foreign, tally.rejected) == ([], 1, 0)
        assert "its trace id is not 16 bytes" in tally.explain()


def test_what_our_tracer_tells_of_the_answer_is_read() -> None:
    span = otlp.request_span(1, **{c.GEN_AI_RESPONSE_ID: "chatcmpl-1"})
    [batch], _ = traces.batches_of(otlp.traces(span, otlp.request_span(2)))
    assert [report.response_id for report in batch.requests] == ["chatcmpl-1", ""]
