"""F21: what an update broke, and acceptance that stepped down with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_literals import NOW, counts
from specscope.rollup import Counts
from specscope_server.diagnosis import Evidence, diagnose, weights_changed, weights_missing
from specscope_server.diagnosis.engine_evidence import Event, Moment
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Finding
from specscope_server.diagnosis.step_evidence import StepEvidence
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from weight_literals import config, draft, odd, served

AT = NOW - 150
BOTH = ("draft weights", "target weights")


def share(steps: int, part: float) -> Counts:
    hits = round(steps * part)
    return counts(steps, 2 * hits, steps - hits)


def updated(
    before: float, since: float, *, steps: int = 600, changed: tuple[str, ...] = BOTH, **changes: Any
) -> Evidence:
    """Return an engine that served 30 requests under two versions of its weights."""
    told = StepEvidence(
        steps=2 * steps, requests=60, versions={0: share(steps, before), 1: share(steps, since)}
    )
    return replace(
        served(), **({"steps": told, "events": (Event(AT, "weight_update", "p", 1, changed),)} | changes)
    )


def found(evidence: Evidence) -> Finding:
    told = weights_changed.judge(evidence, ())
    assert isinstance(told, Finding), told
    return told


def test_acceptance_steps_down_with_an_update() -> None:
    told = found(updated(0.7, 0.05))
    assert (told.fault_class, told.confidence, told.severity) == ("F21", SUSPECTED, "critical")
    assert "70% of the steps, since then in 5%" in told.sentence


def test_a_target_that_went_ahead_alone() -> None:
    assert found(updated(0.7, 0.05, changed=("target weights",))).title == "The draft is behind its target"


@pytest.mark.parametrize("since", [0.75, 0.6, 0.4])
@pytest.mark.parametrize("steps", [60, 600, 20_000])
def test_an_update_that_costs_little_or_nothing_is_none(since: float, steps: int) -> None:
    assert weights_changed.judge(updated(0.7, since, steps=steps), ()) is CLEAR


def test_few_steps_are_too_few() -> None:
    assert isinstance(weights_changed.judge(updated(0.7, 0.0, steps=30), ()), Unknown)
    assert weights_changed.judge(updated(0.7, 0.2, steps=60), ()) is CLEAR


def test_the_minutes_before_do_where_steps_are_of_one_version() -> None:
    minutes = tuple(
        Moment(int(AT) - 60 * ago, share(200, 0.7 if ago > 0 else 0.04)) for ago in (6, 5, 4, 3, 2, 0, -1, -2)
    )
    only_new = StepEvidence(steps=400, requests=40, versions={1: share(400, 0.04)})
    told = found(replace(updated(0.7, 0.04, history=minutes), steps=only_new))
    assert told.confidence == SUSPECTED
    assert "70% of the steps, since then in 4%" in told.sentence


def broken(kind: str, *changed: str) -> Evidence:
    told = config(draft(odd(kind, "fc.weight")))
    event = {"how": "update_weights_from_disk", "changed": list(changed)}
    return served("s", told={**told, "weights": {**told["weights"], "version": 1, "event": event}})


@pytest.mark.parametrize("kind", ["all zero", "not finite", "norm near zero"])
def test_what_the_update_itself_broke_is_certain(kind: str) -> None:
    told = found(broken(kind, "draft 0: fc.weight", "target: model.norm.weight"))
    assert (told.fault_class, told.confidence) == ("F21", CERTAIN)


def test_the_update_is_the_root_of_what_is_missing_since() -> None:
    said = diagnose(broken("all zero", "draft 0: fc.weight")).findings
    assert [(one.kind, one.root) for one in said[:2]] == [
        (weights_changed.KIND, ""),
        (weights_missing.KIND, weights_changed.KIND),
    ]


def test_what_was_broken_before_is_no_fault_of_the_update() -> None:
    for one in (broken("all zero", "draft 0: lm_head.weight"), broken("all zero", "target: fc.weight")):
        assert not isinstance(weights_changed.judge(one, ()), Finding)
        assert [said.kind for said in diagnose(one).findings][:1] == [weights_missing.KIND]


def test_no_update_is_clear_and_a_forgotten_one_unknown() -> None:
    assert weights_changed.judge(served(), ()) is CLEAR
    told = config()
    late = served(told={**told, "weights": {**told["weights"], "version": 3}})
    assert isinstance(weights_changed.judge(late, ()), Unknown)
