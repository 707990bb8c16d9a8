"""Expectations: kept by scope and source, of one workspace, and those that hold of an engine are its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from specscope_server.store import expectations as stored
from specscope_server.store.model import ExpectationRow, ExpectationScope
from specscope_server.store.port import Refused, Store
from storekit import facts

ANY = ExpectationScope()
DECLARED = ExpectationRow(ANY, "declared", (0.745, 0.62, 0.5), 0, 2.1, "ann", facts.NOW, "from training")
LEARNED = ExpectationRow(
    ANY, "learned", (0.7, 0.6), 4711, None, "bob", facts.ago(5), "", (facts.ago(900), facts.ago(300)), "e0"
)


def of(row: ExpectationRow, *scope: str, seconds_ago: float = 0) -> ExpectationRow:
    return replace(row, scope=ExpectationScope(*scope), said=facts.ago(seconds_ago))


def test_what_was_said_reads_back_whole(store: Store) -> None:
    store.set_expectation("default", DECLARED)
    store.set_expectation("default", LEARNED)
    assert store.expectations("default") == [DECLARED, LEARNED]


def test_the_same_scope_and_source_is_said_anew(store: Store) -> None:
    store.set_expectation("default", DECLARED)
    again = replace(DECLARED, per_position=(0.5,), floor=None, who="bob")
    store.set_expectation("default", again)
    assert store.expectations("default") == [again]


def test_what_is_cleared_is_gone_and_nothing_else(store: Store) -> None:
    other = of(DECLARED, "", "tiny")
    for row in (DECLARED, LEARNED, other):
        store.set_expectation("default", row)
    assert store.clear_expectations("default", ANY, "learned") == 1
    assert store.expectations("default") == [DECLARED, other]
    assert store.clear_expectations("default", ANY) == 1
    assert store.clear_expectations("default", ANY) == 0
    assert store.expectations("default") == [other]


def test_workspaces_do_not_see_each_other(store: Store) -> None:
    store.set_expectation("team", DECLARED)
    assert store.expectations("default") == []
    assert store.clear_expectations("default", ANY) == 0
    assert store.expectations("team") == [DECLARED]


def test_a_workspace_has_only_so_many(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_EXPECTATIONS", 2)
    for model in "ab":
        store.set_expectation("default", of(DECLARED, "", model))
    with pytest.raises(Refused, match=r"workspace 'default' has 2 expectations.*clear old ones"):
        store.set_expectation("default", of(DECLARED, "", "c"))
    store.set_expectation("default", of(replace(DECLARED, floor=3.0), "", "a"))
    assert [row.scope.model for row in store.expectations("default")] == ["a", "b"]


def test_a_number_out_of_range_is_refused(store: Store) -> None:
    with pytest.raises(Refused, match="steps of an expectation is -1"):
        store.set_expectation("default", replace(LEARNED, steps=-1))
    assert store.expectations("default") == []


@pytest.mark.parametrize("name", [facts.ENGINE, "launch", "svc"])
def test_the_most_specific_of_an_engine_counts(store: Store, name: str) -> None:
    """By uid, instance or service name, before that of its model, before that of any."""
    store.write([facts.batch(facts.REPORT, service_name="svc", instance="launch")], facts.NOW)
    said = [
        of(replace(DECLARED, per_position=(0.1,))),
        of(replace(DECLARED, per_position=(0.2,)), "", facts.REPORT.model, seconds_ago=9),
        of(replace(DECLARED, per_position=(0.3,)), "stranger"),
        of(replace(DECLARED, per_position=(0.4,)), "", "another model"),
    ]
    for row in said:
        store.set_expectation("default", row)
    assert _expected(store) == (0.2,)
    store.set_expectation("default", of(replace(DECLARED, per_position=(0.5,)), name, seconds_ago=60))
    assert _expected(store) == (0.5,)


def test_the_word_said_last_counts(store: Store) -> None:
    store.write([facts.batch(facts.REPORT)], facts.NOW)
    for row in (LEARNED, replace(DECLARED, said=facts.ago(9))):
        store.set_expectation("default", row)
    assert _expected(store) == LEARNED.per_position
    store.set_expectation("default", DECLARED)
    assert _expected(store) == DECLARED.per_position


def test_a_workload_is_expected_apart(store: Store) -> None:
    store.write([facts.batch(facts.REPORT)], facts.NOW)
    store.set_expectation("default", of(DECLARED, "", "", "temperature=greedy"))
    evidence = store.evidence("default", facts.ENGINE, facts.NOW, 300)
    assert evidence is not None and evidence.expectation is None
    (found,) = evidence.workload_expectations
    assert (found.workload, found.per_position) == ("temperature=greedy", DECLARED.per_position)
    assert (found.floor, found.who, found.said) == (2.1, "ann", facts.NOW.timestamp())


def _expected(store: Store) -> tuple[float, ...]:
    evidence = store.evidence("default", facts.ENGINE, facts.NOW, 300)
    assert evidence is not None and evidence.expectation is not None
    return evidence.expectation.per_position
