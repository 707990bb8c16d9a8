"""Contracts, counts and gaps."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specscope import contracts, ledger
from specscope import convention as c
from specscope.records import Crossing, Expectation


def crossed(expected: dict[Expectation, int], mode: str = c.EAGER) -> dict[Crossing, int]:
    return {(boundary, source, mode): count for (boundary, source), count in expected.items()}


@pytest.mark.parametrize("num_steps", [1, 3, 5])
@pytest.mark.parametrize("has_fc", [True, False])
@pytest.mark.parametrize("has_map", [True, False])
def test_the_eagle3_contract_by_hand(num_steps: int, has_fc: bool, has_map: bool) -> None:
    contract = contracts.contract("EAGLE3", contracts.Shape(num_steps, fc=has_fc, map=has_map))
    fed = {
        ("target.aux_capture", ""): 1,
        ("draft.extend", "target_fed"): 1,
        ("draft.forward", "target_fed"): 1,
    } | ({("draft.fc", "target_fed"): 1} if has_fc else {})
    verify = fed | {("draft.propose", ""): 1, ("target.verify", ""): 1, ("engine.commit", ""): 1}
    if num_steps > 1:
        verify["draft.forward", "self_fed"] = num_steps - 1
    if has_map:
        verify["draft.map", ""] = 1
    assert contract.of(contracts.PREFILL) == fed
    assert contract.of(contracts.VERIFY) == verify
    assert ("draft.fc", "self_fed") not in verify  # fc not running on a self-fed pass is normal


def test_the_seed_fault_is_one_gap() -> None:
    contract = contracts.contract("EAGLE3", contracts.Shape(3, fc=True, map=True))
    book = ledger.Ledger()
    for boundary in c.BOUNDARIES:
        book.arm(boundary)
    for _ in range(7):
        seen = crossed(dict(contract.verify))
        del seen[c.DRAFT_FC, c.TARGET_FED, c.EAGER]
        book.add(contract.verify, seen)
    armed = {name: a.armed for name, a in book.armed.items()}
    assert ledger.gaps(*book.sums(), armed) == [ledger.Gap(c.DRAFT_FC, c.TARGET_FED, expected=7, observed=0)]
    assert ledger.gaps(*book.sums(), armed)[0].missing == 7


def test_what_cannot_be_seen_is_no_gap() -> None:
    book = ledger.Ledger()
    book.add({(c.DRAFT_FC, c.TARGET_FED): 5}, {})
    assert ledger.gaps(*book.sums(), {}) == []
    book.arm(c.DRAFT_FC)
    book.disarm(c.DRAFT_FC, "3 errors")
    assert book.armed[c.DRAFT_FC] == ledger.Arming(False, "3 errors")
    armed = {name: a.armed for name, a in book.armed.items()}
    assert ledger.gaps(*book.sums(), armed) == []


def test_modes_add_up() -> None:
    expected = Counter({(c.DRAFT_FORWARD, c.SELF_FED): 10})
    observed = Counter({(c.DRAFT_FORWARD, c.SELF_FED, c.EAGER): 4, (c.DRAFT_FORWARD, c.SELF_FED, c.GRAPH): 6})
    assert ledger.gaps(expected, observed, {c.DRAFT_FORWARD: True}) == []


KEYS = st.tuples(st.sampled_from(c.BOUNDARIES), st.sampled_from(c.SOURCES))


@given(st.dictionaries(KEYS, st.integers(0, 9)), st.dictionaries(KEYS, st.integers(0, 9)))
def test_gaps_are_exactly_the_missing_in_the_order_of_the_path(
    expected: dict[Expectation, int], seen: dict[Expectation, int]
) -> None:
    found = ledger.gaps(expected, crossed(seen), dict.fromkeys(c.BOUNDARIES, True))
    assert {(g.boundary, g.source): g.missing for g in found} == {
        key: count - seen.get(key, 0) for key, count in expected.items() if seen.get(key, 0) < count
    }
    assert [c.BOUNDARIES.index(g.boundary) for g in found] == sorted(
        c.BOUNDARIES.index(g.boundary) for g in found
    )
