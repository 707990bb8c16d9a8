"""Alert states, their history, and the queue of notifications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from specscope_server.store.model import AlertRow, DeliveryRow
from specscope_server.store.opening import open_store
from specscope_server.store.port import NewDelivery, Refused, Store
from storekit import facts

OK = AlertRow("silent_path", "Silent path", facts.ENGINE, "", "ok", "12 of 12", facts.ago(90), facts.ago(90))
FIRING = replace(OK, state="firing", reason="0 of 9", since=facts.ago(60), evaluated=facts.ago(60))
NEWS = NewDelivery("silent_path", facts.ENGINE, "firing", "https://example.org/hook", {"text": "0 of 9"})


@pytest.fixture
def engine(store_url: str) -> Iterator[Store]:
    """A store with one engine, whose clock stands at :data:`facts.NOW`."""
    opened = open_store(store_url, clock=lambda: facts.NOW_NS)
    opened.write([facts.batch(facts.REPORT)], facts.NOW)
    yield opened
    opened.close()


def test_states_read_back_firing_first(engine: Store) -> None:
    engine.set_alerts([OK, replace(FIRING, rule="zero"), replace(OK, rule="a", state="no data")], [])
    found = engine.alerts("default")
    assert [(row.rule, row.state) for row in found] == [
        ("zero", "firing"),
        ("a", "no data"),
        ("silent_path", "ok"),
    ]
    assert found[0] == replace(FIRING, rule="zero", engine="tiny")


def test_history_has_the_changes_only_and_a_first_ok_is_none(engine: Store) -> None:
    again = replace(FIRING, reason="0 of 20", since=facts.ago(30), evaluated=facts.ago(30))
    calm = replace(OK, since=facts.ago(5), evaluated=facts.ago(5))
    for alert in (OK, FIRING, again, calm, calm):
        engine.set_alerts([alert], [])
    (row,) = engine.alerts("default")
    assert (row.state, row.since, row.evaluated) == ("ok", facts.ago(5), facts.ago(5))
    assert [(a.state, a.since) for a in engine.alert_history("default", 10)] == [
        ("ok", facts.ago(5)),
        ("firing", facts.ago(60)),
    ]
    assert len(engine.alert_history("default", 1)) == 1


def test_while_a_state_lasts_its_since_stays_and_its_reason_moves(engine: Store) -> None:
    engine.set_alerts([FIRING], [])
    engine.set_alerts([replace(FIRING, reason="0 of 20", since=facts.ago(1), evaluated=facts.ago(1))], [])
    (row,) = engine.alerts("default")
    assert (row.since, row.evaluated, row.reason) == (facts.ago(60), facts.ago(1), "0 of 20")


def test_a_rule_that_fires_when_first_heard_of_is_a_change(engine: Store) -> None:
    engine.set_alerts([FIRING], [])
    assert [alert.state for alert in engine.alert_history("default", 10)] == ["firing"]


def test_a_notification_is_due_at_once_and_settled_once(engine: Store) -> None:
    engine.set_alerts([FIRING], [NEWS])
    (due,) = engine.due_deliveries(facts.NOW, 10)
    assert due == DeliveryRow(
        id=due.id,
        rule="silent_path",
        engine_uid=facts.ENGINE,
        state="firing",
        target="https://example.org/hook",
        status="pending",
        attempts=0,
        next_attempt=facts.NOW,
        error="",
        created=facts.NOW,
        payload={"text": "0 of 9"},
    )
    engine.settle_delivery(due.id, error="", next_attempt=None)
    engine.settle_delivery(due.id, error="late", next_attempt=facts.NOW)
    assert engine.due_deliveries(facts.NOW, 10) == []
    assert engine.deliveries("default", 10) == [
        replace(due, status="delivered", attempts=1, next_attempt=None)
    ]


def test_a_failed_attempt_is_due_again_later_until_given_up(engine: Store) -> None:
    engine.set_alerts([], [NEWS])
    (due,) = engine.due_deliveries(facts.NOW, 10)
    engine.settle_delivery(due.id, error="503", next_attempt=facts.ago(-30))
    assert engine.due_deliveries(facts.ago(-29), 10) == []
    (retry,) = engine.due_deliveries(facts.ago(-30), 10)
    assert (retry.attempts, retry.error, retry.status) == (1, "503", "pending")
    engine.settle_delivery(due.id, error="still 503", next_attempt=None)
    (given_up,) = engine.deliveries("default", 10)
    assert (given_up.attempts, given_up.error, given_up.status) == (2, "still 503", "failed")
    assert engine.due_deliveries(facts.ago(-999), 10) == []


def test_oldest_due_first_and_no_more_than_asked_of_an_address(engine: Store) -> None:
    engine.set_alerts([], [replace(NEWS, target=t, rule=r) for r in ("a", "b", "c") for t in ("t0", "t1")])
    first = engine.due_deliveries(facts.NOW, 10)[0]
    engine.settle_delivery(first.id, error="503", next_attempt=facts.ago(-5))

    def due(limit: int) -> list[str]:
        return [f"{d.target} {d.rule}" for d in engine.due_deliveries(facts.ago(-9), limit)]

    assert due(10) == ["t1 a", "t0 b", "t1 b", "t0 c", "t1 c", "t0 a"]
    assert due(1) == ["t1 a", "t0 b"], "what waits for one address keeps nothing from the other"
    assert [d.target for d in engine.deliveries("default", 2)] == ["t1", "t0"]


def test_what_comes_after_a_message_waits_until_that_is_settled(engine: Store) -> None:
    engine.set_alerts([], [NEWS, replace(NEWS, state="ok"), replace(NEWS, rule="zero")])
    first, other = engine.due_deliveries(facts.NOW, 10)
    assert (first.rule, first.state, other.rule) == ("silent_path", "firing", "zero")
    engine.settle_delivery(first.id, error="503", next_attempt=facts.ago(-30))
    assert engine.due_deliveries(facts.NOW, 10) == [other]
    engine.settle_delivery(first.id, error="", next_attempt=None)
    assert {d.state for d in engine.due_deliveries(facts.NOW, 10) if d.rule == "silent_path"} == {"ok"}


def test_a_clock_that_was_ahead_delays_nothing_once_it_is_right(engine: Store) -> None:
    engine.set_alerts([], [NEWS])
    (fresh,) = engine.due_deliveries(facts.ago(86_400), 10)
    engine.settle_delivery(fresh.id, error="503", next_attempt=facts.NOW)
    assert len(engine.due_deliveries(facts.ago(86_400), 10)) == 1, "no attempt is put off for so long"
    assert engine.due_deliveries(facts.ago(1800), 10) == []


def test_state_and_notifications_are_stored_together_or_not_at_all(engine: Store) -> None:
    with pytest.raises(Refused):
        engine.set_alerts([FIRING], [replace(NEWS, engine_uid="nobody")])
    assert engine.alerts("default") == engine.alert_history("default", 10) == []
    assert engine.deliveries("default", 10) == []
