"""Why a boundary cannot be seen, as the engine's page and the API tell it."""

from __future__ import annotations

from serverkit import otlp
from serverkit.live import serving
from specscope import convention as c

TOLD = {
    c.DRAFT_EXTEND: (c.ARMING_MISSING, "EagleDraftWorker.extend does not exist in this engine version"),
    c.AUX_CAPTURE: (c.ARMING_CHANGED, "pack has no parameter states in this engine version"),
    c.ENGINE_COMMIT: (c.ARMING_FAILED, "hook commit disarmed itself: KeyError: 'x'"),
    c.DRAFT_MAP: (c.ARMING_OFF, "the draft has the target's vocabulary and needs no map"),
    c.DRAFT_PROPOSE: (c.ARMING_ARMED, ""),
}


def test_the_state_of_the_hooks_is_shown(sqlite_url: str) -> None:
    points = [
        otlp.point(
            int(state == c.ARMING_ARMED),
            {c.LABEL_BOUNDARY: boundary, c.LABEL_ARMING: state}
            | ({c.LABEL_REASON: reason} if reason else {}),
        )
        for boundary, (state, reason) in TOLD.items()
    ]
    with serving(sqlite_url) as live:
        sent = otlp.metrics(otlp.gauge(c.METRIC_ARMED, *points))
        assert live.export(sent, "/v1/metrics").status_code == 200
        [engine] = live.get("/api/v1/engines")["items"]
        lines = {line["boundary"]: line for line in engine["ledger"]}
        for boundary, (state, reason) in TOLD.items():
            line = lines[boundary]
            assert (line["arming"], line["reason"]) == (state, reason)
            assert line["armed"] == (state == c.ARMING_ARMED)
        page = live.client.get(f"/engines/{engine['engine_uid']}").text
    for state in (c.ARMING_MISSING, c.ARMING_CHANGED, c.ARMING_FAILED, c.ARMING_OFF):
        assert page.count(f'<p class="arming arming-{state}">hook {state}</p>') == 1
    assert "hook armed" not in page
    assert "EagleDraftWorker.extend does not exist in this engine version" in page
