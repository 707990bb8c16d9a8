"""What is told of each request equals SGLang's own ``meta_info``, step by step and in total."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from otlp_receiver import RequestTold
from sglang_runs import STOP_AFTER, ChainRun, Run
from specscope import convention as c
from specscope import tree as tree_module
from specscope.ledger import gaps
from tiny_prompts import references

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]


def check(told: RequestTold, answer: dict[str, Any], nodes: int) -> None:
    """Compare with ``meta_info``. Its quirks: ``spec_num_proposed_drafts`` is verify steps times nodes, and
    ``spec_accept_length`` counts the token of the prefill too, so it is not compared."""
    meta, sent = answer["meta_info"], told.attributes
    assert sent[c.GEN_AI_INPUT_TOKENS] == meta["prompt_tokens"]
    assert sent[c.GEN_AI_OUTPUT_TOKENS] == meta["completion_tokens"] == len(answer["output_ids"])
    assert sent[c.REQUEST_CACHED] == meta["cached_tokens"]
    assert sent[c.GEN_AI_FINISH_REASONS] == [meta["finish_reason"]["type"]]
    steps = meta.get("spec_verify_ct", 0)
    assert sent[c.REQUEST_VERIFY_STEPS] == steps == len(told.counted)
    accepted = [step.accepted for step in told.counted]
    assert sent[c.REQUEST_ACCEPTED] == sum(accepted) == meta.get("spec_num_correct_drafts", 0)
    assert sent[c.REQUEST_DRAFTED_NODES] == nodes * steps == meta.get("spec_num_proposed_drafts", 0)
    histogram = Counter(accepted)
    assert [histogram[i] for i in range(len(meta.get("spec_correct_drafts_histogram", [])))] == meta.get(
        "spec_correct_drafts_histogram", []
    )
    # The first token comes from the prefill, every other from a verify step.
    assert sent[c.REQUEST_COMMITTED] == sum(step.committed for step in told.counted)
    assert sent[c.REQUEST_COMMITTED] + 1 == meta["completion_tokens"]
    ids = [token for step in told.counted for token in step.output_ids or ()]
    assert ids == answer["output_ids"][1:]


def test_chain_totals_are_sglangs_own(chain: ChainRun) -> None:
    for rid, answer in chain.answers.items():
        check(chain.told.requests[rid], answer, nodes=4)


def test_tree_totals_are_sglangs_own(tree: Run) -> None:
    for rid, answer in tree.answers.items():
        check(tree.told.requests[rid], answer, nodes=15)


def test_chain_accepts_as_the_references_say(chain: ChainRun) -> None:
    accepted: list[list[int]] = []
    for number, one in enumerate(references()):
        steps = chain.told.requests[f"ref-{number}"].counted
        accepted.append([step.accepted for step in steps])
        assert accepted[-1] == one.accepted
        assert {(step.drafted_depth, step.drafted_nodes, step.bonus) for step in steps} == {(4, 4, 1)}
    assert (sum(map(sum, accepted)), sum(map(len, accepted))) == (593, 275)


def test_tree_accepts_as_known(tree: Run) -> None:
    steps = [step for number in range(18) for step in tree.told.requests[f"ref-{number}"].counted]
    assert (sum(step.accepted for step in steps), len(steps)) == (633, 238)


def test_tree_paths_lie_in_their_trees(tree: Run) -> None:
    steps = [step for one in tree.told.requests.values() for step in one.counted]
    aside = 0
    for step in steps:
        parents, tokens, path = step.parents, step.draft_tokens, step.accepted_path
        assert parents is not None and tokens is not None and path is not None
        assert step.output_ids is not None
        assert len(parents) == len(tokens) == step.drafted_nodes == 15
        assert all(tree_module.ORPHAN <= parent < node for node, parent in enumerate(parents))
        assert [parents[node] for node in path] == [-1, *path[:-1]][: len(path)]
        assert len(path) == step.accepted
        # What the request got is that path, then the bonus token, perhaps cut by its end.
        got = [tokens[node] for node in path][: step.committed]
        assert step.output_ids[: len(got)] == got
        assert len(path) <= step.drafted_depth == tree_module.depth(tuple(parents)) <= 4
        aside += path != list(range(len(path)))
    assert aside > 0, "no step accepted anything but the first nodes: this run does not tell paths apart"


def test_chain_drafts_are_what_was_accepted(chain: ChainRun) -> None:
    for one in chain.told.requests.values():
        for step in one.counted:
            assert step.parents == [-1, 0, 1, 2] and step.draft_tokens is not None
            assert step.accepted_path == list(range(step.accepted))
            got = step.draft_tokens[: min(step.accepted, step.committed)]
            assert step.output_ids is not None and step.output_ids[: len(got)] == got


def test_context_and_batch_of_each_step(chain: ChainRun) -> None:
    largest = 0
    for rid, answer in chain.answers.items():
        context = answer["meta_info"]["prompt_tokens"] + 1
        for step in chain.told.requests[rid].counted:
            assert step.context == context
            assert 0 <= step.row < step.batch_size <= 8
            context += step.committed
            largest = max(largest, step.batch_size)
    assert largest > 1, "no batch of more than one request: this run does not tell rows apart"


def test_stop_cuts_what_was_accepted(chain: ChainRun) -> None:
    one, reference = chain.told.requests["stopped"], references()[0]
    output = chain.answers["stopped"]["output_ids"]
    assert output == reference.continuation[: len(output)] and len(output) <= STOP_AFTER + 1
    assert one.attributes[c.GEN_AI_FINISH_REASONS] == ["stop"]
    last = one.counted[-1]
    assert last.committed < last.accepted + last.bonus
    assert [step.accepted for step in one.counted] == reference.accepted[: len(one.counted)]


def test_aborted_request_is_told_as_such(chain: ChainRun) -> None:
    one = chain.told.requests["aborted"]
    assert one.attributes[c.REQUEST_STATE] == c.STATE_ABORTED
    assert one.attributes[c.GEN_AI_FINISH_REASONS] == ["abort"]
    assert one.attributes[c.GEN_AI_OUTPUT_TOKENS] < 900
    assert one.attributes[c.REQUEST_VERIFY_STEPS] == len(one.counted)


def test_long_prompt_is_prefilled_in_chunks_and_then_cached(chain: ChainRun) -> None:
    first, again = chain.told.requests["long"].attributes, chain.told.requests["long-again"].attributes
    assert (first[c.REQUEST_PREFILLS], first[c.REQUEST_CACHED]) == (3, 0)
    assert again[c.REQUEST_PREFILLS] < 3 and again[c.REQUEST_CACHED] > 64
    after = [row for row in chain.told.requests["long"].extends if row.after == "prefill"]
    assert [row.rows for row in after] == [64, 64, 53]


def test_one_token_needs_no_verify_step(chain: ChainRun) -> None:
    one = chain.told.requests["one-token"]
    assert one.steps == [] and len(one.extends) == 1
    assert one.attributes[c.REQUEST_VERIFY_STEPS] == 0


def test_temperature_and_length_are_what_the_caller_asked_for(chain: ChainRun) -> None:
    asked = chain.told.requests
    assert asked["ref-0"].attributes[c.GEN_AI_TEMPERATURE] == 0.0
    assert asked["warm"].attributes[c.GEN_AI_TEMPERATURE] == pytest.approx(0.7)
    assert asked["ref-0"].attributes[c.GEN_AI_MAX_TOKENS] == 48


def test_times_of_a_request_follow_each_other(chain: ChainRun) -> None:
    for rid in chain.answers:
        sent = chain.told.requests[rid].attributes
        assert sent[c.REQUEST_QUEUE_S] >= 0
        assert sent[c.REQUEST_FIRST_TOKEN_S] >= sent[c.REQUEST_QUEUE_S]
        times = [step.t for step in chain.told.requests[rid].counted]
        assert times == sorted(times)
        assert all(t > sent[c.REQUEST_ARRIVAL] for t in times)


def test_healthy_path_has_no_gap_and_each_extend_its_facts(chain: ChainRun, tree: Run) -> None:
    for run in (chain, tree):
        expected, observed = run.told.ledger()
        armed = {name: not reason for name, reason in run.told.armed().items()}
        assert set(armed) == set(c.BOUNDARIES) and all(armed.values())
        whole = {key: int(count) for key, count in expected.items()}
        assert gaps(whole, {key: int(count) for key, count in observed.items()}, armed) == []
        assert {(name, source) for name, source, _ in observed} == set(whole)
        assert sum(observed.values()) == sum(expected.values()) > 0
        for one in run.told.requests.values():
            for row in one.extends:
                assert (row.fed_width, row.fc_in, row.fc_ran, row.aux_states) == (384, 384, 1, 3)
                assert (row.dtype, row.nonfinite, row.zero_rows) == ("float32", 0, 0)
                assert row.rms is not None and row.max_abs is not None and 0 < row.rms < row.max_abs
            kept = [row.rows for row in one.extends if row.after == "verify"]
            assert kept == [step.accepted + 1 for step in one.steps]
