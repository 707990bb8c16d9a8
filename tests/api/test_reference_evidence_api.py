"""An engine judged now, held against a reference that was sent: evidence, finding, page, evaluator."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from serverkit import otlp
from serverkit.live import Live
from specscope_server.diagnosis import aux_layers
from specscope_server.store.told import Batch
from specscope_server.store.values import from_ns
from storekit import facts
from storekit.reference_requests import told
from storekit.references import file, passage, rows, states

ENGINE = f"/api/v1/engines/{facts.ENGINE}"


def now(batch: Batch) -> Batch:
    """Return a batch of :data:`facts.NOW` as of the time at which this module runs."""
    later = otlp.now_ns() - facts.NOW_NS

    def moved(one: Any, *names: str) -> Any:
        return replace(one, **{name: getattr(one, name) + later for name in names})

    return replace(
        batch,
        process=moved(batch.process, "start_ns"),
        engines=tuple(moved(one, "event_ns") for one in batch.engines),
        requests=tuple(moved(one, "arrival_ns", "end_ns") for one in batch.requests),
        chunks=tuple(moved(one, "start_ns", "end_ns") for one in batch.chunks),
    )


def found(live: Live) -> list[dict[str, Any]]:
    return [one for one in live.get(ENGINE)["findings"] if one["kind"] == aux_layers.KIND]


def test_a_wrong_order_is_named_from_the_reference_on(live: Live) -> None:
    wrong = states()[:, [2, 1, 0]]
    live.store.write([now(told("u0", rows(wrong)))], from_ns(otlp.now_ns()))
    assert live.get(f"{ENGINE}/evidence")["evidence"]["reference"] == []
    assert found(live) == []
    assert "has a reference" in live.get(ENGINE)["unknown"][aux_layers.KIND]

    sent = live.client.post(
        "/api/v1/references",
        content=file(passage(states(), name="whole")),
        headers={"Content-Type": "application/jsonl"},
    ).json()
    told_now = live.get(f"{ENGINE}/evidence")["evidence"]["reference"]
    assert [(one["slot"], one["after"], one["rows"], one["reference"]) for one in told_now] == [
        (slot, after, rows, sent["reference_uid"])
        for after, rows in (("", 60), ("prefill", 20), ("verify", 40))
        for slot in range(3)
    ]
    assert told_now[0]["other_slots"]["2"] < 0.02 < 0.3 < told_now[0]["relative_error"]
    assert set(told_now[0]["shifted"]) == {"-1", "1"}
    (said,) = found(live)
    assert (said["fault_class"], said["confidence"]) == ("F05", "certain")
    assert "slot 0 holds what slot 2 should" in said["sentence"]

    until = time.monotonic() + 60
    while not (stored := live.get("/api/v1/findings")["items"]) and time.monotonic() < until:
        time.sleep(0.2)
    assert [(one["kind"], one["engine_uid"]) for one in stored] == [(aux_layers.KIND, facts.ENGINE)]
    assert said["title"] in live.client.get(f"/engines/{facts.ENGINE}").text
