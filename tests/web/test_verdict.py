"""The verdict on a request, from literals: said first, and never more than the counts carry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from specscope import convention as c
from specscope_server.store.model import BoundaryState, RequestDetail, RequestRow
from specscope_server.store.told import RequestTotals
from specscope_server.web import stations, verdict
from specscope_server.web.verdict import BAD, OFF, OK, WARN, judge

AT = datetime(2026, 1, 1, tzinfo=UTC)


def row(totals: RequestTotals, *, state: str = "finished", kind: str = "user", output: int = 9) -> RequestRow:
    return RequestRow(
        uid="u", engine_uid="e", engine="engine", model="m", rid="r", trace_id="t", state=state, kind=kind,
        arrival=AT, end=AT, last_received=AT, prompt_tokens=4, output_tokens=output, cached_tokens=0,
        temperature=0.0, max_tokens=9, finish_reason="stop", queue_s=None, first_token_s=None,
        totals=totals, detail="steps",
    )  # fmt: skip


def detail(request: RequestRow, *boundaries: BoundaryState) -> RequestDetail:
    return RequestDetail(request, (), (), boundaries, request.totals.verify_steps)


def line(boundary: str, expected: int, seen: int, *, armed: bool = True, reason: str = "") -> BoundaryState:
    return BoundaryState(boundary, c.NO_SOURCE, expected, {c.EAGER: seen} if seen else {}, armed, reason)


GOOD = RequestTotals(10, 40, 40, 19, 10, 29, 2)
NOTHING = RequestTotals(10, 40, 40, 0, 10, 10, 10)


def test_a_boundary_that_never_ran_is_the_headline() -> None:
    said = judge(detail(row(NOTHING), line(c.AUX_CAPTURE, 11, 11), line(c.DRAFT_FC, 11, 0)))
    assert (said.tone, said.headline) == (BAD, "draft.fc never ran")
    assert said.reasons[0].startswith("draft.fc: expected 11, observed 0. It never ran: the draft works on")
    assert "0 of 40 drafted positions were accepted over 10 verify steps" in said.reasons[-1]


def test_one_missing_crossing_of_a_request_counts() -> None:
    said = judge(detail(row(GOOD), line(c.DRAFT_FC, 11, 10)))
    assert (said.tone, said.headline) == (BAD, "draft.fc ran too seldom")


def test_a_boundary_that_cannot_be_seen_is_never_a_gap() -> None:
    said = judge(
        detail(row(GOOD), line(c.DRAFT_FC, 11, 0, armed=False, reason="graph"), line(c.TARGET_VERIFY, 10, 10))
    )
    assert said.tone == OK
    assert "Not observable: draft.fc." in said.reasons


def test_all_rejected_with_a_whole_path_is_said_as_that() -> None:
    said = judge(detail(row(NOTHING), line(c.DRAFT_FC, 11, 11)))
    assert (said.tone, said.headline) == (BAD, "Every draft token was rejected")
    assert "Every boundary that could be observed was crossed as often as expected." in said.reasons


def test_without_boundary_counts_nothing_is_said_of_the_path() -> None:
    said = judge(detail(row(GOOD)))
    assert (said.tone, said.headline) == (OK, "2.90 tokens per verify step")
    assert "This request brought no boundary counts, so nothing is said of the path." in said.reasons


def test_no_verify_step_is_undefined_with_its_reason() -> None:
    none = RequestTotals()
    reasons = {
        "health check": judge(detail(row(none, kind="health_check"))),
        "running": judge(detail(row(none, state="running"))),
        "token that prefill gives": judge(detail(row(none, output=1))),
        "speculation was off": judge(detail(row(none, output=9))),
    }
    for says, found in reasons.items():
        assert (found.tone, found.headline) == (OFF, "No verify step")
        assert says in found.reasons[0]


def test_nothing_drafted_is_not_zero_acceptance() -> None:
    said = judge(detail(row(RequestTotals(10, 0, 0, 0, 10, 10, 0))))
    assert (said.tone, said.headline) == (WARN, "Nothing was drafted")
    assert "undefined, not 0" in said.reasons[0]


def test_a_lost_request_says_that_its_numbers_are_old() -> None:
    said = judge(detail(row(GOOD, state="lost")))
    assert said.tone == WARN
    assert said.reasons[-1] == "Its process fell silent before the end; the numbers are as last heard."


def runs(*accepted: int | None) -> Sequence[dict[str, Any]]:
    return [{"drafted_depth": 0 if a is None else 4, "accepted": a or 0} for a in accepted]


def test_longest_run_without_an_accepted_token() -> None:
    assert verdict.longest_rejection(runs(1, 0, 0, 2, 0, 0, 0, 1)) == (3, 4)
    assert verdict.longest_rejection(runs(0, 0)) == (2, 0)
    assert verdict.longest_rejection(runs(0, None, 0)) == (1, 0)
    assert verdict.longest_rejection(runs(None, None)) is None
    assert verdict.longest_rejection(runs()) is None
    longest = verdict.longest_rejection(runs(3, 2))
    assert longest is not None
    assert longest[0] == 0


def test_stations_stand_in_the_order_of_the_path_and_name_what_is_not_on_it() -> None:
    found = stations.stations([line(c.TARGET_VERIFY, 5, 5), line(c.DRAFT_FC, 0, 0)])
    assert [s.boundary for s in found] == list(c.BOUNDARIES)
    states = {s.boundary: s.state for s in found}
    assert states[c.TARGET_VERIFY] == stations.OK
    assert states[c.DRAFT_FC] == stations.WAITING
    assert states[c.DRAFT_MAP] == stations.ABSENT


def test_an_engine_ledger_allows_for_passes_under_way() -> None:
    assert stations.crossing(line(c.DRAFT_FC, 1000, 995)).state == stations.OK
    assert stations.crossing(line(c.DRAFT_FC, 1000, 995), exact=True).state == stations.SHORT
    assert stations.crossing(line(c.DRAFT_FC, 1000, 970)).state == stations.SHORT
    assert stations.crossing(line(c.DRAFT_FC, 3, 0)).state == stations.BROKEN


def test_every_boundary_of_the_wire_has_its_place() -> None:
    assert set(stations.PLACES) == set(c.BOUNDARIES)
