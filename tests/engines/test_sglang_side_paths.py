"""Side paths of EAGLE-3 on a real engine: steps that adapt or stop, grammar, n > 1, retraction, mixing."""

from __future__ import annotations

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from otlp_receiver import Receiver, RequestTold
from sglang_engine import CHAIN, Server, speculation
from sglang_runs import LONG, REFERENCES, Answers, Run, traced
from specscope import convention as c
from specscope import tree
from specscope.chunks import StepRow
from tiny_prompts import references

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

FULL = 6
"""Requests in a batch from which on the adaptive engine drafts nothing."""
ADAPTIVE = {
    "1": {"candidate_steps": [1, 2, 4]},
    str(FULL): {"candidate_steps": [0]},
    "warmup_batches": 2,
    "update_interval": 2,
}
GRAMMAR = "(ab|cd){3,6}x"
RETRACT = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "9"}
"""SGLang's own switch: every ninth forward, requests are thrown back to the queue."""


@dataclass(frozen=True)
class AdaptiveRun(Run):
    """``several``: the answer to one prompt with n = 3."""

    several: list[dict[str, Any]]


@pytest.fixture(scope="module")
def adaptive(tmp_path_factory: pytest.TempPathFactory) -> AdaptiveRun:
    """The references one after the other, then eight at a time, where the engine stops drafting."""
    folder = tmp_path_factory.mktemp("adaptive")
    config = folder / "adaptive.json"
    config.write_text(json.dumps(ADAPTIVE), "utf-8")
    arguments = [
        *speculation(CHAIN),
        "--speculative-adaptive",
        "--speculative-adaptive-config",
        str(config),
        # On a CPU there is none; SGLang 0.5.23 tries to capture one for each number of steps.
        "--disable-cuda-graph",
    ]
    receiver = Receiver()
    with Server(folder, arguments, traced(receiver)) as server:
        first = references()[0]
        answers: Answers = server.generate_all(dict(list(REFERENCES.items())[:4]), 1)
        answers["regex"] = server.generate("regex", first.prompt, 40, regex=GRAMMAR, ignore_eos=False)
        full = {f"full-{number}": one.prompt for number, one in enumerate(references())}
        answers |= server.generate_all(full, 8)
        several = _several(server, first.prompt)
        server.abort_running("aborted", first.prompt)
        told = receiver.settled([*answers, *(one["meta_info"]["id"] for one in several), "aborted"])
        lines = server.ours()
    receiver.close()
    return AdaptiveRun(answers, told, lines, several)


def _several(server: Server, prompt: list[int]) -> list[dict[str, Any]]:
    """Three answers to one prompt; SGLang gives each a request id of its own."""
    sampling = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True, "n": 3}
    return server.post("/generate", {"input_ids": prompt, "sampling_params": sampling})


@pytest.fixture(scope="module")
def retracted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Eight at a time, thrown back now and then, with long prompts that are prefilled among the decodes."""
    folder = tmp_path_factory.mktemp("retracted")
    receiver = Receiver()
    environment = traced(receiver) | RETRACT
    with Server(folder, [*speculation(CHAIN), "--enable-mixed-chunk"], environment) as server:
        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(
                server.generate_all, {f"long-{n}": [*LONG, n + 3] for n in range(3)}, at_once=1
            )
            answers = server.generate_all(REFERENCES, 7)
            answers |= long.result()
        told = receiver.settled(list(answers))
        lines = server.ours()
    receiver.close()
    return Run(answers, told, lines)


def _whole(one: RequestTold, answer: dict[str, Any], prefills: int = 1) -> None:
    """A request's totals are SGLang's, and its steps spell its output.

    ``prefills``: how many of its tokens came from a prefill, which is in no verify step.
    """
    meta = answer["meta_info"]
    accepted = [step.accepted for step in one.counted]
    assert len(one.counted) == meta.get("spec_verify_ct", 0)
    assert sum(accepted) == meta.get("spec_num_correct_drafts", 0)
    assert sum(step.committed for step in one.counted) + prefills == meta["completion_tokens"]
    for step in one.counted:
        _consistent(step)


def _consistent(step: StepRow) -> None:
    assert step.draft_tokens is not None and step.output_ids is not None
    assert step.parents == list(tree.chain(step.drafted_nodes))
    assert step.drafted_depth == step.drafted_nodes == len(step.draft_tokens)
    assert step.accepted <= step.drafted_depth and step.bonus == 1
    assert step.accepted_path == list(range(step.accepted))
    got = step.draft_tokens[: min(step.accepted, step.committed)]
    assert step.output_ids[: len(got)] == got


def test_adaptive_tokens_are_those_of_plain_decoding(adaptive: AdaptiveRun) -> None:
    for number, one in enumerate(references()):
        assert adaptive.answers[f"full-{number}"]["output_ids"] == one.continuation
    for number, one in enumerate(references()[:4]):
        assert adaptive.answers[f"ref-{number}"]["output_ids"] == one.continuation


def test_steps_that_adapt_are_told_as_they_were(adaptive: AdaptiveRun) -> None:
    """Each step has the drafts that it really had, not those that were configured."""
    for rid, answer in adaptive.answers.items():
        _whole(adaptive.told.requests[rid], answer)
    alone = [step for n in range(4) for step in adaptive.told.requests[f"ref-{n}"].counted]
    depths = Counter(step.drafted_depth for step in alone)
    assert set(depths) <= {1, 2, 4} and len(depths) > 1


def test_a_full_batch_drafts_nothing_and_that_is_no_gap(adaptive: AdaptiveRun) -> None:
    steps = [step for n in range(18) for step in adaptive.told.requests[f"full-{n}"].counted]
    silent = [step for step in steps if step.drafted_depth == 0]
    assert silent and len(silent) < len(steps)
    for told in adaptive.told.engines:
        assert told["speculative"]["steps_by_batch"] == {"1": [1, 2, 4], str(FULL): [0]}
    assert all((step.batch_size >= FULL) == (step.drafted_depth == 0) for step in steps)
    for step in silent:
        assert (step.drafted_nodes, step.accepted, step.committed, step.bonus) == (0, 0, 1, 1)
        assert step.draft_tokens == [] and step.accepted_path == []
    # What the contract asks of the draft is asked only where it drafts.
    for rid in adaptive.answers:
        one = adaptive.told.requests[rid]
        drafting = sum(step.drafted_depth > 0 for step in one.steps)
        assert one.expected.get((c.DRAFT_PROPOSE, c.NO_SOURCE), 0) == drafting
        assert one.expected.get((c.TARGET_VERIFY, c.NO_SOURCE), 0) == len(one.steps)
        seen: Counter[tuple[str, str]] = Counter()
        for (boundary, source, _mode), count in one.observed.items():
            seen[boundary, source] += count
        assert all(seen[key] >= count for key, count in one.expected.items())
        self_fed = sum(max(step.drafted_depth - 1, 0) for step in one.steps)
        assert seen[c.DRAFT_FORWARD, c.SELF_FED] == self_fed
    assert adaptive.told.metric(c.METRIC_HOOK_ERRORS) == 0


def test_grammar_cuts_and_what_it_forbade_is_told(adaptive: AdaptiveRun) -> None:
    answer, one = adaptive.answers["regex"], adaptive.told.requests["regex"]
    assert re.fullmatch(GRAMMAR, answer["text"])
    _whole(one, answer)
    free = [step.accepted_free for step in one.counted]
    assert all(count is not None and 0 <= count <= 4 for count in free)
    # Without the grammar the target would have gone on with its own text, which the draft knows.
    assert sum(count or 0 for count in free) != sum(step.accepted for step in one.counted)
    others = adaptive.told.requests["ref-0"].counted
    assert all(step.accepted_free is None for step in others)


def test_each_of_several_answers_is_a_request(adaptive: AdaptiveRun) -> None:
    ids = [one["meta_info"]["id"] for one in adaptive.several]
    assert len(set(ids)) == 3
    for rid, answer in zip(ids, adaptive.several, strict=True):
        assert answer["output_ids"] == references()[0].continuation[:12]
        _whole(adaptive.told.requests[rid], answer)


def test_abort_is_told_with_its_steps(adaptive: AdaptiveRun) -> None:
    one = adaptive.told.requests["aborted"]
    assert one.attributes[c.REQUEST_STATE] == c.STATE_ABORTED
    assert one.attributes[c.REQUEST_VERIFY_STEPS] == len(one.counted) > 0
    for step in one.counted:
        _consistent(step)


def test_retraction_and_mixing_change_no_token(retracted: Run) -> None:
    for number, one in enumerate(references()):
        assert retracted.answers[f"ref-{number}"]["output_ids"] == one.continuation


def test_retracted_requests_add_up(retracted: Run) -> None:
    """A retracted request is prefilled again: one more of its tokens comes from a prefill."""
    times = 0
    for rid, answer in retracted.answers.items():
        again = answer["meta_info"].get("num_retractions", 0)
        one = retracted.told.requests[rid]
        mixed = answer["meta_info"]["completion_tokens"] - 1 - sum(step.committed for step in one.counted)
        _whole(one, answer, prefills=1 + mixed)
        assert mixed >= again
        times += again
    assert times > 0, "no request was retracted: this run shows nothing"
    assert retracted.told.metric(c.METRIC_HOOK_ERRORS) == 0
    assert retracted.told.metric(c.METRIC_DROPPED) == 0


def test_retraction_leaves_no_gap(retracted: Run) -> None:
    for rid in retracted.answers:
        one = retracted.told.requests[rid]
        seen: Counter[tuple[str, str]] = Counter()
        for (boundary, source, _mode), count in one.observed.items():
            seen[boundary, source] += count
        assert seen == Counter(one.expected)
