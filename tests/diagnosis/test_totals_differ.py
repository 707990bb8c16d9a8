"""F24 from literals: one exact difference is enough, and what was not compared is no sign of health."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evidence_literals import CONFIG, HEALTHY
from specscope_server.diagnosis import diagnose
from specscope_server.diagnosis.model import CERTAIN, Difference, Reconciliation
from specscope_server.diagnosis.quirks import QUIRKS
from specscope_server.store.told import EngineCounts

ENGINES = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
LIE = Difference("req-9", "chat-9", 12, 34, EngineCounts(12, 35))
KIND = "totals_differ"


def test_one_difference_is_a_certain_finding_with_both_numbers_and_the_request() -> None:
    given = replace(HEALTHY, reconciliation=Reconciliation(500, (LIE,), {"why": 3}))
    found = diagnose(given)
    (finding,) = found.findings
    assert (finding.kind, finding.fault_class, finding.confidence) == (KIND, "F24", CERTAIN)
    assert "of chat-9 the engine says 35 accepted drafts, its steps add up to 34" in finding.sentence
    assert found.state.word == "faulty"
    numbers = {number.name: number for number in finding.numbers}
    lie = numbers["accepted drafts of chat-9, as the engine counts"]
    assert (lie.value, lie.expected, lie.link) == (35, 34, "/requests/req-9")
    assert numbers["requests compared"].value == 500
    assert numbers["requests not compared: why"].value == 3


def test_a_difference_in_steps_is_said_as_that() -> None:
    lie = replace(LIE, engine=EngineCounts(13, 34))
    (finding,) = diagnose(replace(HEALTHY, reconciliation=Reconciliation(1, (lie,)))).findings
    assert "the engine says 13 verify steps, its steps add up to 12" in finding.sentence


def test_it_is_no_cause_of_zero_acceptance() -> None:
    counts = HEALTHY.counts
    assert counts is not None
    nothing = replace(counts, accepted=0, zero_steps=counts.steps)
    given = replace(HEALTHY, counts=nothing, reconciliation=Reconciliation(1, (LIE,)))
    assert {finding.kind: finding.title for finding in diagnose(given).findings} == {
        KIND: "The engine's counters and its steps differ",
        "zero_acceptance": "No benefit, cause not found",
    }


def test_equal_totals_exclude_it_and_nothing_compared_does_not() -> None:
    assert KIND not in diagnose(replace(HEALTHY, reconciliation=Reconciliation(9))).unknown
    unknown = diagnose(replace(HEALTHY, reconciliation=Reconciliation(0, (), {"commit not seen": 9}))).unknown
    assert unknown[KIND].endswith("could be compared (9: commit not seen)")
    none = replace(HEALTHY, reconciliation=Reconciliation(0))
    assert diagnose(none).unknown[KIND] == "no request ended in the last 5 minutes"


def test_quirks_of_the_engine_are_ruled_out_by_name() -> None:
    config = {**CONFIG, "versions": {"sglang": "0.5.23"}}
    given = replace(HEALTHY, config=config, reconciliation=Reconciliation(1, (LIE,)))
    (finding,) = diagnose(given).findings
    by = {ruled.fault: ruled.by for ruled in finding.ruled_out}
    assert "prefill token" in by["a known quirk of the engine"]
    other = replace(given, config={**CONFIG, "versions": {"vllm": "0.30"}})
    assert len(diagnose(other).findings[0].ruled_out) == 1


def test_every_quirk_is_explained_in_the_docs() -> None:
    for quirk in QUIRKS["sglang"]:
        assert f"| {quirk.name} |" in ENGINES
