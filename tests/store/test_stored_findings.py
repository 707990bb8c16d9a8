"""Findings: opened once, refreshed while they hold, closed when they do not, worst first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from specscope_server.diagnosis.model import Finding, Number, Ruled
from specscope_server.store.port import Refused, Store
from specscope_server.store.values import engine_uid
from storekit import facts

FC = Finding(
    kind="fc_bypassed",
    fault_class="F04",
    severity="critical",
    confidence="certain",
    title="fc bypassed",
    sentence="The draft's fc never ran.",
    numbers=(Number("fc at target-fed passes", 0, 12, "crossings", "/engines/x"),),
    ruled_out=(Ruled("draft silent", "it proposed 12 times"),),
    next_check="Look at the draft's config.",
    fix="Set use_aux_hidden_state.",
    boundary="draft.fc",
)
ZERO = replace(
    FC, kind="zero_acceptance", fault_class="", severity="warning", confidence="observation", boundary=""
)


@pytest.fixture
def engine(store: Store) -> Store:
    """A store with one engine."""
    store.write([facts.batch(facts.REPORT)], facts.NOW)
    return store


def test_a_finding_reads_back_whole(engine: Store) -> None:
    engine.replace_findings(facts.ENGINE, [FC], facts.ago(9))
    (row,) = engine.findings("default")
    assert (row.engine_uid, row.engine, row.kind, row.fault_class) == (
        facts.ENGINE,
        "tiny",
        "fc_bypassed",
        "F04",
    )
    assert (row.severity, row.confidence, row.title) == ("critical", "certain", "fc bypassed")
    assert row.sentence == "The draft's fc never ran."
    assert (row.opened, row.last_seen, row.closed) == (facts.ago(9), facts.ago(9), None)
    assert row.body["numbers"] == [
        {
            "name": "fc at target-fed passes",
            "value": 0,
            "expected": 12,
            "unit": "crossings",
            "link": "/engines/x",
        }
    ]
    assert row.body["ruled_out"] == [{"fault": "draft silent", "by": "it proposed 12 times"}]
    assert (row.body["next_check"], row.body["fix"]) == (FC.next_check, FC.fix)


def test_what_holds_is_refreshed_what_does_not_is_closed(engine: Store) -> None:
    engine.replace_findings(facts.ENGINE, [FC, ZERO], facts.ago(9))
    worse = replace(FC, sentence="It never ran in 20 passes.")
    engine.replace_findings(facts.ENGINE, [worse, worse], facts.ago(5))
    (row,) = engine.findings("default")
    assert (row.opened, row.last_seen, row.sentence) == (facts.ago(9), facts.ago(5), worse.sentence)
    assert [(r.kind, r.closed) for r in engine.findings("default", active=False)] == [
        ("fc_bypassed", None),
        ("zero_acceptance", facts.ago(5)),
    ]


def test_one_that_comes_back_is_a_new_one(engine: Store) -> None:
    for seconds, found in ((9, [FC]), (8, []), (7, [FC])):
        engine.replace_findings(facts.ENGINE, found, facts.ago(seconds))
    assert [(row.opened, row.closed) for row in engine.findings("default", active=False)] == [
        (facts.ago(7), None),
        (facts.ago(9), facts.ago(8)),
    ]


def test_the_same_kind_at_two_boundaries_is_two(engine: Store) -> None:
    engine.replace_findings(facts.ENGINE, [FC, replace(FC, boundary="draft.map")], facts.NOW)
    assert len(engine.findings("default")) == 2


def test_other_engines_keep_theirs(engine: Store) -> None:
    second = engine_uid("default", "test", "second")
    engine.write([facts.batch(instance="second")], facts.NOW)
    engine.replace_findings(facts.ENGINE, [FC], facts.NOW)
    engine.replace_findings(second, [ZERO], facts.NOW)
    engine.replace_findings(facts.ENGINE, [], facts.NOW)
    assert [row.kind for row in engine.findings("default")] == ["zero_acceptance"]
    assert engine.findings("default", facts.ENGINE) == []


def test_worst_first(engine: Store) -> None:
    told = [
        replace(FC, kind=kind, severity=severity, confidence=confidence)
        for kind, severity, confidence in (
            ("e", "info", "certain"),
            ("d", "warning", "observation"),
            ("b", "critical", "suspected"),
            ("c", "warning", "certain"),
            ("a", "critical", "certain"),
        )
    ]
    engine.replace_findings(facts.ENGINE, told, facts.NOW)
    assert [row.kind for row in engine.findings("default")] == list("abcde")


def test_an_unknown_engine_is_refused(engine: Store) -> None:
    with pytest.raises(Refused, match="no engine '0123456789abcdef'"):
        engine.replace_findings("0123456789abcdef", [FC], facts.NOW)
