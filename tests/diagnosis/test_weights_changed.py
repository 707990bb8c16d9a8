"""F21: what an update broke, and acceptance that stepped down with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_literals import NOW, counts
from specscope.rollup import Counts
from specscope_server.diagnosis import Evidence, carry_broken, diagnose, weights_changed, weights_missing
from specscope_server.diagnosis.engine_evidence import Event, Moment, ReferenceWeight
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Finding
from specscope_server.diagnosis.step_evidence import StepEvidence
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from state_literals import given
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


MLP = "model.layers.0.mlp.down_proj.weight"
OWN = "midlayer.mlp.down_proj.weight"


def pushed(
    source: str, *unused: str, renamed: tuple[str, ...] = (MLP,), written: str = MLP, **changes: Any
) -> Evidence:
    """Return an engine whose draft took ``source`` from an update that had the ``unused`` names too."""
    one = draft()
    one["tensors"] = [
        *one["tensors"],
        {"name": MLP, "shape": [128, 256], "status": "loaded", "mean": 0.0, "std": 0.15, "from": [source]},
    ]
    told = config(one)
    event = {
        "changed": [f"draft 0: {written}"],
        "draft_loads": [{"draft": 0, "unused": list(unused), "unused_count": len(unused)}],
    }
    happened = (Event(AT, "weight_update", "p", 1, ("draft weights",), renamed),)
    weights = {**told["weights"], "version": 1, "event": event}
    return replace(served(told={**told, "weights": weights}), **({"events": happened} | changes))


def test_an_update_of_a_deeper_model_that_reaches_the_draft_is_certain() -> None:
    """The names of the target's first layer are those of the draft's only one."""
    told = found(pushed(MLP, *(f"model.layers.{n}.mlp.down_proj.weight" for n in range(1, 8))))
    assert (told.fault_class, told.confidence) == ("F21", CERTAIN)
    assert told.title == "An update of another model was written into the draft"
    assert "model.layers.1.mlp.down_proj.weight" in told.sentence


def test_the_names_of_a_reference_do_where_the_load_before_is_forgotten() -> None:
    before = ReferenceWeight((OWN,), (128, 256), ("ab",), 0.0, 0.15, 0.7)
    seen = pushed(MLP, "model.layers.1.mlp.down_proj.weight", events=(), reference_weights=(before,))
    assert found(seen).confidence == CERTAIN


@pytest.mark.parametrize(
    "seen",
    [
        pushed(OWN, renamed=()),
        pushed(MLP),
        pushed(MLP, "model.layers.1.self_attn.o_proj.weight", "model.norm.weight"),
        pushed("model.layers.61.mlp.down_proj.weight", "model.layers.60.mlp.down_proj.weight", renamed=()),
        pushed(MLP, "model.layers.1.mlp.down_proj.weight", written="fc.weight"),
    ],
    ids=[
        "the draft's own names",
        "other names, and no other layer",
        "other layers of other tensors",
        "a layer of the target's checkpoint, as before",
        "another tensor was changed",
    ],
)
def test_an_update_that_is_the_drafts_own_is_no_fault(seen: Evidence) -> None:
    assert not isinstance(weights_changed.judge(seen, ()), Finding)


def test_what_the_layer_leaves_since_such_an_update_is_no_fault_of_its_code() -> None:
    cause = found(pushed(MLP, "model.layers.1.mlp.down_proj.weight"))
    broken = given("k2", places=())
    assert isinstance(carry_broken.judge(broken, (replace(cause, confidence=SUSPECTED),)), Finding)
    assert carry_broken.judge(broken, (cause,)) is CLEAR


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
