"""Rules, silences, acknowledgements and notifications that are sent again, on every database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from specscope_server.store import alert_rules
from specscope_server.store.model import AlertRow, SilenceRow
from specscope_server.store.opening import open_store
from specscope_server.store.port import NewDelivery, Refused, Store
from storekit import facts

FIRING = AlertRow(
    *("silent_path", "Silent path", facts.ENGINE, "", "firing", "0 of 9", facts.ago(60), facts.ago(60)),
    told="firing",
    told_at=facts.ago(60),
    memo={"total": 3},
)
NEWS = NewDelivery("silent_path", facts.ENGINE, "firing", "to", {"text": "0 of 9"})
HOUR = SilenceRow("5afe", "", "chat-*", facts.NOW, facts.ago(-3600), facts.NOW, "ada", "deploy")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store with one engine, whose clock stands at :data:`facts.NOW`."""
    opened = open_store(store_url, clock=lambda: facts.NOW_NS)
    opened.write([facts.batch(facts.REPORT)], facts.NOW)
    yield opened
    opened.close()


def test_what_a_state_knows_comes_back(store: Store) -> None:
    row = replace(FIRING, pending="ok", pending_since=facts.ago(5), quiet="silenced", severity="critical")
    store.set_alerts([row], [])
    assert store.alerts("default") == [replace(row, engine="tiny")]


def test_many_states_at_once_are_stored_as_one_would_be(store: Store) -> None:
    """Eight rows and more go another way into PostgreSQL."""
    rows = [replace(FIRING, rule=f"rule_{n}", state="ok", told="", told_at=None) for n in range(20)]
    for _ in range(2):
        store.set_alerts(rows, [])
    assert {row.rule for row in store.alerts("default")} == {row.rule for row in rows}


def test_an_acknowledgement_lasts_as_long_as_the_firing(store: Store) -> None:
    assert not store.acknowledge("default", facts.ENGINE, "silent_path", "ada", "", facts.NOW)
    store.set_alerts([FIRING], [])
    assert not store.acknowledge("other", facts.ENGINE, "silent_path", "eve", "", facts.NOW)
    assert store.acknowledge("default", facts.ENGINE, "silent_path", "ada", "on it", facts.NOW)
    # The evaluator did not know of it when it wrote this.
    store.set_alerts([replace(FIRING, reason="0 of 20", evaluated=facts.ago(1))], [])
    (row,) = store.alerts("default")
    assert (row.acknowledged, row.acknowledged_by, row.note) == (facts.NOW, "ada", "on it")
    store.set_alerts([replace(FIRING, state="ok", told="", told_at=None)], [])
    assert store.alerts("default")[0].acknowledged is None


def test_a_change_keeps_its_evidence(store: Store) -> None:
    kept = {"verify_steps": 400, "findings": [{"kind": "fc_bypassed"}]}
    store.set_alerts([FIRING], [], {(facts.ENGINE, "silent_path"): kept})
    (event,) = store.alert_history("default", 9)
    assert event.evidence == kept
    assert store.alert_event("default", event.id) == event
    assert store.alert_event("other", event.id) is None
    assert store.alert_event("default", event.id + 1) is None


def test_a_firing_that_was_quiet_is_queued_when_it_is_told(store: Store) -> None:
    quiet = replace(FIRING, told="", told_at=None, quiet="silenced")
    store.set_alerts([quiet], [])
    store.set_alerts([FIRING], [NEWS])
    store.set_alerts([FIRING], [NEWS])
    assert len(store.deliveries("default", 9)) == 1, "another server that had not seen it"
    again = replace(FIRING, told_at=facts.ago(-300))
    store.set_alerts([again], [NEWS])
    assert len(store.deliveries("default", 9)) == 2, "a reminder"


def test_rules_are_a_workspace_s_own_and_no_more_than_may_be(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_rule("default", "b", {"title": "B"}, facts.ago(9))
    store.set_rule("default", "a", {"title": "A"}, facts.NOW)
    store.set_rule("default", "b", {"title": "B2"}, facts.NOW)
    store.set_rule("other", "c", {"title": "C"}, facts.NOW)
    assert [(row.name, row.body, row.updated) for row in store.alert_rules("default")] == [
        ("a", {"title": "A"}, facts.NOW),
        ("b", {"title": "B2"}, facts.NOW),
    ]
    monkeypatch.setattr(alert_rules, "MAX_RULES", 2)
    with pytest.raises(Refused, match="2 rules, as many as may be"):
        store.set_rule("default", "c", {}, facts.NOW)
    store.set_rule("default", "a", {"title": "A2"}, facts.NOW)
    assert store.delete_rule("default", "a")
    assert not store.delete_rule("default", "a")
    assert not store.delete_rule("default", "c")


def test_a_silence_ends_once_and_stays_in_the_list(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add_silence("default", HOUR)
    assert store.silences("default") == [HOUR]
    assert not store.end_silence("other", HOUR.silence_uid, facts.NOW)
    assert store.end_silence("default", HOUR.silence_uid, facts.ago(-60))
    assert store.end_silence("default", HOUR.silence_uid, facts.ago(-90))
    assert store.silences("default") == [replace(HOUR, ends=facts.ago(-60))]
    monkeypatch.setattr(alert_rules, "MAX_SILENCES", 1)
    with pytest.raises(Refused, match="1 silences, as many as may be"):
        store.add_silence("default", replace(HOUR, silence_uid="two"))
    later = replace(HOUR, silence_uid="two", created=facts.ago(-120))
    store.add_silence("default", later)
    assert store.silences("default") == [later], "the one that is over made room"


def test_only_what_failed_is_sent_again(store: Store) -> None:
    store.set_alerts([FIRING], [NEWS])
    (due,) = store.due_deliveries(facts.NOW, 9)
    assert not store.send_again("default", due.id)
    store.settle_delivery(due.id, error="HTTP 500", next_attempt=None)
    assert not store.send_again("other", due.id)
    assert store.send_again("default", due.id)
    assert not store.send_again("default", due.id)
    (again,) = store.due_deliveries(facts.NOW, 9)
    assert (again.id, again.attempts, again.status) == (due.id, 0, "pending")


def test_engines_are_told_as_rules_choose_them(store: Store) -> None:
    late = replace(facts.heartbeat(), event_ns=facts.ago_ns(100))
    prompt = replace(facts.heartbeat(), event_ns=facts.ago_ns(200))
    store.write([facts.batch(prompt)], facts.ago(199))
    store.write([facts.batch(late)], facts.ago(10))
    (subject,) = store.alert_subjects("default")
    assert (subject.engine_uid, subject.name, subject.workspace) == (facts.ENGINE, "tiny", "default")
    assert subject.model
    assert subject.environment
    assert store.alert_subjects("other") == []
    assert subject.delay_s is not None
    assert subject.delay_s > 0
