"""What draft extends left, as evidence: each token with the conditions that it came in, of which requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from specscope import hidden, reference_file
from specscope.hidden import HiddenRow
from specscope_server.diagnosis.engine_evidence import DraftState
from specscope_server.store import reference_answers, reference_evidence
from specscope_server.store.port import Store
from specscope_server.store.told import Batch
from storekit import facts, references
from storekit.reference_requests import PROMPT, told
from storekit.references import FACTS, States, passage, rows, states

LEFT = states(tokens=59, slots=1, seed=2)


def extends(left: States) -> list[HiddenRow]:
    """What a draft extend tells of its carry: the last row of each pass."""
    return [
        replace(
            one,
            position=one.position + one.rows - 1,
            rows=1,
            levels=(one.levels or [])[-1:],
            fingerprints=(one.fingerprints or [])[-hidden.PROJECTIONS :],
        )
        for one in rows(left, hidden.CARRY)
    ]


def request(uid: str, left: States = LEFT, cached: int | None = None, ago: float = 1) -> Batch:
    found = told(uid, [*rows(states()), *extends(left)])
    requests = [replace(one, cached_tokens=cached, arrival_ns=facts.ago_ns(ago)) for one in found.requests]
    return replace(found, requests=tuple(requests))


@pytest.fixture
def referred(store: Store) -> Store:
    file = references.file(passage({hidden.FED: states(), hidden.CARRY: LEFT}, name="whole"))
    _, sequences = reference_file.read(file.splitlines())
    store.add_reference("default", "r0", FACTS, sequences, 1, facts.ago(60))
    return store


def left_of(store: Store) -> tuple[DraftState, ...]:
    found = store.evidence("default", facts.ENGINE, facts.NOW, 300)
    assert found is not None
    return found.draft_states


def test_each_token_is_told_with_the_conditions_that_it_came_in(referred: Store) -> None:
    wrong = LEFT.copy()
    wrong[PROMPT + 3 :] *= -2
    referred.write([request("u0", wrong, cached=12)], facts.NOW)
    found = left_of(referred)
    assert [one.position for one in found] == [PROMPT - 1, *range(PROMPT + 3, 58, 4), 58]
    assert found[0].error < 0.05 and found[0].scale == pytest.approx(1, abs=0.01)
    assert {one.sequence for one in found} == {"0"} and {one.request for one in found} == {"u0"}
    assert (found[0].after, found[0].since_prefill, found[0].row, found[0].cached) == ("prefill", 0, None, 12)
    for number, one in enumerate(found[1:], start=1):
        assert one.error == pytest.approx(3, rel=0.05) and one.scale == pytest.approx(2, rel=0.01)
        step = facts.step(1)
        assert (one.after, one.since_prefill, one.row, one.batch) == (
            "verify",
            number,
            step.row,
            step.batch_size,
        )
        assert one.full_accepts == number * (step.accepted == step.drafted_depth)


def test_a_state_is_held_against_those_of_the_tokens_beside_it(referred: Store) -> None:
    """Each state is the reference's of the token before; the last two have no known token behind."""
    before = np.roll(LEFT, 1, axis=0)
    referred.write([request("u0", before)], facts.NOW)
    *inner, _ = left_of(referred)
    for one in inner:
        assert one.error > 0.1  # a token alone is told to a quarter
        assert one.shifted[-1] < 0.05 and one.shifted[1] > 0.1
        assert one.committed == (None if one.after == "prefill" else 4)


def test_a_token_at_an_end_of_what_is_known_has_one_neighbour(referred: Store) -> None:
    referred.write([request("u0")], facts.NOW)
    *inner, last = left_of(referred)
    assert [sorted(one.shifted) for one in inner] == [[-1, 1]] * len(inner)
    assert sorted(last.shifted) == [-1]


def test_a_reference_without_the_drafts_layer_tells_none(store: Store) -> None:
    _, sequences = reference_file.read(references.file(passage(states(), name="old")).splitlines())
    store.add_reference("default", "r0", FACTS, sequences, 1, facts.ago(60))
    store.write([request("u0")], facts.NOW)
    assert left_of(store) == ()


def test_requests_of_both_kinds_of_prefix_are_looked_at(referred: Store) -> None:
    """Thirty newer requests reuse a prefix, and the ten before them were cold."""
    referred.write([request(f"cached{n}", cached=12, ago=1 + n) for n in range(30)], facts.NOW)
    referred.write([request(f"cold{n}", cached=0, ago=100 + n) for n in range(10)], facts.NOW)
    seen = list(dict.fromkeys(one.request for one in left_of(referred)))
    newest = [f"cached{n}" for n in range(reference_answers.MAX_REQUESTS)]
    assert seen == [*newest, *(f"cold{n}" for n in range(reference_answers.MIN_OF_KIND))]


def test_of_cold_prompts_those_go_first_that_may_be_the_very_ones_that_were_cached(referred: Store) -> None:
    """Ten newer cold prompts are of another length than the cached one, and an older one is as long."""
    long = [replace(request(f"long{n}", cached=0, ago=100 + n)) for n in range(10)]
    long = [
        replace(one, requests=tuple(replace(told, prompt_tokens=PROMPT + 1) for told in one.requests))
        for one in long
    ]
    referred.write([request(f"cached{n}", cached=12, ago=1 + n) for n in range(20)], facts.NOW)
    referred.write([*long, request("twin", cached=0, ago=200)], facts.NOW)
    seen = {one.request for one in left_of(referred)}
    assert "twin" in seen and {f"long{n}" for n in range(7)} <= seen and "long7" not in seen


def test_what_is_told_is_bounded(referred: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_evidence, "MAX_DRAFT_STATES", 15)
    referred.write([request("new"), request("old", ago=9)], facts.NOW)
    assert [one.request for one in left_of(referred)] == ["new"] * 11 + ["old"] * 4
