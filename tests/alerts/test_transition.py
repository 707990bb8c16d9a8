from __future__ import annotations

from datetime import UTC, datetime, timedelta

from specscope_server.alerts.rules import FIRING, NO_DATA, OK, RULES, Reading
from specscope_server.alerts.transition import Pending, step
from specscope_server.store.model import AlertRow

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
RULE = RULES[0]

SURE = Reading(FIRING, "fc never ran")
SUSPECT = Reading(FIRING, "some passes skip fc", sure=False)
CLEAR = Reading(OK, "excluded")
PAUSE = Reading(NO_DATA, "idle: no request")
ENDED = Reading(NO_DATA, "tracer silent: nothing received", ended=True)


class Run:
    """Feeds one rule with readings, second by second."""

    def __init__(self, first: Reading) -> None:
        self.now = START
        self.row: AlertRow | None = None
        self.pending: Pending | None = None
        self.told: list[str] = []
        self.feed(first, 0)

    def feed(self, reading: Reading, seconds: int) -> str:
        for _ in range(max(seconds, 1)):
            done = step(RULE, "e", "engine", reading, self.row, self.pending, self.now)
            if done.notify:
                self.told.append(done.row.state)
            self.row, self.pending = done.row, done.pending
            self.now += timedelta(seconds=1)
        return self.state

    @property
    def state(self) -> str:
        assert self.row is not None
        return self.row.state

    @property
    def reason(self) -> str:
        assert self.row is not None
        return self.row.reason


def test_certain_fires_at_once_and_is_told_once() -> None:
    run = Run(SURE)
    assert run.feed(SURE, 100) == FIRING
    assert run.told == [FIRING]
    assert run.row is not None
    assert run.row.since == START


def test_first_ok_or_no_data_is_not_told() -> None:
    assert Run(CLEAR).told == []
    assert Run(PAUSE).state == NO_DATA
    assert Run(PAUSE).told == []


def test_a_suspicion_fires_after_a_minute_and_says_so_until_then() -> None:
    run = Run(CLEAR)
    assert run.feed(SUSPECT, 60) == OK
    assert run.reason.startswith("Suspected since 12:00:01 UTC")
    assert run.feed(SUSPECT, 1) == FIRING
    assert run.told == [FIRING]


def test_a_suspicion_that_breaks_off_starts_again() -> None:
    run = Run(CLEAR)
    run.feed(SUSPECT, 59)
    run.feed(CLEAR, 1)
    assert run.feed(SUSPECT, 60) == OK
    assert run.told == []


def test_recovery_takes_a_minute_without_a_relapse() -> None:
    run = Run(SURE)
    assert run.feed(CLEAR, 59) == FIRING
    assert "Recovering" in run.reason
    run.feed(SURE, 1)
    assert run.feed(CLEAR, 60) == FIRING
    assert run.feed(CLEAR, 1) == OK
    assert run.told == [FIRING, OK]


def test_a_pause_is_no_recovery() -> None:
    run = Run(SURE)
    assert run.feed(PAUSE, 10_000) == FIRING
    assert run.reason == "Still firing, as nothing new is known: idle: no request"
    assert run.feed(SURE, 1) == FIRING
    assert run.told == [FIRING]


def test_a_pause_between_clear_readings_restarts_the_recovery() -> None:
    run = Run(SURE)
    run.feed(CLEAR, 50)
    run.feed(PAUSE, 1)
    assert run.feed(CLEAR, 60) == FIRING
    assert run.feed(CLEAR, 1) == OK


def test_an_ended_engine_ends_the_firing_and_that_is_told() -> None:
    run = Run(SURE)
    assert run.feed(ENDED, 60) == FIRING
    assert run.feed(ENDED, 1) == NO_DATA
    assert run.told == [FIRING, NO_DATA]
    assert run.feed(SURE, 1) == FIRING
    assert run.told == [FIRING, NO_DATA, FIRING]


def test_ok_without_evidence_becomes_no_data_at_once() -> None:
    run = Run(CLEAR)
    assert run.feed(PAUSE, 1) == NO_DATA
    assert run.feed(CLEAR, 1) == OK
    assert run.told == []
