"""A scheduler that is nothing we know: it serves, and it is told that nothing of it can be seen, and why."""

from __future__ import annotations

import logging

import pytest
from specscope import convention as c
from specscope.engines.sglang import plugin
from wirekit import traffic
from wirekit.receiver import Receiver, eventually


def test_an_engine_of_which_nothing_is_known_has_a_heartbeat_and_a_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with Receiver() as receiver:
        monkeypatch.setenv("SPECSCOPE_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("SPECSCOPE_INSTANCE", traffic.INSTANCE)
        seen: dict[tuple[str, ...], float] = {}

        def serves(scheduler: object) -> str:
            seen.update(
                eventually(lambda: receiver.received.points(c.METRIC_ARMED), "the states of the boundaries")
            )
            return f"served {type(scheduler).__name__}"

        assert plugin.serve(serves, object()) == "served object"
        assert {(boundary, state) for boundary, state, _ in order(seen)} == {
            (boundary, c.ARMING_CHANGED) for boundary in c.BOUNDARIES
        }
        assert all(
            reason.startswith("this scheduler is not built as we know it: ") for *_, reason in order(seen)
        )
        assert receiver.received.points(c.METRIC_EXPECTED) == {}
        assert receiver.received.points(c.METRIC_SPECULATION) == {}
    assert "only heartbeats are sent" in caplog.text


def order(points: dict[tuple[str, ...], float]) -> list[tuple[str, ...]]:
    """The labels of each point: boundary, state, reason; none of them is armed."""
    assert set(points.values()) == {0}
    return list(points)
