"""F20 from generated evidence: no engine on a CPU hosts a recurrent target beside EAGLE-3."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_literals import CONFIG, HEALTHY, counts
from specscope import hidden
from specscope_server.diagnosis import Evidence, diagnose, recurrent_state
from specscope_server.diagnosis.engine_evidence import ReferenceEvidence
from specscope_server.diagnosis.model import SUSPECTED, Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown

HYBRID = {**CONFIG, "target": {"class": "Qwen3NextForCausalLM", "model_type": "qwen3_next"}}
PLAIN = {**CONFIG, "target": {"class": "Qwen3ForCausalLM", "model_type": "qwen3"}}


def slot(number: int, error: float, shifted: float = 1.2, other: float = 1.3) -> ReferenceEvidence:
    return ReferenceEvidence(
        hidden.AUX_CAPTURE,
        number,
        400,
        error,
        scale=1.01,
        cosine=0.93,
        shifted={-1: shifted, 1: 1.3},
        other_slots={(number + 1) % 3: other},
    )


DRIFTED = replace(HEALTHY, config=HYBRID, reference=tuple(slot(n, 0.3 + n / 20) for n in range(3)))


def test_states_that_differ_everywhere_on_a_recurrent_target_are_suspected() -> None:
    verdict = recurrent_state.judge(DRIFTED, ())
    assert isinstance(verdict, Finding)
    assert (verdict.fault_class, verdict.confidence) == ("F20", SUSPECTED)
    assert "answers" in verdict.sentence
    assert diagnose(DRIFTED).findings[0].kind == recurrent_state.KIND


@pytest.mark.parametrize(
    "evidence",
    [
        replace(DRIFTED, config=PLAIN),
        replace(DRIFTED, reference=tuple(slot(n, 0.01) for n in range(3))),
        replace(DRIFTED, reference=(slot(0, 0.4), slot(1, 0.01), slot(2, 0.4))),
        replace(DRIFTED, reference=tuple(slot(n, 0.4, other=0.02) for n in range(3))),
        replace(DRIFTED, reference=tuple(slot(n, 0.9, shifted=0.02) for n in range(3))),
        replace(DRIFTED, reference=tuple(replace(slot(n, 0.9), scale=0.1, cosine=1.0) for n in range(3))),
        replace(DRIFTED, counts=counts(400, 1600, 0)),
    ],
    ids=[
        "no recurrent layers",
        "as the reference",
        "one slot right",
        "order",
        "shifted",
        "scaled",
        "all kept",
    ],
)
def test_whatever_explains_it_otherwise_is_not_this(evidence: Evidence) -> None:
    assert recurrent_state.judge(evidence, ()) is CLEAR


def test_without_a_reference_or_an_architecture_it_is_unknown() -> None:
    assert isinstance(recurrent_state.judge(replace(DRIFTED, reference=()), ()), Unknown)
    assert isinstance(recurrent_state.judge(replace(DRIFTED, config=CONFIG), ()), Unknown)
