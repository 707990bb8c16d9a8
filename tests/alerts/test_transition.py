from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from specscope_server.alerts.catalogue import built_in
from specscope_server.alerts.quiet import decide
from specscope_server.alerts.reading import Reading
from specscope_server.alerts.rules import FIRING, NO_DATA, OK, AlertRule
from specscope_server.alerts.transition import LAPSE, step
from specscope_server.store.model import AlertRow

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
RULE = built_in("silent_path") or AlertRule("", "")

SURE = Reading(FIRING, "fc never ran")
SUSPECT = Reading(FIRING, "some passes skip fc", sure=False)
CLEAR = Reading(OK, "excluded")
PAUSE = Reading(NO_DATA, "idle: no request")
ENDED = Reading(NO_DATA, "tracer silent: nothing received", ended=True)


class Run:
    """Feeds one rule with readings, second by second."""

    def __init__(self, first: Reading, rule: AlertRule = RULE) -> None:
        self.now = START
        self.rule = rule
        self.row: AlertRow | None = None
        self.told: list[str] = []
        self.feed(first, 0)

    def feed(self, reading: Reading, seconds: int) -> str:
        for _ in range(max(seconds, 1)):
            row = step(self.rule, "e", "engine", reading, self.row, self.now)
            done = decide(self.rule, row, "", None, self.now)
            if done.notify:
                self.told.append(f"{done.row.state} again" if done.reminder else done.row.state)
            self.row = done.row
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


def test_what_a_rule_waits_for_is_its_own() -> None:
    run = Run(CLEAR, replace(RULE, for_s=5, recovery_s=7))
    assert run.feed(SURE, 5) == OK
    assert run.reason.startswith("Seen since 12:00:01 UTC, fires if it holds")
    assert run.feed(SURE, 1) == FIRING
    assert run.feed(CLEAR, 7) == FIRING
    assert run.feed(CLEAR, 1) == OK
    assert run.told == [FIRING, OK]


def test_what_waits_is_in_the_row_and_survives_a_restart() -> None:
    run = Run(CLEAR)
    run.feed(SUSPECT, 1)
    assert run.row is not None
    assert (run.row.pending, run.row.pending_since) == (FIRING, START + timedelta(seconds=1))
    run.now += timedelta(seconds=90)
    assert run.feed(SUSPECT, 1) == FIRING


def test_what_nobody_looked_at_for_long_waits_anew() -> None:
    run = Run(CLEAR)
    run.feed(SUSPECT, 1)
    run.now += LAPSE + timedelta(seconds=1)
    assert run.feed(SUSPECT, 1) == OK
    assert run.feed(SUSPECT, 60) == FIRING


def test_a_clock_that_was_ahead_makes_nothing_wait_for_it() -> None:
    run = Run(SUSPECT)
    run.now += timedelta(hours=3)
    run.feed(SUSPECT, 1)
    run.now -= timedelta(hours=3)
    run.feed(SUSPECT, 62)
    assert run.state == FIRING
    reminded = Run(SURE, replace(RULE, repeat_s=600.0))
    assert reminded.row is not None and reminded.row.told_at is not None
    reminded.row = replace(reminded.row, told_at=reminded.row.told_at + timedelta(hours=3))
    reminded.feed(SURE, 1)
    assert reminded.told == [FIRING, f"{FIRING} again"]


def test_reminders_come_as_often_as_the_rule_says_until_somebody_acknowledges() -> None:
    run = Run(SURE, replace(RULE, repeat_s=300))
    run.feed(SURE, 599)
    assert run.told == [FIRING, "firing again"]
    assert run.row is not None
    run.row = replace(run.row, acknowledged=run.now, acknowledged_by="ada")
    run.feed(SURE, 900)
    assert run.told == [FIRING, "firing again"]
    run.feed(CLEAR, 61)
    assert (run.row.state, run.row.acknowledged) == (OK, None)
    run.feed(SURE, 301)
    assert run.told == [FIRING, "firing again", OK, FIRING, "firing again"]
