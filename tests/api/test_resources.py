"""What the API says of what was told, and that undefined is null."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from serverkit import otlp
from serverkit.live import Live
from specscope import convention as c
from specscope import rollup
from specscope_server.api.findings import StoredFinding
from specscope_server.diagnosis import Finding, Number


def test_engine_tells_acceptance_ledger_and_state(told: Live) -> None:
    [engine] = told.get("/api/v1/engines")["items"]
    assert (engine["name"], engine["model"], engine["engine_name"]) == ("tiny", "tiny-target", "sglang")
    assert (engine["acceptance_length"], engine["acceptance_rate"], engine["verify_steps"]) == (2.5, 0.5, 8)
    assert engine["positions"] == [{"position": 1, "drafted": 8, "accepted": 6, "rate": 0.75}]
    assert engine["ledger"] == [
        {
            "boundary": c.DRAFT_FC,
            "source": c.TARGET_FED,
            "expected": 9,
            "observed": 9,
            "observed_by_mode": {"eager": 9},
            "armed": True,
            "reason": "",
            "arming": "armed",
        }
    ]
    assert engine["state"] and engine["state_reason"]
    # The heartbeat counted 3, but 5 are known.
    assert engine["requests"] == {"user": 5}


def test_one_engine_tells_processes_and_configuration(told: Live) -> None:
    [listed] = told.get("/api/v1/engines")["items"]
    engine = told.get(f"/api/v1/engines/{listed['engine_uid']}")
    assert engine["config"]["speculative"] == {"algorithm": "EAGLE3", "num_steps": 3}
    [process] = engine["processes"]
    assert (process["process_uid"], process["pid"], process["role"]) == (
        otlp.process(),
        otlp.PID,
        "scheduler",
    )
    assert (process["dropped"], process["hook_errors"]) == ({"queue full": 2}, {"fc": 1})
    assert {name: engine[name] for name in listed if name not in ("state_reason", "unknown", "findings")} == {
        name: listed[name] for name in listed if name not in ("state_reason", "unknown", "findings")
    }


def test_bypassed_fc_is_found_and_evidenced(live: Live) -> None:
    """The seed's fault from its facts: fc expected at every target-fed pass, never run."""
    rows = {
        (rollup.ALL, "", rollup.STEP): rollup.Counts(
            steps=600, drafted_depth=1800, drafted_nodes=1800, bonus=600, committed=600, zero_steps=600
        )
    }
    spans = [otlp.engine_span(), otlp.rollup_span(**{c.ROLLUP_ROWS: rollup.pack(rows)})]
    assert live.export(otlp.traces(*spans)).status_code == 200
    before, after = otlp.now_ns() - 60_000_000_000, otlp.now_ns()
    for time_ns, expected in ((before, 0), (after, 600)):
        beat = otlp.metrics(*otlp.heartbeat_metrics(time_ns, expected=expected, fc=0))
        assert live.export(beat, "/v1/metrics").status_code == 200
    [engine] = live.get("/api/v1/engines")["items"]
    [fc] = [line for line in engine["ledger"] if line["boundary"] == c.DRAFT_FC]
    assert (fc["expected"], fc["observed"], fc["armed"]) == (600, 0, True)
    assert engine["acceptance_length"] == 1.0
    found = {finding["kind"]: finding for finding in engine["findings"]}
    assert "F04" in {finding["fault_class"] for finding in found.values()}, found
    for finding in found.values():
        assert finding["sentence"] and finding["numbers"]


def test_undefined_is_null(live: Live) -> None:
    silent = otlp.request_span(
        1,
        **dict.fromkeys(
            (c.REQUEST_VERIFY_STEPS, c.REQUEST_ACCEPTED, c.REQUEST_BONUS, c.REQUEST_DRAFTED_DEPTH), 0
        ),
    )
    assert live.export(otlp.traces(silent)).status_code == 200
    [found] = live.get("/api/v1/requests")["items"]
    assert (found["acceptance_length"], found["acceptance_rate"]) == (None, None)
    [engine] = live.get("/api/v1/engines")["items"]
    assert (engine["acceptance_length"], engine["acceptance_rate"], engine["verify_steps"]) == (
        None,
        None,
        None,
    )
    assert engine["counts"] is None
    assert live.get("/api/v1/series")["items"] == []


def test_no_data_is_an_empty_list(live: Live) -> None:
    for path in ("engines", "requests", "findings", "alerts", "series"):
        assert live.get(f"/api/v1/{path}")["items"] == []


def test_workspaces_do_not_see_each_other(live: Live) -> None:
    about = otlp.resource(specscope__workspace="team")
    assert live.export(otlp.traces(otlp.engine_span(), otlp.request_span(1), about=about)).status_code == 200
    uid = otlp.request_uid(1)
    for path in ("engines", "requests"):
        assert live.get(f"/api/v1/{path}")["items"] == []
        assert len(live.get(f"/api/v1/{path}", workspace="team")["items"]) == 1
    assert live.client.get(f"/api/v1/requests/{uid}").status_code == 404
    assert live.client.get(f"/api/v1/requests/{uid}", params={"workspace": "team"}).status_code == 200


def test_pages_of_requests_have_each_once(told: Live) -> None:
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(5):
        page = told.get("/api/v1/requests", limit=2, **({"cursor": cursor} if cursor else {}))
        seen += [item["rid"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ["rid-4", "rid-3", "rid-2", "rid-1", "rid-0"]


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"text": "rid-3"}, 1),
        ({"text": "rid-"}, 5),
        ({"text": "nobody"}, 0),
        ({"rid": "rid-2"}, 1),
        ({"rid": "rid-"}, 0),
        ({"model": "tiny-target"}, 5),
        ({"model": "other"}, 0),
        ({"state": "finished"}, 5),
        ({"state": "running"}, 0),
        ({"kind": "user"}, 5),
        ({"kind": "health_check"}, 0),
        ({"flag": "zero_acceptance"}, 0),
        ({"acceptance_min": 2.5}, 5),
        ({"acceptance_min": 2.6}, 0),
        ({"acceptance_max": 2.5}, 5),
        ({"acceptance_max": 2.4}, 0),
        ({"trace_id": otlp.request_span(4).trace_id.hex()}, 1),
        ({"response_id": "rid-2"}, 1),
        ({"response_id": "rid-"}, 0),
        ({"response_id": "rid-2", "workspace": "other"}, 0),
        ({"engine": "nobody"}, 0),
        ({"workspace": "other"}, 0),
        ({"text": "rid-1", "state": "finished", "kind": "user", "acceptance_min": 1}, 1),
    ],
)
def test_every_filter_selects(told: Live, params: dict[str, str], count: int) -> None:
    assert len(told.get("/api/v1/requests", **params)["items"]) == count


@pytest.mark.parametrize(
    ("name", "minutes", "zone", "count"),
    [
        ("since", -1, UTC, 5),
        ("since", 1, UTC, 0),
        ("until", -1, UTC, 0),
        ("since", -1, None, 5),
    ],
)
def test_filters_by_arrival(told: Live, name: str, minutes: int, zone: tzinfo | None, count: int) -> None:
    arrived = datetime.fromtimestamp(otlp.now_ns() / 1e9 - 5, UTC)
    moment = (arrived + timedelta(minutes=minutes)).replace(tzinfo=zone).isoformat()
    assert len(told.get("/api/v1/requests", **{name: moment})["items"]) == count


def test_one_request_tells_its_steps_in_a_window(told: Live) -> None:
    uid = otlp.request_uid(0)
    whole = told.get(f"/api/v1/requests/{uid}")
    assert [step["accepted"] for step in whole["steps"]] == [0, 1, 2, 3]
    assert "draft_tokens" not in whole["steps"][0] or whole["steps"][0]["draft_tokens"] is None
    [extend] = whole["extends"]
    assert (extend["fed_width"], extend["mean"]) == (192, "NaN")  # not a number is said, not hidden
    part = told.get(f"/api/v1/requests/{uid}", first_step=1, limit=2)
    assert [step["accepted"] for step in part["steps"]] == [1, 2]
    assert part["first_step"] == 1
    assert part["steps_total"] == whole["steps_total"]


def test_series_has_one_point_and_no_zeros_for_gaps(told: Live) -> None:
    series = told.get("/api/v1/series", bucket=10)
    [point] = series["items"]
    assert point["counts"]["acceptance_length"] == 2.5
    assert datetime.fromisoformat(point["start"]).timestamp() == rollup.bucket_start(otlp.now_ns())
    assert told.get("/api/v1/series", engine="nobody")["items"] == []


def test_status_counts_what_was_taken(told: Live) -> None:
    status = told.get("/api/v1/status")
    traces = status["ingest"]["traces"]
    assert (traces["exports"], traces["accepted"], traces["rejected"], traces["foreign"]) == (1, 8, 0, 0)
    assert traces["bytes"] > 1000
    assert status["ingest"]["commit"]["count"] == status["ingest"]["lag"]["count"] == 2
    assert status["ingest"]["metrics"]["accepted"] == 11
    assert (status["ingest"]["waiting"], status["ingest"]["waiting_bytes"]) == (0, 0)
    assert status["capabilities"] == asdict(told.store.capabilities)
    assert status["capabilities"]["durable_commit"] is True


def test_health(live: Live) -> None:
    assert live.get("/healthz")["status"] == "ok"
    live.store.close()


def test_stored_findings_keep_their_body_readable(live: Live) -> None:
    assert live.export(otlp.traces(otlp.engine_span())).status_code == 200
    [engine] = live.get("/api/v1/engines")["items"]
    finding = Finding(
        kind="fc_bypassed",
        fault_class="F04",
        severity="critical",
        confidence="certain",
        title="fc bypassed",
        sentence="It did not run.",
        numbers=(Number("rms", float("nan"), 1.0),),
    )
    now = datetime.now(UTC)
    live.store.replace_findings(engine["engine_uid"], [finding], now)
    row = live.store.findings("default")[0]
    told = StoredFinding.of(row).model_dump(mode="json")
    assert (told["kind"], told["fault_class"], told["closed"]) == ("fc_bypassed", "F04", None)
    assert told["body"]["numbers"][0]["name"] == "rms"
    listed = live.client.get("/api/v1/findings", params={"active": False, "engine": engine["engine_uid"]})
    assert listed.status_code == 200
    assert "fc_bypassed" in {item["kind"] for item in listed.json()["items"]}
