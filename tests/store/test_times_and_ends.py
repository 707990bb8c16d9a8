"""Mean times of passes, whose plain decode they are held against, and which processes ended in order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from specscope_server.diagnosis.engine_evidence import PassTime
from specscope_server.diagnosis.model import Evidence
from specscope_server.store.port import Store
from specscope_server.store.told import ProcessFacts
from specscope_server.store.values import engine_uid
from storekit import facts

MS = 1_000_000
STEP, DECODE = {"step|2-3": 100, "verify|1": 50}, {"decode|1": 200}
PLAIN = replace(facts.PROCESS, instance="plain", process_uid="plain-0")


def _seen(store: Store, engine: str = facts.ENGINE) -> Evidence:
    found = store.evidence("default", engine, facts.NOW, 60)
    assert found is not None
    return found


def _passes(counts: dict[str, int], ms: float) -> object:
    return facts.heartbeat(passes=counts, pass_ns={name: round(n * ms * MS) for name, n in counts.items()})


def _write(store: Store, counts: dict[str, int], ms: float, process: ProcessFacts, model: str = "m") -> None:
    report = replace(facts.REPORT, model=model)
    store.write([facts.batch(report, _passes(counts, ms), process=process)], facts.NOW)


class TestTimes:
    def test_not_timed_is_no_time(self, store: Store) -> None:
        store.write([facts.batch(facts.REPORT, facts.heartbeat())], facts.NOW)
        assert _seen(store).times == ()

    def test_means_by_kind_and_batch_over_all_processes(self, store: Store) -> None:
        _write(store, STEP, 10, facts.PROCESS)
        _write(store, {"step|2-3": 300}, 20, replace(facts.PROCESS, process_uid="p1", tp=1))
        assert _seen(store).times == (PassTime("step", 2, 400, 17.5), PassTime("verify", 1, 50, 10.0))

    def test_a_count_without_its_time_or_of_nothing_has_no_mean(self, store: Store) -> None:
        beat = facts.heartbeat(passes={"step|1": 5, "decode|1": 0}, pass_ns={"decode|1": 0})
        store.write([facts.batch(facts.REPORT, beat)], facts.NOW)
        assert _seen(store).times == ()

    def test_plain_decode_comes_from_another_engine_of_the_model_and_names_it(self, store: Store) -> None:
        _write(store, STEP, 10, facts.PROCESS)
        _write(store, DECODE, 4, PLAIN)
        plain = engine_uid("default", "test", "plain")
        assert _seen(store).times[-1] == PassTime("decode", 1, 200, 4.0, plain)
        assert [one.kind for one in _seen(store, plain).times] == ["decode"], "it needs no other engine's"

    @pytest.mark.parametrize(
        ("process", "model"),
        [
            (PLAIN, "another model"),
            (replace(PLAIN, engine_name="vllm"), "m"),
            (replace(PLAIN, workspace="elsewhere"), "m"),
        ],
    )
    def test_of_another_model_engine_or_workspace_it_does_not(
        self, store: Store, process: ProcessFacts, model: str
    ) -> None:
        _write(store, STEP, 10, facts.PROCESS)
        _write(store, DECODE, 4, process, model)
        assert {one.kind for one in _seen(store).times} == {"step", "verify"}

    def test_its_own_plain_decode_goes_before_another_engines(self, store: Store) -> None:
        _write(store, STEP | DECODE, 10, facts.PROCESS)
        _write(store, DECODE, 4, PLAIN)
        assert _seen(store).times[0] == PassTime("decode", 1, 200, 10.0)


class TestEnd:
    RANK = replace(facts.PROCESS, process_uid="p1", tp=1)

    @staticmethod
    def _told(store: Store, process: ProcessFacts, ago: float, *, ended: bool) -> None:
        beat = facts.heartbeat(ago, ended_ns=facts.ago_ns(ago) if ended else None)
        store.write([facts.batch(facts.REPORT, beat, process=process)], facts.ago(ago))

    def test_a_process_that_has_not_told_it_has_not_ended(self, store: Store) -> None:
        self._told(store, facts.PROCESS, 20, ended=False)
        assert _seen(store).ended is None

    def test_an_engine_has_ended_when_all_its_processes_have(self, store: Store) -> None:
        self._told(store, facts.PROCESS, 9, ended=True)
        self._told(store, self.RANK, 8, ended=True)
        assert _seen(store).ended == pytest.approx(facts.ago(8).timestamp())

    def test_beside_one_that_was_killed_nothing_ended_in_order(self, store: Store) -> None:
        self._told(store, facts.PROCESS, 9, ended=True)
        self._told(store, self.RANK, 8, ended=False)
        assert _seen(store).ended is None

    def test_one_that_was_killed_long_before_does_not_count(self, store: Store) -> None:
        self._told(store, self.RANK, 500, ended=False)
        self._told(store, facts.PROCESS, 9, ended=True)
        assert _seen(store).ended is not None

    def test_a_process_that_serves_on_under_the_same_name_is_no_end(self, store: Store) -> None:
        self._told(store, facts.PROCESS, 40, ended=True)
        self._told(store, replace(facts.PROCESS, process_uid="next"), 1, ended=False)
        assert _seen(store).ended is None

    def test_a_late_heartbeat_of_before_takes_the_end_not_back(self, store: Store) -> None:
        self._told(store, facts.PROCESS, 9, ended=True)
        self._told(store, facts.PROCESS, 12, ended=False)
        assert _seen(store).ended is not None

    def test_it_is_told_by_the_servers_clock(self, store: Store) -> None:
        beat = facts.heartbeat(3600 + 9, ended_ns=facts.ago_ns(3600 + 9))
        process = replace(facts.PROCESS, start_ns=facts.ago_ns(7200))
        store.write([facts.batch(beat, process=process)], facts.ago(9))
        assert _seen(store).ended == pytest.approx(facts.ago(9).timestamp(), abs=1)
