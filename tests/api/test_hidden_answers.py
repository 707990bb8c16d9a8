"""Hidden states through the API: places, baselines, single looks; bounds and errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from serverkit import otlp
from serverkit.live import Live
from specscope import convention as c
from specscope import hidden, hidden_rollup, rollup
from specscope_server.store.values import from_ns
from storekit import facts

ENGINE = f"/api/v1/engines/{otlp.engine_uid()}/hidden"
REQUEST = f"/api/v1/requests/{otlp.request_uid(0)}/hidden"


def _tell(live: Live, seq: int, ago_s: int, rms: float, accepted: int = 12) -> None:
    sums = {
        facts.PLACE: facts.looks(20, rms),
        facts.place(hidden.CARRY): facts.looks(20, 2.0),
        facts.place(hidden.CARRY, source="self_fed", draft_step=1): facts.looks(20, 1.0),
    }
    values: dict[str, Any] = {
        c.ROLLUP_BUCKET: rollup.bucket_start(otlp.now_ns() - ago_s * 1_000_000_000),
        c.ROLLUP_ROWS: rollup.pack(otlp.rollup_rows(accepted=accepted)),
        c.ROLLUP_HIDDEN: hidden_rollup.pack(sums),
    }
    assert live.export(otlp.traces(otlp.rollup_span(seq, **values))).status_code == 200


def test_places_that_were_looked_at_and_no_others(live: Live) -> None:
    _tell(live, 1, 20, 4.0)
    answer = live.get(ENGINE)
    assert [(one["place"], one["draft_step"], one["looks"], one["rows"]) for one in answer["places"]] == [
        ("draft.extend", 0, 20, 40),
        ("draft.carry", 0, 20, 40),
        ("draft.carry", 1, 20, 40),
    ]
    first = answer["places"][0]
    assert (first["rms"], first["geometric_rms"], first["deviation"], first["max_abs"]) == (
        4.0,
        4.0,
        0.0,
        12.0,
    )
    assert answer["carries"] == [
        {"draft_step": 0, "slot": 0, "after": "verify", "mode": "eager", "ratio": 0.5}
    ]
    assert answer["baseline"] is None


def test_nothing_looked_at_is_no_place(live: Live) -> None:
    assert live.export(otlp.traces(otlp.request_span(0))).status_code == 200
    end = (from_ns(otlp.now_ns()) - timedelta(hours=1)).isoformat()
    answer = live.get(ENGINE, baseline_end=end)
    assert (answer["places"], answer["carries"], answer["baseline"]["drifts"]) == ([], [], [])
    assert (answer["baseline"]["healthy"], answer["baseline"]["verify_steps"]) == (False, 0)


@pytest.mark.parametrize(
    ("accepted", "healthy", "reason"), [(12, True, ""), (1, False, "was 1.12, below 1.2")]
)
def test_an_earlier_time_and_whether_it_was_healthy(
    live: Live, accepted: int, healthy: bool, reason: str
) -> None:
    _tell(live, 1, 7200, 4.0, accepted)
    _tell(live, 2, 20, 0.4)
    end = (from_ns(otlp.now_ns()) - timedelta(hours=1)).isoformat()
    baseline = live.get(ENGINE, window_s=600, baseline_end=end, baseline_s=7200)["baseline"]
    assert (baseline["healthy"], baseline["verify_steps"]) == (healthy, 8)
    assert reason in baseline["reason"] and bool(baseline["reason"]) is not healthy
    fed, *carries = baseline["drifts"]
    assert (fed["verdict"], fed["looks"], fed["baseline_looks"]) == ("moved", 20, 20)
    assert fed["log2_ratio"] == pytest.approx(-3.3219, abs=1e-3)
    assert {one["verdict"] for one in carries} == {"same"}
    # Before the engine there was nothing: that is not known, and not the same.
    end = (from_ns(otlp.now_ns()) - timedelta(hours=5)).isoformat()
    drifts = live.get(ENGINE, window_s=600, baseline_end=end)["baseline"]["drifts"]
    assert {(one["verdict"], one["log2_ratio"]) for one in drifts} == {("unknown", None)}


def _look(number: int, **changed: Any) -> hidden.HiddenRow:
    return facts.look(number, **changed)


def test_looks_of_a_request(live: Live) -> None:
    rows = [
        _look(0, after="prefill", rows=3, levels=[512, hidden.NO_LEVEL, -256], fingerprints=[16] * 24),
        _look(1, slot=2, mean=float("nan"), std=float("nan"), levels=None, fingerprints=None),
        _look(1, place=hidden.FC_IN, same_as=hidden.FED, mean=None, std=None, levels=None, fingerprints=None),
    ]
    values: dict[str, Any] = {
        c.CHUNK_HIDDEN: hidden.pack(rows),
        c.CHUNK_PROMPT: facts.prompt().ids,
    }
    assert live.export(otlp.traces(otlp.steps_span(0, **values))).status_code == 200
    answer = live.get(REQUEST)
    assert (answer["prompt_tokens"], answer["prompt_sha256"]) == (12, facts.prompt().sha256)
    prefill, broken, same = answer["looks"]
    assert (prefill["token_rms"], prefill["fingerprints"]) == ([4.0, None, 0.5], 3)
    assert (prefill["rms"], prefill["rows"], prefill["after"]) == (4.0, 3, "prefill")
    assert (broken["slot"], broken["mean"], broken["token_rms"]) == (2, "NaN", [])
    assert (same["same_as"], same["rms"], same["mean"]) == ("draft.extend", None, None)
    assert [one["slot"] for one in live.get(REQUEST, slot=2)["looks"]] == [2]
    assert [one["place"] for one in live.get(REQUEST, place=hidden.FC_IN)["looks"]] == [hidden.FC_IN]
    short = live.get(REQUEST, limit=1)
    assert (len(short["looks"]), short["left_out"]) == (1, 2)


def test_an_answer_is_bounded_by_its_tokens(live: Live) -> None:
    rows = [_look(n, rows=512, levels=[1] * 512, fingerprints=[0] * 4096) for n in range(200)]
    values: dict[str, Any] = {c.CHUNK_HIDDEN: hidden.pack(rows)}
    assert live.export(otlp.traces(otlp.steps_span(0, **values))).status_code == 200
    answer = live.get(REQUEST)
    assert (len(answer["looks"]), answer["left_out"]) == (195, 5)


def test_unknown_engines_and_requests(live: Live) -> None:
    for path, code in ((ENGINE, "engine_not_found"), (REQUEST, "request_not_found")):
        answer = live.client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)


@pytest.mark.parametrize(
    "query",
    [
        f"{ENGINE}?window_s=1",
        f"{ENGINE}?baseline_s=1",
        f"{ENGINE}?baseline_end=yesterday",
        f"{ENGINE}?baseline_end=1850-01-01T00:00:00Z",
        f"{ENGINE}?other=1",
        f"{REQUEST}?steps=0",
        f"{REQUEST}?steps=1001",
        f"{REQUEST}?limit=2001",
        f"{REQUEST}?slot=-1",
    ],
)
def test_bad_parameters(told: Live, query: str) -> None:
    assert told.client.get(query).status_code == 400
