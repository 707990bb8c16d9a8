"""A fall that stays: told with its time, its size and what changed then; never for another mix of traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from evidence_literals import NOW
from history_literals import MIX, history, with_history
from specscope_server.diagnosis import collapse, drift
from specscope_server.diagnosis.engine_evidence import Event
from specscope_server.diagnosis.model import Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown

FELL = history([0.7] * 20 + [0.3] * 9)
AT = FELL[20].start
CHANGED = Event(AT - 20, "weights_updated", "p0", 2, ("draft weights",))


def found(verdict: object) -> Finding:
    assert isinstance(verdict, Finding), verdict
    return verdict


def test_a_fall_with_an_update_names_it() -> None:
    said = found(collapse.judge(with_history(FELL, CHANGED), ()))
    assert (said.confidence, said.severity, said.fault_class) == ("suspected", "critical", "")
    assert "weights_updated: draft weights" in said.sentence
    numbers = {number.name: number.value for number in said.numbers}
    assert numbers["minutes before and since"] == "20 and 9"
    assert str(numbers["changed at"]) in said.sentence


def test_a_fall_alone_is_an_observation_that_leaves_the_cause_open() -> None:
    said = found(collapse.judge(with_history(FELL), ()))
    assert said.confidence == "observation"
    assert "F23" in said.sentence and "No change of weights" in said.sentence


@pytest.mark.parametrize(
    "event", [replace(CHANGED, at=AT - 900), replace(CHANGED, at=NOW), replace(CHANGED, changed=())]
)
def test_what_happened_at_another_time_or_changed_nothing_is_not_blamed(event: Event) -> None:
    assert found(collapse.judge(with_history(FELL, event), ())).confidence == "observation"


def test_a_small_fall_is_told_only_beside_a_change() -> None:
    moments = history([0.72] * 25 + [0.6] * 25, requests=40)
    at = moments[25].start
    assert collapse.judge(with_history(moments), ()) is CLEAR
    said = found(collapse.judge(with_history(moments, replace(CHANGED, at=at)), ()))
    assert (said.severity, said.title) == ("warning", "Acceptance fell")


def test_another_mix_of_traffic_is_no_regression() -> None:
    def mix(n: int) -> Mapping[str, int]:
        return MIX if n < 20 else {**MIX, "copy_like=no": 20, "copy_like=yes": 80}

    verdict = collapse.judge(with_history(history([0.7] * 20 + [0.3] * 9, mix=mix)), ())
    assert isinstance(verdict, Unknown)
    assert "copy_like" in verdict.reason and "no sign of a fault" in verdict.reason


def test_what_recovered_is_not_told_any_more() -> None:
    moments = history([0.7] * 20 + [0.2] * 10 + [0.7] * 4)
    assert collapse.judge(with_history(moments), ()) is CLEAR


def test_a_rise_is_no_collapse() -> None:
    assert collapse.judge(with_history(history([0.3] * 20 + [0.7] * 9)), ()) is CLEAR


def test_no_history_is_not_known_and_an_old_one_neither() -> None:
    assert isinstance(collapse.judge(with_history(()), ()), Unknown)
    assert isinstance(collapse.judge(replace(with_history(FELL), now=NOW + 3600), ()), Unknown)


def test_a_certain_cause_is_its_root() -> None:
    cause = Finding("fc_bypassed", "F04", "critical", "certain", "Fc bypassed", "", ())
    assert found(collapse.judge(with_history(FELL, CHANGED), (cause,))).root == "fc_bypassed"


class TestDrift:
    SINKING = history([0.75 - 0.006 * n for n in range(60)])

    def test_a_steady_fall_is_told(self) -> None:
        said = found(drift.judge(with_history(self.SINKING), ()))
        assert (said.confidence, said.kind) == ("observation", "drift")
        assert "fell steadily since" in said.sentence

    def test_not_beside_a_collapse_nor_with_the_traffic_nor_over_few_minutes(self) -> None:
        fell = found(collapse.judge(with_history(FELL), ()))
        assert drift.judge(with_history(self.SINKING), (fell,)) is CLEAR

        def moving(n: int) -> Mapping[str, int]:
            return {"copy_like=yes": 100 - n, "copy_like=no": n}

        other = history([0.75 - 0.006 * n for n in range(60)], mix=moving)
        assert isinstance(drift.judge(with_history(other), ()), Unknown)
        assert isinstance(drift.judge(with_history(self.SINKING[-20:]), ()), Unknown)

    def test_level_traffic_does_not_drift(self) -> None:
        assert drift.judge(with_history(history([0.7] * 60)), ()) is CLEAR
