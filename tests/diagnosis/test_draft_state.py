"""The draft's states against a reference: which condition makes the very same tokens wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from evidence_literals import counts, evidence, ledger, path
from specscope import hidden
from specscope_server.diagnosis import (
    cliff,
    draft_kv_stale,
    draft_state,
    position_config,
    prefix_draft_kv,
    row_or_graph_stale,
    shifted,
)
from specscope_server.diagnosis.engine_evidence import DraftState, ReferenceEvidence
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Evidence, Finding
from specscope_server.diagnosis.registry import diagnose

INPUTS = tuple(
    ReferenceEvidence(place, slot, 400, 0.01, 1.0)
    for place, slots in ((hidden.FED, 3), (hidden.FC_OUT, 1), (hidden.EMBEDDING, 1))
    for slot in range(slots)
)


def request(number: int, wrong: Callable[[DraftState], bool], **changes: object) -> list[DraftState]:
    """Ten draft extends of a request: a prefill of 40 tokens and more, and nine verify steps."""
    base = DraftState(f"u{number}", str(number % 4), 40, 0.02, 1.0, "prefill", "eager", 0, since_prefill=0)
    base = replace(base, **changes)  # pyright: ignore[reportArgumentType]
    found = [replace(base, row=None, batch=None)]
    for step in range(1, 10):
        found.append(replace(base, position=base.position + 3 * step, after="verify", since_prefill=step))
    return [replace(one, error=0.8) if wrong(one) else one for one in found]


def judged(states: Sequence[DraftState], inputs: tuple[ReferenceEvidence, ...] = INPUTS) -> Evidence:
    whole = evidence(ledger(path(200, 20)), counts(200, 300, 60), users=20)
    return replace(whole, draft_states=tuple(states), reference=inputs)


def never(_: DraftState) -> bool:
    return False


def odd(one: DraftState) -> bool:
    return one.position % 2 == 1


def moved(by: int, committed: int, wrong: Callable[[DraftState], bool]) -> list[DraftState]:
    """Twenty requests whose wrong tokens hold what the reference has ``by`` tokens further."""
    states = [
        replace(one, committed=committed if one.after == "verify" else None, shifted={-1: 1.1, 1: 0.9})
        for n in range(20)
        for one in request(n, wrong, sequence=f"text {n}", position=40 + 2 * n)
    ]
    return [replace(one, shifted={-by: 0.7, by: 0.03}) if one.error > 0.3 else one for one in states]


def after_verify(one: DraftState) -> bool:
    return one.after == "verify" and odd(one)


def found(rule: Callable[..., object], seen: Evidence) -> Finding:
    told = rule(seen, ())
    assert isinstance(told, Finding), told
    return told


RULES = (
    prefix_draft_kv.judge,
    row_or_graph_stale.judge,
    draft_kv_stale.judge,
    cliff.judge,
)


def test_a_lost_cache_is_certain_at_the_same_tokens_cold_and_cached() -> None:
    """The same four texts, eight times cold and eight times cached; some tokens do not look back."""
    states = [one for n in range(8) for one in request(n, never)]
    states += [one for n in range(8, 16) for one in request(n, odd, cached=38)]
    told = found(prefix_draft_kv.judge, judged(states))
    assert (told.fault_class, told.confidence) == ("F16", CERTAIN)
    assert "40 of 80 behind a cached prefix are wrong" in told.sentence
    assert "0 of 80 tokens behind a cold prompt" in told.sentence
    assert [one.value for one in told.numbers[:3]] == [40, 0, 20]
    assert told.numbers[3].link == "/requests/u8"
    for rule in RULES[1:]:
        assert not isinstance(rule(judged(states), ()), Finding)


def test_other_texts_cold_and_cached_are_only_suspected() -> None:
    states = [one for n in range(12) for one in request(n, never)]
    states += [one for n in range(12, 24) for one in request(n, odd, cached=38, sequence=f"other {n}")]
    assert found(prefix_draft_kv.judge, judged(states)).confidence == SUSPECTED
    # Four requests on each side may be so by chance: 1 of 70 ways to deal out four of eight.
    assert draft_state.split(("cold", states[:40]), ("cached", states[120:160])) is None


def test_a_cached_prefix_of_a_few_tokens_is_none() -> None:
    states = [one for n in range(8) for one in request(n, never)]
    states += [one for n in range(8, 16) for one in request(n, odd, cached=5)]
    assert not isinstance(prefix_draft_kv.judge(judged(states), ()), Finding)


def test_prompts_that_share_a_templates_few_tokens_are_cold_too() -> None:
    """No prompt is quite cold: all share six tokens. Four texts, each asked twice, and loss shows in half."""
    states = [one for n in range(4) for one in request(n, never, cached=6)]
    states += [one for n in range(4, 8) for one in request(n, odd, cached=38)]
    told = found(prefix_draft_kv.judge, judged(states))
    assert (told.fault_class, told.confidence) == ("F16", CERTAIN)
    assert "0 of 40 tokens behind a cold prompt, or one of which few were cached" in told.sentence


def test_a_few_lost_tokens_that_spoil_a_prompt_do_not_hide_what_cold_ones_show() -> None:
    states = [one for n in range(4) for one in request(n, never)]
    states += [one for n in range(4, 8) for one in request(n, odd, cached=6)]
    states += [one for n in range(8, 12) for one in request(n, odd, cached=38)]
    told = found(prefix_draft_kv.judge, judged(states))
    assert told.confidence == CERTAIN and "0 of 40 tokens behind a cold prompt;" in told.sentence


@pytest.mark.parametrize(
    "inputs",
    [
        (),
        INPUTS[:4],
        tuple(replace(one, relative_error=0.4) for one in INPUTS),
        (*INPUTS[:3], replace(INPUTS[3], relative_error=0.4), INPUTS[4]),
    ],
    ids=["none compared", "no embedding", "all differ", "fc differs"],
)
def test_wrong_or_unknown_inputs_are_told_by_their_own_rules(inputs: tuple[ReferenceEvidence, ...]) -> None:
    states = [one for n in range(8) for one in request(n, never)]
    states += [one for n in range(8, 16) for one in request(n, odd, cached=38)]
    assert not isinstance(prefix_draft_kv.judge(judged(states, inputs), ()), Finding)


def test_high_rows_alone_are_certain_at_the_same_tokens() -> None:
    states = [one for n in range(16) for one in request(n, never, row=n // 4, batch=4)]
    states = [
        replace(one, error=0.9) if one.row is not None and one.row >= 2 and odd(one) else one
        for one in states
    ]
    told = found(row_or_graph_stale.judge, judged(states))
    assert (told.fault_class, told.confidence) == ("F18", CERTAIN)
    assert "rows 2 and up" in told.sentence and "rows below 2" in told.sentence


def test_captured_graphs_alone_are_certain_at_the_same_tokens() -> None:
    states = [one for n in range(8) for one in request(n, never, row=0, batch=1)]
    graph = [one for n in range(8, 16) for one in request(n, odd, row=0, batch=1)]
    states += [
        replace(one, mode="graph") if one.after == "verify" else replace(one, error=0.02) for one in graph
    ]
    told = found(row_or_graph_stale.judge, judged(states))
    assert (told.confidence, told.title) == (CERTAIN, "Only captured graphs are bad")


def test_right_after_prefills_and_wrong_after_verify_steps_is_a_stale_cache() -> None:
    """Prompts of 40 to 78 tokens: prefills end where verify steps of others run."""
    states = [
        one
        for n in range(20)
        for one in request(
            n, lambda s: s.after == "verify" and odd(s), sequence=f"text {n}", position=40 + 2 * n
        )
    ]
    told = found(draft_kv_stale.judge, judged(states))
    assert (told.fault_class, told.confidence) == ("F15", CERTAIN)
    in_graphs = [replace(one, mode="graph") if one.after == "verify" else one for one in states]
    assert found(draft_kv_stale.judge, judged(in_graphs)).confidence == SUSPECTED
    assert not isinstance(cliff.judge(judged(states), ()), Finding)


def test_wrong_behind_every_prefill_is_no_stale_cache() -> None:
    """A window that ends behind the longest prompt: no prefill is as long as the wrong contexts."""
    states = [one for n in range(20) for one in request(n, lambda s: s.position >= 55, sequence=f"text {n}")]
    assert not isinstance(draft_kv_stale.judge(judged(states), ()), Finding)


def test_right_up_to_one_position_and_wrong_behind_is_a_window() -> None:
    states = [
        one
        for n in range(20)
        for one in request(n, lambda s: s.position >= 60, sequence=f"text {n}", position=40 + 2 * n)
    ]
    told = found(cliff.judge, judged(states))
    assert (told.fault_class, told.confidence) == ("F17", CERTAIN)
    assert told.title == "The draft's states are wrong from position 60 on"


def test_a_sound_engine_has_none_of_them_and_one_odd_token_is_none() -> None:
    states = [
        one
        for n in range(20)
        for one in request(n, never, cached=38 * (n % 2), row=n % 4, batch=4, position=40 + n)
    ]
    for seen in (states, [replace(states[0], error=1.2), *states[1:]]):
        for rule in RULES:
            assert not isinstance(rule(judged(seen), ()), Finding)


@pytest.mark.parametrize(("by", "side"), [(-1, "before"), (1, "after")])
def test_states_of_the_neighbouring_token_are_off_by_one_and_no_stale_cache(by: int, side: str) -> None:
    """Drafting goes on from the row beside the last accepted one; steps of three tokens."""
    seen = judged(moved(by, 3, after_verify))
    told = found(shifted.judge, seen)
    assert (told.fault_class, told.confidence) == ("F14", CERTAIN)
    assert told.title == f"Drafting goes on from the state of the token {side}"
    assert [one.value for one in told.numbers[:2]] == [100, 100]
    for rule in (*RULES, position_config.judge):
        assert not isinstance(rule(seen, (told,)), Finding)
    assert [one.kind for one in diagnose(seen).findings] == ["shifted"]


def test_the_state_of_the_step_before_is_that_of_the_token_before_where_a_step_commits_one() -> None:
    """Then a row that was not written anew looks alike: only a suspicion. Prefills have no step before."""
    assert found(shifted.judge, judged(moved(-1, 1, after_verify))).confidence == SUSPECTED
    every = moved(-1, 1, lambda one: True)
    assert found(shifted.judge, judged(every)).confidence == CERTAIN


def test_a_few_tokens_that_fit_their_neighbour_are_not_moved() -> None:
    states = moved(-1, 3, after_verify)
    stale = [replace(one, shifted={-1: 0.9, 1: 1.2}) if one.position % 4 == 1 else one for one in states]
    seen = judged(stale)
    assert not isinstance(shifted.judge(seen, ()), Finding)
    assert found(draft_kv_stale.judge, seen).confidence == CERTAIN


def test_moved_states_of_wrong_inputs_are_told_by_the_rules_of_the_inputs() -> None:
    assert not isinstance(shifted.judge(judged(moved(-1, 3, after_verify), INPUTS[:4]), ()), Finding)
