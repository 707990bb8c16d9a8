"""Hidden states of the draft path on a real engine: every place, and each row at its token's position.

A hidden state depends on the tokens up to its own and on nothing else. So the rows that two engines tell of
the same tokens must be the same, whatever batches, chunks of a prefill, cached prefixes and draft trees they
came from: a row that went to another request or position would differ at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from otlp_receiver import RequestTold
from sglang_runs import LONG, REFERENCES, VARIED, ChainRun, Run
from specscope import convention as c
from specscope import hidden
from specscope.hidden import HiddenRow

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

H = 128
NORMS = (207.0, 270.0, 297.0)
"""Of the three aux hidden states of the tiny target, each sqrt(128) times its rms (fault-table.md)."""
Print = tuple[int, ...]
"""Level and units of one row and slot."""


def by_position(one: RequestTold, place: str, slot: int) -> dict[int, list[Print]]:
    """Return the fingerprints of the target-fed rows of a place by position, oldest first."""
    found: dict[int, list[Print]] = {}
    for row in one.hidden:
        if (row.place, row.slot, row.source) != (place, slot, c.TARGET_FED):
            continue
        assert row.levels is not None and row.fingerprints is not None
        units = list(row.fingerprints)
        for at, level in enumerate(row.levels):
            print_ = (level, *units[at * hidden.PROJECTIONS :][: hidden.PROJECTIONS])
            found.setdefault(row.position + at, []).append(print_)
    return found


def alike(one: Print, other: Print) -> bool:
    """Say whether rows differ by a last place at most: batches of other shapes sum in other orders."""
    return all(abs(a - b) <= 1 for a, b in zip(one, other, strict=True))


def of(rows: Iterable[HiddenRow], place: str, source: str = c.TARGET_FED) -> list[HiddenRow]:
    return [row for row in rows if (row.place, row.source) == (place, source)]


def test_every_place_of_a_healthy_chain_is_told(chain: ChainRun) -> None:
    assert chain.told.metric(c.METRIC_HOOK_ERRORS) == 0
    for rid in REFERENCES:
        one = chain.told.requests[rid]
        kept = {(e.step, e.after): e.rows for e in one.extends}
        fed = of(one.hidden, hidden.FED)
        assert {(row.step, row.after) for row in fed} == set(kept)
        for place in (hidden.AUX_CAPTURE, hidden.FC_IN):  # a chain hands the very tensor on
            rows = of(one.hidden, place)
            assert {(row.step, row.slot) for row in rows} == {(row.step, row.slot) for row in fed}
            assert {(row.same_as, row.mean, row.levels) for row in rows} == {(hidden.FED, None, None)}
        for place in (hidden.FED, hidden.FC_OUT, hidden.EMBEDDING):
            for row in of(one.hidden, place):
                assert row.rows == kept[row.step, row.after]
                assert (row.nonfinite, row.zero_rows, row.mode) == (0, 0, c.EAGER)
                # A token that follows itself is embedded alike; its hidden state is another one.
                assert row.equal_rows == 0 or place == hidden.EMBEDDING
        for extend in one.extends:
            if extend.after == "verify":
                own = [row for row in of(one.hidden, hidden.CARRY, c.SELF_FED) if row.step == extend.step]
                assert sorted(row.draft_step for row in own) == [1, 2, 3]
        assert {row.rows for row in of(one.hidden, hidden.CARRY)} == {1}


def test_norms_of_the_aux_hidden_states_are_those_that_were_measured(chain: ChainRun) -> None:
    for slot, wanted in enumerate(NORMS):
        rows = [
            row
            for rid in REFERENCES
            for row in of(chain.told.requests[rid].hidden, hidden.FED)
            if row.slot == slot
        ]
        squares = sum(row.rows * (row.rms or 0.0) ** 2 for row in rows)
        norm = (squares * H / sum(row.rows for row in rows)) ** 0.5
        assert norm == pytest.approx(wanted, rel=0.15)


def test_every_token_is_looked_at_once(chain: ChainRun) -> None:
    for rid in (*REFERENCES, *VARIED):
        one = chain.told.requests[rid]
        cached = int(one.attributes[c.REQUEST_CACHED])
        known = one.attributes[c.GEN_AI_INPUT_TOKENS] + sum(step.committed for step in one.counted)
        found = by_position(one, hidden.FED, 0)
        # Of what was committed last the target's states are known, but of the very last token.
        assert set(range(cached, known)) <= set(found)
        assert all(len(prints) == 1 for prints in found.values())


@pytest.mark.parametrize("place", [hidden.FED, hidden.FC_OUT, hidden.EMBEDDING])
def test_rows_are_the_same_in_a_chain_and_in_a_tree(chain: ChainRun, tree: Run, place: str) -> None:
    compared = 0
    for rid in (*REFERENCES, *VARIED):
        for slot in range(3 if place == hidden.FED else 1):
            one = by_position(chain.told.requests[rid], place, slot)
            other = by_position(tree.told.requests[rid], place, slot)
            for position in one.keys() & other.keys():
                assert alike(one[position][0], other[position][0]), (rid, slot, position)
                compared += 1
    assert compared > 1000


def test_of_a_tree_the_captured_states_of_the_accepted_path_are_the_fed_ones(tree: Run) -> None:
    compared = 0
    for rid in (*REFERENCES, *VARIED):
        one = tree.told.requests[rid]
        for slot in range(3):
            captured = [row for row in of(one.hidden, hidden.AUX_CAPTURE) if row.slot == slot]
            fed = {row.step: row for row in of(one.hidden, hidden.FED) if row.slot == slot}
            for row in captured:
                if row.after == "verify":
                    assert row.levels == fed[row.step].levels
                    assert row.fingerprints == fed[row.step].fingerprints
                    compared += row.rows
    assert compared > 500


def test_rows_are_the_same_after_a_chunked_prefill_and_after_a_cached_prefix(chain: ChainRun) -> None:
    chunked = by_position(chain.told.requests["long"], hidden.FED, 1)
    cached = by_position(chain.told.requests["long-again"], hidden.FED, 1)
    assert set(range(len(LONG))) <= set(chunked)
    assert 0 < min(cached) < len(LONG)
    for position, prints in cached.items():
        if position in chunked:
            assert alike(prints[0], chunked[position][0]), position


def test_the_seeds_fault_shows_one_state_that_never_reaches_fc(seed_fault: Run) -> None:
    for rid in REFERENCES:
        one = seed_fault.told.requests[rid]
        fed = of(one.hidden, hidden.FED)
        assert fed and {(row.slot, row.levels) for row in fed} == {(0, None)}
        assert not of(one.hidden, hidden.FC_IN) and not of(one.hidden, hidden.FC_OUT)
        assert not of(one.hidden, hidden.AUX_CAPTURE)
