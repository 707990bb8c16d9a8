"""Rounds read only what may have changed, and what they leave alone is as if it had been read."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alert_world import Clock, Engine, make_store
from specscope_server.alerts import Evaluator, rounds
from specscope_server.diagnosis import diagnose
from specscope_server.diagnosis.model import Evidence
from specscope_server.store.model import AlertRow, SilenceRow
from specscope_server.store.port import Store

EVER = datetime(2026, 1, 1, tzinfo=UTC)
NEVER_SENT = "webhook+http://127.0.0.1:9/hook"


class Watched:
    """A store that counts whose evidence was read."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.read: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def evidence(self, workspace: str, engine_uid: str, now: datetime, window_s: float) -> Evidence | None:
        self.read[engine_uid] += 1
        return self.store.evidence(workspace, engine_uid, now, window_s)

    def taken(self) -> set[str]:
        """Whose evidence was read since the last call."""
        found, self.read = set(self.read), Counter()
        return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Watched]:
    opened = make_store(tmp_path)
    yield Watched(opened)
    opened.close()


def evaluator_of(store: Watched, clock: Clock, **more: Any) -> Evaluator:
    return Evaluator(store, [NEVER_SENT], clock=clock, **more)  # type: ignore[arg-type]


def uid_of(store: Watched, name: str) -> str:
    [found] = [e.engine_uid for e in store.engines("default", EVER) if e.name == f"tiny {name}"]
    return found


def row(store: Watched, rule: str, name: str = "launch-1") -> AlertRow:
    [found] = [a for a in store.alerts("default") if a.rule == rule and a.engine == f"tiny {name}"]
    return found


def test_who_told_something_is_judged_in_the_next_round_and_nobody_else_is_read(
    store: Watched, clock: Clock
) -> None:
    engines = {name: Engine(store.store, clock, name) for name in ("a", "b", "c")}
    for engine in engines.values():
        engine.beat()
    evaluator = evaluator_of(store, clock)
    evaluator.evaluate_now()
    assert store.taken() == {uid_of(store, name) for name in engines}
    clock.forward(2)
    for engine in engines.values():
        engine.beat()
    engines["b"].bypassed()
    evaluator.evaluate_now()
    assert store.taken() == {uid_of(store, "b")}
    assert row(store, "silent_path", "b").state == "firing"
    assert row(store, "silent_path", "a").state == "no data"


def test_an_idle_engine_is_not_read_but_stays_evaluated(store: Watched, clock: Clock) -> None:
    engine = Engine(store.store, clock)
    evaluator = evaluator_of(store, clock)
    evaluator.evaluate_now()
    # Its start is an event of the last two hours.
    clock.forward(3 * 3600)
    engine.beat()
    evaluator.evaluate_now()
    store.taken()
    for _ in range(60):
        clock.forward(2)
        engine.beat()
        evaluator.evaluate_now()
    assert store.taken() == set()
    assert clock() - row(store, "silent_path").evaluated <= timedelta(seconds=10)


def test_an_engine_falls_silent_without_telling_anything(store: Watched, clock: Clock) -> None:
    Engine(store.store, clock).healthy()
    evaluator = evaluator_of(store, clock)
    evaluator.evaluate_now()
    for _ in range(8):
        clock.forward(2)
        evaluator.evaluate_now()
    # 16 s; the rule itself waits a minute more.
    silent = row(store, "tracer_silent")
    assert (silent.state, silent.pending) == ("ok", "firing")
    assert silent.pending_since == clock()
    assert row(store, "zero_acceptance").reason.startswith("tracer silent: ")
    for _ in range(12):
        clock.forward(5)
        evaluator.evaluate_now()
    assert row(store, "tracer_silent").state == "firing"
    assert row(store, "tracer_silent").since == clock()
    # And is heard again, by a sign of life alone.
    Engine(store.store, clock).beat()
    clock.forward(1)
    evaluator.evaluate_now()
    assert row(store, "tracer_silent").state == "ok"


def test_what_waits_fires_on_time_though_nothing_new_is_told(store: Watched, clock: Clock) -> None:
    Engine(store.store, clock).serve(400, accepted=760, zero_steps=120, proposals=300)
    store.set_rule("default", "tracer_silent", {"enabled": False}, clock())
    store.set_rule("default", "silent_path", {"suspected_for_s": 13.0}, clock())
    evaluator = evaluator_of(store, clock)
    evaluator.evaluate_now()
    began = clock()
    assert row(store, "silent_path").pending == "firing"
    store.taken()
    while clock() - began < timedelta(seconds=12):
        clock.forward(1)
        evaluator.evaluate_now()
        assert row(store, "silent_path").state == "no data"
    assert sum(store.read.values()) == 1, "once as its window moved, and not in each of the twelve rounds"
    clock.forward(1)
    evaluator.evaluate_now()
    assert row(store, "silent_path").state == "firing"
    assert row(store, "silent_path").since == clock()


def test_what_leaves_the_window_is_gone_from_the_state_within_ten_seconds(
    store: Watched, clock: Clock
) -> None:
    engine = Engine(store.store, clock)
    engine.healthy()
    evaluator = evaluator_of(store, clock)
    for _ in range(64):
        clock.forward(5)
        engine.beat()
        evaluator.evaluate_now()
    assert row(store, "zero_acceptance").state == "no data"
    assert row(store, "zero_acceptance").reason.startswith("idle: ")


def test_a_rule_a_silence_and_an_expectation_count_at_once(store: Watched, clock: Clock) -> None:
    engine = Engine(store.store, clock)
    engine.bypassed()
    evaluator = evaluator_of(store, clock)
    silence = SilenceRow("s1", "", "", clock(), clock() + timedelta(seconds=30), clock(), "ann", "")
    store.add_silence("default", silence)
    evaluator.evaluate_now()
    assert store.deliveries("default", 10) == []
    store.taken()
    clock.forward(2)
    store.set_rule("default", "zero_acceptance", {"enabled": False}, clock())
    evaluator.evaluate_now()
    assert row(store, "zero_acceptance").state == "no data"
    assert store.taken() == set(), "rules are judged anew by what was read"
    clock.forward(2)
    store.set_rule("default", "silent_path", {"window_s": 600.0}, clock())
    evaluator.evaluate_now()
    assert len(store.taken()) == 1, "a window that was not read before"
    clock.forward(30)
    engine.beat()
    evaluator.evaluate_now()
    assert [d.rule for d in store.deliveries("default", 10)] == ["silent_path"]


def test_a_restart_reads_everything_once_and_repeats_nothing(store: Watched, clock: Clock) -> None:
    engines = [Engine(store.store, clock, name) for name in ("a", "b")]
    for engine in engines:
        engine.bypassed()
    evaluator_of(store, clock).evaluate_now()
    told = store.deliveries("default", 10)
    store.taken()
    after = evaluator_of(store, clock)
    clock.forward(2)
    for engine in engines:
        engine.beat()
    after.evaluate_now()
    assert len(store.taken()) == 2
    clock.forward(2)
    after.evaluate_now()
    assert store.taken() == set()
    assert store.deliveries("default", 10) == told


def test_a_clock_that_was_ahead_keeps_nobody_from_being_read(store: Watched, clock: Clock) -> None:
    engine = Engine(store.store, clock)
    engine.healthy()
    evaluator = evaluator_of(store, clock)
    clock.forward(3600)
    evaluator.evaluate_now()
    store.taken()
    clock.forward(-3600)
    evaluator.evaluate_now()
    assert store.taken() == {uid_of(store, "launch-1")}
    assert row(store, "zero_acceptance").evaluated == clock()


def test_what_a_round_learns_while_it_is_told_to_forget_is_forgotten(store: Watched, clock: Clock) -> None:
    Engine(store.store, clock).healthy()
    ahead = rounds.Rounds(store, (), 300.0, "", lambda _what, _trouble: False)  # type: ignore[arg-type]
    plain, store.evidence = store.evidence, lambda *asked: (ahead.forget(), plain(*asked))[1]  # type: ignore[method-assign]
    ahead.run(clock())
    store.evidence = plain  # type: ignore[method-assign]
    store.taken()
    ahead.run(clock())
    assert store.taken() == {uid_of(store, "launch-1")}
    ahead.run(clock())
    assert store.taken() == set()


def test_what_could_not_be_stored_is_judged_again(store: Watched, clock: Clock) -> None:
    engine = Engine(store.store, clock)
    evaluator = evaluator_of(store, clock)
    evaluator.evaluate_now()
    engine.bypassed()

    def refuse(*_: object) -> None:
        raise RuntimeError("not now")

    store.set_alerts = refuse  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError):
        evaluator.evaluate_now()
    del store.set_alerts  # type: ignore[attr-defined]
    clock.forward(1)
    evaluator.evaluate_now()
    assert row(store, "silent_path").state == "firing"
    assert len(store.deliveries("default", 10)) == 1


@pytest.mark.parametrize("seed", range(2))
def test_rounds_say_what_one_who_reads_everything_says(store: Watched, clock: Clock, seed: int) -> None:
    """Engines serve, idle, fall silent and come back at random.

    After each round the findings of whoever told something are those of evidence read now, and of the others
    those of some moment in the last ten seconds.
    """
    dice = random.Random(seed)
    engines = {f"engine-{number}": Engine(store.store, clock, f"engine-{number}") for number in range(3)}
    evaluator = evaluator_of(store, clock)
    quiet: set[str] = set()

    def found(uid: str, seconds_ago: int) -> set[str]:
        at = clock() - timedelta(seconds=seconds_ago)
        return {f.kind for f in diagnose(store.store.evidence("default", uid, at, 300)).findings}

    for _ in range(30):
        clock.forward(dice.choice((2, 2, 2, 5, 40, 290)))
        told: set[str] = set()
        for name, engine in engines.items():
            quiet ^= {name} if dice.random() < 0.15 else set()
            if name not in quiet:
                act = dice.choice((engine.beat, engine.beat, engine.healthy, engine.bypassed, engine.useless))
                act()
                told |= set() if act == engine.beat else {name}
        evaluator.evaluate_now()
        for name in engines:
            uid = uid_of(store, name)
            stored = {finding.kind for finding in store.findings("default", uid)}
            assert any(stored == found(uid, ago) for ago in range(1 if name in told else 11)), name


@pytest.mark.parametrize("seed", range(2))
def test_states_of_rounds_are_those_of_one_who_begins_anew(tmp_path: Path, clock: Clock, seed: int) -> None:
    """The same news at random in two stores: one is judged by what is new, one from scratch in each round.

    States of rules are the same in each round on engines that told something, and on the others those of some
    round of the last ten seconds.
    """
    dice = random.Random(seed)
    folders = [tmp_path / name for name in ("news", "anew")]
    for folder in folders:
        folder.mkdir()
    names = [f"engine-{number}" for number in range(3)]
    of_news, of_all = (make_store(folder) for folder in folders)
    fleet = {name: [Engine(one, clock, name) for one in (of_news, of_all)] for name in names}
    evaluator = Evaluator(of_news, [NEVER_SENT], clock=clock)

    def states(store: Store, name: str) -> dict[str, tuple[str, str]]:
        return {a.rule: (a.state, a.pending) for a in store.alerts("default") if a.engine == f"tiny {name}"}

    seen: list[tuple[datetime, dict[str, dict[str, tuple[str, str]]]]] = []
    quiet: set[str] = set()
    for _ in range(20):
        clock.forward(dice.choice((1, 2, 2, 2, 4, 16, 70)))
        told: set[str] = set()
        for name, twins in fleet.items():
            quiet ^= {name} if dice.random() < 0.15 else set()
            if name not in quiet:
                act = dice.choice(("beat", "beat", "healthy", "bypassed", "useless", "stop_speculating"))
                for twin in twins:
                    getattr(twin, act)()
                told |= set() if act == "beat" else {name}
        evaluator.evaluate_now()
        of_all.close()
        of_all = make_store(folders[1])
        for twins in fleet.values():
            twins[1].moved_to(of_all)
        anew = Evaluator(of_all, [NEVER_SENT], clock=clock)
        anew.evaluate_now()
        anew.deliverer.close()
        seen.append((clock(), {name: states(of_all, name) for name in names}))
        lately = [of for at, of in seen if clock() - at <= timedelta(seconds=10)]
        for name in names:
            allowed = [lately[-1][name]] if name in told else [of[name] for of in lately]
            assert states(of_news, name) in allowed, (name, clock())
    evaluator.deliverer.close()
    for store in (of_news, of_all):
        store.close()


def test_where_more_is_due_than_fits_open_verdicts_come_first_and_everybody_in_turn(
    store: Watched, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "AT_ONCE", 1)
    engines = {name: Engine(store.store, clock, name) for name in ("a", "b", "c")}
    for engine in engines.values():
        engine.healthy()
    judging = rounds.Rounds(store, (), 300.0, "", lambda *_: False)  # type: ignore[arg-type]
    judging.run(clock())
    uids = {uid_of(store, name): name for name in engines}
    assert {uids[uid] for uid in store.taken()} == set(engines)
    assert (judging.waiting, judging.lag_s) == (0, pytest.approx(0, abs=30))
    assert {row(store, "zero_acceptance", name).state for name in engines} == {"ok"}

    crowded = rounds.Rounds(store, (), 300.0, "", lambda *_: False, budget_s=0.0)  # type: ignore[arg-type]
    new = Engine(store.store, clock, "new")
    uids[uid_of(store, "new")] = "new"
    turns: list[str] = []
    for _ in range(14):
        clock.forward(2)
        for engine in engines.values():
            engine.healthy()
        new.beat() if len(turns) < 6 else new.useless()
        crowded.run(clock())
        [uid] = store.taken()
        turns.append(uids[uid])
        assert crowded.waiting == 4 - 1 if len(turns) < 4 else crowded.waiting >= 2
    assert set(turns[:4]) == {*engines, "new"}, "whoever was never judged comes first"
    assert turns[6] == "new", "nothing is decided of it yet"
    assert {*engines} <= set(turns[-6:]), "nobody waits for ever"
    assert crowded.lag_s >= 4
