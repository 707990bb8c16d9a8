"""F19: ranks that part are named, with the step and the side; ranks not heard are not taken for agreeing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_literals import CONFIG, HEALTHY
from specscope import convention as c
from specscope import hidden
from specscope_server.diagnosis import Diagnosis, Finding, diagnose
from specscope_server.diagnosis.model import RankEvidence, RankHidden

TOGETHER = RankEvidence(0, 0, 2, (0, 1), 1234, 1234, 0, 0, steps=(3, 1236))
SAMPLED_APART = replace(
    TOGETHER, accepts_differ=7, proposals_differ=6, first_step=40, boundary=c.TARGET_VERIFY, apart=(0, 1)
)
DRAFTED_APART = replace(
    TOGETHER,
    size=4,
    heard=(0, 1, 2, 3),
    proposals_differ=3,
    first_step=40,
    boundary=c.DRAFT_PROPOSE,
    apart=(2,),
)


def of(*groups: RankEvidence, **config: Any) -> Diagnosis:
    return diagnose(replace(HEALTHY, ranks=groups, config={**CONFIG, **config}))


def found(*groups: RankEvidence) -> Finding:
    (one,) = of(*groups).findings
    assert (one.kind, one.fault_class, one.confidence) == ("rank_divergence", "F19", "certain")
    return one


def test_ranks_that_agree_are_healthy() -> None:
    said = of(TOGETHER)
    assert (said.findings, said.state.word) == ((), "healthy")
    assert "rank_divergence" not in said.unknown


def test_accepts_that_part_are_critical_and_say_since_when() -> None:
    one = found(SAMPLED_APART)
    assert (one.severity, one.boundary) == ("critical", c.TARGET_VERIFY)
    assert "At engine step 40 the ranks 0 and 1 accepted different tokens" in one.sentence
    assert "though they had proposed the same" in one.sentence
    assert "6 proposals and 7 accepts of 1234 compared steps differ" in one.sentence
    by_name = {n.name: (n.value, n.expected) for n in one.numbers}
    assert by_name["first engine step that differs"] == (40, None)
    assert by_name["steps with different accepts"] == (7, 0)
    assert by_name["ranks heard"] == (2, 2)


def test_proposals_alone_are_a_warning_and_name_the_odd_rank() -> None:
    one = found(DRAFTED_APART)
    assert (one.severity, one.boundary) == ("warning", c.DRAFT_PROPOSE)
    assert "rank 2 against the others proposed different drafts" in one.sentence
    assert "though they" not in one.sentence


def test_nothing_is_said_of_proposals_that_could_not_be_seen() -> None:
    assert (
        "though they" not in found(replace(SAMPLED_APART, proposals_compared=0, proposals_differ=0)).sentence
    )


def test_of_several_groups_the_one_apart_is_named() -> None:
    one = found(TOGETHER, replace(SAMPLED_APART, dp=1))
    assert one.sentence.startswith("dp 1 pp 0: At engine step 40")


@pytest.mark.parametrize(
    ("groups", "config", "reason"),
    [
        ((replace(TOGETHER, heard=(1,), compared=0),), {}, "1 of 2 ranks heard (rank 1)"),
        ((replace(TOGETHER, size=4),), {}, "2 of 4 ranks heard (rank 0, 1), so not all could be compared"),
        ((replace(TOGETHER, compared=0),), {}, "2 of 2 ranks heard, but no step was told by two"),
        ((TOGETHER, replace(TOGETHER, dp=1, heard=(0,))), {}, "dp 1 pp 0: 1 of 2 ranks heard"),
        ((), {"arguments": {"tp_size": 2}}, "no rank has told of its steps, though the engine is set to 2"),
    ],
)
def test_ranks_not_heard_are_no_data(
    groups: tuple[RankEvidence, ...], config: dict[str, Any], reason: str
) -> None:
    said = of(*groups, **config)
    assert said.findings == ()
    assert reason in said.unknown["rank_divergence"]


def test_a_divergence_explains_no_other_finding() -> None:
    kinds = [f.kind for f in of(SAMPLED_APART).findings]
    assert kinds == ["rank_divergence"]


def looked(fed: float, made: float, compared: int = 200) -> RankEvidence:
    """Ranks that agree on all drafts and accepts; of their states these median errors."""
    return replace(
        TOGETHER,
        hidden=(
            RankHidden(0, compared, 1.2, 7, 1, hidden.FED, fed),
            RankHidden(0, compared, 1.2, 7, 1, hidden.FC_OUT, made),
        ),
    )


def test_ranks_that_agree_on_drafts_may_make_different_states() -> None:
    """Parts are added up, and all ranks go on from the sum: an fc of another checkpoint shows in no token."""
    one = found(looked(0.0, 1.1))
    assert (one.title, one.boundary) == ("Ranks make different states of the same input", c.DRAFT_FC)
    assert "though both are fed the same" in one.sentence
    assert [(n.name, n.value) for n in one.numbers[:2]] == [
        ("median relative error of the ranks at draft.fc.out, slot 0", 1.1),
        ("median relative error of the ranks at draft.extend, slot 0", 0.0),
    ]


def test_ranks_that_are_fed_different_states_are_told_at_the_first_place() -> None:
    one = found(looked(0.4, 1.1))
    assert (one.title, one.boundary) == ("Ranks are fed different states", c.DRAFT_EXTEND)


def test_rounding_a_few_steps_and_a_single_odd_one_are_none() -> None:
    for told in (looked(0.004, 0.03), looked(0.0, 1.1, compared=7), looked(0.0, 0.0)):
        assert of(told).findings == ()
