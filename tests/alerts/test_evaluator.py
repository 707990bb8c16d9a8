from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alert_world import Clock, Engine, make_store
from serverkit.receivers import Receiver
from specscope_server.alerts import Evaluator, TargetError
from specscope_server.diagnosis import diagnose
from specscope_server.store.model import AlertRow
from specscope_server.store.port import Store

NEVER_SENT = "webhook+http://127.0.0.1:9/hook"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = make_store(tmp_path)
    yield opened
    opened.close()


WATCHED = ("silent_path", "zero_acceptance")


def states(store: Store) -> dict[str, str]:
    """Of two rules, the one whose findings explain those of the other."""
    return {row.rule: row.state for row in store.alerts("default") if row.rule in WATCHED}


def reasons(store: Store) -> dict[str, str]:
    return {row.rule: row.reason for row in store.alerts("default")}


def run_for(evaluator: Evaluator, engine: Engine, clock: Clock, seconds: int, every: int = 5) -> None:
    """Evaluate again and again, the engine alive."""
    for _ in range(seconds // every):
        clock.forward(every)
        engine.beat()
        evaluator.evaluate_now()


def test_healthy_engine_is_ok_and_nobody_is_told(store: Store, clock: Clock) -> None:
    Engine(store, clock).healthy()
    Evaluator(store, [NEVER_SENT], clock=clock).evaluate_now()
    assert states(store) == {"silent_path": "ok", "zero_acceptance": "ok"}
    assert store.deliveries("default", 10) == []
    assert store.findings("default") == []


def test_seed_fault_fires_both_rules_at_once_and_is_told_once_with_its_cause(
    store: Store, clock: Clock
) -> None:
    Engine(store, clock).bypassed()
    Evaluator(store, [NEVER_SENT], clock=clock, base_url="http://scope:4318/").evaluate_now()
    assert states(store) == {"silent_path": "firing", "zero_acceptance": "firing"}
    assert [f.kind for f in store.findings("default")] == ["fc_bypassed", "zero_acceptance"]
    queued = {row.rule: row for row in store.deliveries("default", 10)}
    assert set(queued) == {"silent_path"}, "zero acceptance follows from it"
    told = queued["silent_path"].payload
    assert told["consequences"] == ["Zero acceptance"]
    quiet = {row.rule: row.quiet for row in store.alerts("default") if row.state == "firing"}
    assert quiet == {"silent_path": "", "zero_acceptance": "follows from: Silent path"}
    assert (told["state"], told["previous"], told["workspace"]) == ("firing", "no data", "default")
    assert told["engine"]["name"] == "tiny launch-1"
    assert told["engine"]["url"].startswith("http://scope:4318/engines/")
    assert [f["fault_class"] for f in told["findings"]] == ["F04"]
    assert told["findings"][0]["numbers"][0]["expected"] == 400
    assert told["findings"][0]["numbers"][0]["link"].startswith("http://scope:4318/engines/")


def test_idle_engine_is_no_data_with_its_reason(store: Store, clock: Clock) -> None:
    Engine(store, clock).beat()
    Evaluator(store, clock=clock).evaluate_now()
    assert states(store) == {"silent_path": "no data", "zero_acceptance": "no data"}
    assert reasons(store)["zero_acceptance"].startswith("idle: no verify step was reported")


def test_evaluating_again_and_again_tells_once(store: Store, clock: Clock) -> None:
    engine = Engine(store, clock)
    engine.bypassed()
    run_for(Evaluator(store, [NEVER_SENT], clock=clock), engine, clock, 30)
    assert len(store.deliveries("default", 10)) == 1
    assert {row.rule for row in store.alert_history("default", 10)} == {"silent_path", "zero_acceptance"}


def test_a_restart_loses_no_state_and_repeats_nothing(store: Store, clock: Clock) -> None:
    engine = Engine(store, clock)
    engine.bypassed()
    Evaluator(store, [NEVER_SENT], clock=clock).evaluate_now()
    before = {row.rule: row.since for row in store.alerts("default") if row.rule in WATCHED}
    for _ in range(5):
        run_for(Evaluator(store, [NEVER_SENT], clock=clock), engine, clock, 5)
    assert {row.rule: row.since for row in store.alerts("default") if row.rule in WATCHED} == before
    assert len(store.deliveries("default", 10)) == 1


def test_fault_that_ends_recovers_after_its_minute(store: Store, clock: Clock) -> None:
    engine = Engine(store, clock)
    engine.bypassed()
    evaluator = Evaluator(store, [NEVER_SENT], clock=clock)
    evaluator.evaluate_now()
    # Out of the window of 300 s and the bucket that reaches into it.
    run_for(evaluator, engine, clock, 330, every=14)
    assert states(store) == {"silent_path": "firing", "zero_acceptance": "firing"}
    assert "Still firing, as nothing new is known" in reasons(store)["zero_acceptance"]
    engine.healthy()
    run_for(evaluator, engine, clock, 55)
    assert states(store) == {"silent_path": "firing", "zero_acceptance": "firing"}
    assert store.findings("default") == []
    run_for(evaluator, engine, clock, 10)
    assert states(store) == {"silent_path": "ok", "zero_acceptance": "ok"}
    told = [(row.rule, row.state) for row in store.deliveries("default", 10)]
    assert sorted(told) == [("silent_path", "firing"), ("silent_path", "ok")]


def test_suspicion_waits_a_minute_whatever_server_looks(store: Store, clock: Clock) -> None:
    engine = Engine(store, clock)
    engine.serve(400, accepted=760, zero_steps=120, proposals=300)
    Evaluator(store, [NEVER_SENT], clock=clock).evaluate_now()
    assert states(store)["silent_path"] == "no data"
    run_for(Evaluator(store, [NEVER_SENT], clock=clock), engine, clock, 30)
    assert states(store)["silent_path"] == "no data"
    run_for(Evaluator(store, [NEVER_SENT], clock=clock), engine, clock, 35)
    assert states(store)["silent_path"] == "firing"
    assert [row.rule for row in store.deliveries("default", 10)] == ["silent_path"]


def test_tracer_that_falls_silent_ends_the_firing(store: Store, clock: Clock) -> None:
    Engine(store, clock).bypassed()
    evaluator = Evaluator(store, [NEVER_SENT], clock=clock)
    evaluator.evaluate_now()
    clock.forward(20)
    evaluator.evaluate_now()
    assert states(store)["silent_path"] == "firing"
    clock.forward(61)
    evaluator.evaluate_now()
    assert states(store) == {"silent_path": "no data", "zero_acceptance": "no data"}
    assert reasons(store)["silent_path"].startswith("tracer silent: Nothing was received")
    assert [f.kind for f in store.findings("default")] == ["fc_bypassed", "zero_acceptance"]
    clock.forward(3600)
    evaluator.evaluate_now()
    assert store.findings("default") == []


def test_speculation_switched_off_is_no_data(store: Store, clock: Clock) -> None:
    engine = Engine(store, clock)
    engine.useless()
    evaluator = Evaluator(store, clock=clock)
    evaluator.evaluate_now()
    assert states(store) == {"silent_path": "ok", "zero_acceptance": "firing"}
    clock.forward(2)
    engine.stop_speculating()
    evaluator.evaluate_now()
    assert reasons(store)["silent_path"].startswith("speculation off")


def test_an_engine_not_heard_for_a_day_stops_firing(store: Store, clock: Clock) -> None:
    clock.forward(-timedelta(days=2).total_seconds())
    Engine(store, clock).bypassed()
    ((_, uid),) = [("default", e.engine_uid) for e in store.engines("default", clock.now)]
    store.set_alerts([AlertRow("silent_path", "Silent path", uid, "", "firing", "", clock(), clock())], [])
    store.replace_findings(uid, diagnose(store.evidence("default", uid, clock(), 300)).findings, clock())
    assert store.findings("default")
    clock.forward(timedelta(days=2).total_seconds())
    Evaluator(store, clock=clock).evaluate_now()
    assert states(store) == {"silent_path": "no data"}
    assert "for a day" in reasons(store)["silent_path"]
    assert store.findings("default") == [], "a server that was off meanwhile closes them too"


def test_one_engine_that_cannot_be_stored_leaves_the_others(
    store: Store, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Engine(store, clock, "broken").bypassed()
    Engine(store, clock, "sound").bypassed()
    refuse_findings(tmp_path / "alerts.db", "broken")
    evaluator = Evaluator(store, clock=clock)
    with caplog.at_level(logging.WARNING):
        evaluator.evaluate_now()
        evaluator.evaluate_now()
    rows = store.alerts("default")
    assert {row.engine for row in rows} == {"tiny sound"}
    assert {row.state for row in rows if row.rule in WATCHED} == {"firing"}
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1


def refuse_findings(database: Path, instance: str) -> None:
    """Make the database refuse every finding on one engine."""
    connection = sqlite3.connect(database)
    ((uid,),) = connection.execute("select engine_uid from engine where instance = ?", (instance,))
    connection.execute(
        f"create trigger refuse before insert on finding when new.engine_uid = '{uid}'"
        " begin select raise(abort, 'not this one'); end"
    )
    connection.close()


def test_targets_are_checked_at_the_start(store: Store) -> None:
    with pytest.raises(TargetError, match="apprise does not take"):
        Evaluator(store, ["nosuchservice://token"])


class TestRunning:
    """The whole loop: real store, real receiver, real time."""

    def test_state_change_reaches_the_receiver_and_stop_is_clean(self, store: Store, clock: Clock) -> None:
        clock.now = datetime.now(UTC)
        Engine(store, clock).bypassed()
        with Receiver() as receiver:

            async def session() -> None:
                evaluator = Evaluator(
                    store, [f"webhook+http://127.0.0.1:{receiver.port}/hook"], interval_s=0.05
                )
                running = asyncio.create_task(evaluator.run())
                assert await asyncio.to_thread(receiver.arrived.acquire, timeout=60)
                await evaluator.stop()
                await running

            asyncio.run(session())
            assert [got.body["rule"] for got in receiver.got] == ["silent_path"]
        assert {row.status for row in store.deliveries("default", 10)} == {"delivered"}

    def test_an_unavailable_store_is_logged_once_and_outlived(
        self, store: Store, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        Engine(store, clock).bypassed()
        database = tmp_path / "alerts.db"
        aside = sqlite3.connect(database)
        aside.execute("alter table alert_state rename to alert_state_away")
        aside.commit()

        async def until(wanted: Any) -> None:
            while not await asyncio.to_thread(wanted):
                await asyncio.sleep(0.02)

        async def session() -> None:
            evaluator = Evaluator(store, interval_s=0.02, clock=clock)
            running = asyncio.create_task(evaluator.run())
            await asyncio.wait_for(until(lambda: "evaluation: " in caplog.text), 60)
            await asyncio.sleep(0.3)
            aside.execute("alter table alert_state_away rename to alert_state")
            aside.commit()
            await asyncio.wait_for(until(lambda: bool(states(store))), 60)
            await evaluator.stop()
            await running

        with caplog.at_level(logging.INFO):
            asyncio.run(session())
        aside.close()
        warned = [r for r in caplog.records if r.levelname == "WARNING" and "evaluation: " in r.message]
        assert len(warned) == 1
        assert "evaluation works again" in caplog.text
        assert states(store) == {"silent_path": "firing", "zero_acceptance": "firing"}
