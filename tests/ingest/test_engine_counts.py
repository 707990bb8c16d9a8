"""The engine's own counters of a request come in only where they can be held against totals of ours."""

from __future__ import annotations

from typing import Any

import pytest
from serverkit import otlp
from specscope import convention as c
from specscope_server.ingest.traces import batches_of
from specscope_server.store.told import EngineCounts, RequestReport

TOLD: dict[str, Any] = {c.REQUEST_ENGINE_STEPS: 9, c.REQUEST_ENGINE_ACCEPTED: 13}


def _report(**values: Any) -> RequestReport:
    (batch,), _ = batches_of(otlp.traces(otlp.request_span(**values)))
    (report,) = batch.requests
    return report


def test_told_beside_whole_totals() -> None:
    assert _report(**TOLD).engine == EngineCounts(9, 13)


@pytest.mark.parametrize(
    "absent", [c.REQUEST_ENGINE_STEPS, c.REQUEST_ENGINE_ACCEPTED, c.REQUEST_VERIFY_STEPS]
)
def test_without_one_of_them_there_is_nothing_to_compare(absent: str) -> None:
    assert _report(**TOLD | {absent: None}).engine is None


def test_nonsense_rejects_the_span() -> None:
    found, tally = batches_of(otlp.traces(otlp.request_span(**TOLD | {c.REQUEST_ENGINE_STEPS: -1})))
    assert found == []
    assert any(c.REQUEST_ENGINE_STEPS in reason for reason in tally.reasons), tally
