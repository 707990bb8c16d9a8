"""Other SGLang versions, not those the tracer was written for: what fits is traced, with right numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from otlp_receiver import Receiver
from sglang_engine import CHAIN, PYTHON_VARIABLE, Server, speculation
from sglang_runs import REFERENCES, traced
from specscope import convention as c
from specscope.ledger import gaps
from tiny_prompts import references

from scripts import sglang_other

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.mark.parametrize("version", sglang_other.TRACED)
def test_another_version(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(sglang_other.ensure(version)))
    receiver = Receiver()
    with Server(tmp_path, speculation(CHAIN), traced(receiver)) as server:
        answers = server.generate_all(REFERENCES, 4)
        told = receiver.settled(list(answers))
        lines = server.ours()
    receiver.close()
    for number, one in enumerate(references()):
        answer, seen = answers[f"ref-{number}"], told.requests[f"ref-{number}"]
        assert answer["output_ids"] == one.continuation
        assert [step.accepted for step in seen.counted] == one.accepted
        counts = answer["meta_info"]
        assert counts["spec_verify_ct"] == seen.attributes[c.REQUEST_VERIFY_STEPS]
        assert counts["spec_num_correct_drafts"] == seen.attributes[c.REQUEST_ACCEPTED]
        assert seen.attributes[c.GEN_AI_OUTPUT_TOKENS] == 48
    assert told.arming() == dict.fromkeys(c.BOUNDARIES, c.ARMING_ARMED)
    expected, observed = ({key: int(n) for key, n in counts.items()} for counts in told.ledger())
    assert gaps(expected, observed, dict.fromkeys(c.BOUNDARIES, True)) == []  # pyright: ignore[reportArgumentType]
    assert told.metric(c.METRIC_HOOK_ERRORS) == 0
    assert told.resources[-1][c.ENGINE_VERSION] == version
    assert any(f"SGLang {version} was not tested" in line for line in lines)
    assert any("send_abort_output does not exist in this engine version" in line for line in lines)
