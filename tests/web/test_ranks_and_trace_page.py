"""What the pages say of ranks and of the trace of a request, from facts in a store."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serverkit.live import Live, serving
from specscope import convention as c
from specscope_server.store.told import LogBatch, SpanBatch
from storekit import facts

ONE: dict[str, Any] = {"process_uid": "p1", "tp": 1}
CALLER = "00f067aa0ba902b7"


@pytest.fixture
def live(tmp_path: Path) -> Generator[Live]:
    with serving(f"sqlite:///{tmp_path / 'store.db'}") as found:
        yield found


def tell(live: Live, *told: Any, **process: Any) -> None:
    live.store.write([facts.batch(*told, facts.heartbeat(2), **process)], facts.NOW)


def sentences(live: Live) -> list[str]:
    page = live.client.get(f"/engines/{facts.ENGINE}").text
    return re.findall(r"Ranks([^<]*)\.</p>", page)


def test_one_rank_is_not_spoken_of(live: Live) -> None:
    tell(live, facts.REPORT)
    assert sentences(live) == []


def test_ranks_that_agree_part_or_are_not_heard(live: Live) -> None:
    tell(live, facts.rank_steps(3, 8))
    assert sentences(live) == [": Not comparable: 1 of 2 ranks heard (rank 0), so not all could be compared"]
    tell(live, facts.rank_steps(3, 4), **ONE)
    assert sentences(live) == [": 2 of 2 ranks heard, 4 steps compared, 0 differ"]
    tell(live, facts.rank_steps(7, 4, other=[8]), **ONE)
    assert sentences(live) == [
        ": 2 of 2 ranks heard, 8 steps compared: from step 8 on 0 proposals and 1 accepts differ"
    ]
    (told,) = live.get(f"/api/v1/engines/{facts.ENGINE}")["ranks"]
    assert (told["heard"], told["compared"], told["first_step"]) == ([0, 1], 8, 8)


def test_groups_have_names(live: Live) -> None:
    for dp in (0, 1):
        tell(live, facts.rank_steps(3, 4), process_uid=f"a{dp}", dp=dp)
    assert [text.partition(":")[0] for text in sentences(live)] == [" (dp 0 pp 0)", " (dp 1 pp 0)"]


def test_a_request_without_a_trace_says_how_to_get_one(live: Live) -> None:
    tell(live, facts.request())
    page = live.client.get("/requests/u0").text
    assert "--enable-trace" in page
    assert '<table class="trace">' not in page


def test_spans_of_other_tools_stand_in_the_trace_and_do_no_harm(live: Live) -> None:
    root = facts.span(0, name="<b>POST</b>", parent_id=CALLER, attributes={"rid": '"><script>'}, failed=True)
    tell(live, replace(facts.request(), parent_span_id=root.span_id))
    live.store.write([SpanBatch("default", (root, facts.span(1)))], facts.NOW)
    page = live.client.get("/requests/u0").text
    _, _, table = page.partition('<table class="trace">')
    assert "<b>POST</b>" not in page and "<script>" not in table
    depths = re.findall(r'<td class="depth-(\d+)( ours)?"', table)
    assert sorted(depths) == [("0", ""), ("1", ""), ("1", " ours")]
    assert c.SPAN_REQUEST in table
    assert f"span <code>{CALLER}</code> of the caller, was not received" in page


def test_joined_spans_and_log_records_do_no_harm(live: Live) -> None:
    joined = facts.span(0, trace="<i>theirs", name="<b>call</b>", request_id="rid-u0", response_id="<u>1")
    record = facts.log_record(0, body="<script>alert(1)</script>", service='"><b>', attributes={'a"': "<b>"})
    tell(live, facts.request())
    live.store.write([SpanBatch("default", (joined,)), LogBatch("default", (record,))], facts.NOW)
    page = live.client.get("/requests/u0").text
    _, _, panel = page.partition('id="trace"')
    panel, _, _ = panel.partition("</section>")
    assert "Joined from trace <code>&lt;i&gt;theirs</code>" in panel
    assert "a span in it has this request&#39;s id" in panel
    assert '<td class="body" title="a&#34;=&lt;b&gt;">&lt;script&gt;alert(1)&lt;/script&gt;</td>' in panel
    assert re.findall(r"<(?:b|i|u|script)\b", panel) == []
    assert "<dt>response id</dt><dd><code>&lt;u&gt;1</code></dd>" in page


def test_without_records_and_joined_spans_nothing_is_said_of_them(live: Live) -> None:
    tell(live, facts.request())
    page = live.client.get("/requests/u0").text
    assert not any(words in page for words in ("Joined from", "Log records", "response id</dt>"))
