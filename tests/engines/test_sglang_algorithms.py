"""Every algorithm that runs without a GPU, on a real engine: same tokens, whole path, SGLang's own totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from otlp_receiver import Receiver, RequestTold
from sglang_algorithms import ALGORITHMS, AlgorithmRun, ask, start
from sglang_runs import STOP_AFTER, traced
from specscope import convention as c
from specscope import tree
from specscope.chunks import StepRow
from specscope.ledger import gaps
from specscope.records import Crossing, Expectation
from tiny_prompts import references

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]


LONG = ("eagle-tree", "plugin")
"""In `make test-all` alone: what is theirs alone is little, and an engine takes a minute."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in ALGORITHMS],
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AlgorithmRun]:
    """One engine an algorithm, one after the other."""
    name: str = request.param
    receiver = Receiver()
    with start(ALGORITHMS[name], tmp_path_factory.mktemp(name), traced(receiver)) as server:
        answers = ask(server)
        told = receiver.settled(list(answers))
        lines = server.ours()
    receiver.close()
    yield AlgorithmRun(ALGORITHMS[name], answers, told, lines)


def _steps(run: AlgorithmRun) -> list[StepRow]:
    return [step for rid in run.answers for step in run.told.requests[rid].counted]


def test_tokens_are_those_of_plain_decoding(run: AlgorithmRun) -> None:
    for number, one in enumerate(references()):
        assert run.answers[f"ref-{number}"]["output_ids"] == one.continuation
    assert run.answers["long"]["output_ids"] == run.answers["long-again"]["output_ids"]


def test_it_is_traced_under_its_name(run: AlgorithmRun) -> None:
    (line,) = run.lines
    assert line.startswith(f"specscope: tracing {run.algorithm.name} at detail full to http://")
    (config,) = run.told.engines
    assert config["speculative"]["num_draft_tokens"] == run.algorithm.nodes + 1
    assert run.told.metric(c.METRIC_SPECULATION) == 1


def test_totals_are_sglangs_own(run: AlgorithmRun) -> None:
    """``spec_num_proposed_drafts`` is verify steps times nodes; ``spec_accept_length`` counts the prefill."""
    for rid, answer in run.answers.items():
        one, meta = run.told.requests[rid], answer["meta_info"]
        sent = one.attributes
        assert sent[c.GEN_AI_OUTPUT_TOKENS] == meta["completion_tokens"] == len(answer["output_ids"])
        assert sent[c.REQUEST_CACHED] == meta["cached_tokens"]
        assert sent[c.REQUEST_VERIFY_STEPS] == len(one.counted) == meta.get("spec_verify_ct", 0)
        accepted = [step.accepted for step in one.counted]
        assert sent[c.REQUEST_ACCEPTED] == sum(accepted) == meta.get("spec_num_correct_drafts", 0)
        assert sent[c.REQUEST_DRAFTED_NODES] == sum(step.drafted_nodes for step in one.counted)
        proposed = meta.get("spec_num_proposed_drafts", 0)
        assert proposed == run.algorithm.nodes * len(one.counted)
        assert sent[c.REQUEST_DRAFTED_NODES] == proposed or run.algorithm.padded
        histogram = meta.get("spec_correct_drafts_histogram", [])
        counted = Counter(accepted)
        assert [counted[count] for count in range(len(histogram))] == histogram
        ids = [token for step in one.counted for token in step.output_ids or ()]
        assert ids == answer["output_ids"][1:]


def test_some_drafts_are_accepted_and_some_refused(run: AlgorithmRun) -> None:
    steps = _steps(run)
    assert 0 < sum(step.accepted for step in steps) < sum(step.drafted_depth for step in steps)


def test_accepted_paths_lie_in_the_drafts(run: AlgorithmRun) -> None:
    for step in _steps(run):
        parents, tokens, path = step.parents, step.draft_tokens, step.accepted_path
        assert parents is not None and tokens is not None and path is not None
        assert step.output_ids is not None
        assert len(parents) == len(tokens) == step.drafted_nodes
        assert step.drafted_nodes == run.algorithm.nodes or run.algorithm.padded
        if run.algorithm.chain:
            assert parents == list(tree.chain(run.algorithm.nodes))
        assert [parents[node] for node in path] == [-1, *path[:-1]][: len(path)]
        assert len(path) == step.accepted <= step.drafted_depth <= run.algorithm.depth
        assert step.drafted_depth == tree.depth(tuple(parents))
        got = [tokens[node] for node in path][: step.committed]
        assert step.output_ids[: len(got)] == got
        assert step.committed <= step.accepted + step.bonus and step.bonus == 1


def test_placeholders_are_no_drafts(run: AlgorithmRun) -> None:
    """NGRAM fills its tree up with token 0 below the root (``kernels/jit/csrc/ngram_corpus/result.cpp``)."""
    nodes = Counter(step.drafted_nodes for step in _steps(run))
    assert max(nodes) == run.algorithm.nodes
    assert (len(nodes) > 1) == run.algorithm.padded == (0 in nodes)


def test_every_pass_crosses_what_it_must(run: AlgorithmRun) -> None:
    expected, observed = run.told.ledger()
    armed = {name: not reason for name, reason in run.told.armed().items()}
    whole = {key: int(count) for key, count in expected.items()}
    assert gaps(whole, {key: int(count) for key, count in observed.items()}, armed) == []
    reached = {boundary for boundary, _ in {*run.algorithm.prefill, *run.algorithm.verify}}
    assert {name for name, on in armed.items() if on} == reached
    assert run.told.metric(c.METRIC_HOOK_ERRORS) == 0
    assert run.told.metric(c.METRIC_DROPPED) == 0
    for rid in run.answers:
        _crossed(run, run.told.requests[rid])


def _crossed(run: AlgorithmRun, one: RequestTold) -> None:
    """The request's own counts: those of its passes, as the probe saw them, no more and no less."""
    wanted: Counter[Expectation] = Counter()
    for counts, times in (
        (run.algorithm.prefill, one.attributes[c.REQUEST_PREFILLS]),
        (run.algorithm.verify, len(one.steps)),
    ):
        for key, count in counts.items():
            wanted[key] += count * times
    seen: Counter[Expectation] = Counter()
    for key, count in one.observed.items():
        seen[_without_mode(key)] += count
    assert one.expected == dict(+wanted)
    assert seen == +wanted


def _without_mode(key: Crossing) -> Expectation:
    return key[0], key[1]


def test_what_the_draft_is_fed(run: AlgorithmRun) -> None:
    for rid in run.answers:
        one = run.told.requests[rid]
        if run.algorithm.fed is None:
            assert one.extends == []
            continue
        assert len(one.extends) == one.attributes[c.REQUEST_PREFILLS] + len(one.steps)
        for row in one.extends:
            assert (row.fed_width, row.fc_in) == run.algorithm.fed
            if row.fed_width:
                assert row.dtype == "float32" and row.nonfinite == 0
        kept = [row.rows for row in one.extends if row.after == "verify" and row.rows is not None]
        assert kept in ([], [step.accepted + 1 for step in one.steps])


def test_how_sure_the_draft_was(run: AlgorithmRun) -> None:
    """In sampled steps one entry a position, -1 where the logits were not at hand; position 1 is also told
    in the step that follows a prefill."""
    known = [step for step in _steps(run) if step.draft_top1 is not None]
    assert bool(known) == run.algorithm.confident
    for step in known:
        assert step.draft_top1 is not None and step.draft_entropy is not None
        assert len(step.draft_top1) == len(step.draft_entropy) in (1, run.algorithm.depth)
        for top1, entropy in zip(step.draft_top1, step.draft_entropy, strict=True):
            assert (top1 == entropy == -1) or (0 < top1 <= 10_000 and 0 <= entropy < 6932)  # ln 1024 nats
    if known:
        whole = [step.draft_top1 for step in known if step.draft_top1]
        assert any(len(one) == run.algorithm.depth and -1 not in one for one in whole)


def test_what_the_target_thought_of_a_refused_draft(run: AlgorithmRun) -> None:
    known = [step for step in _steps(run) if step.target_rank is not None]
    assert bool(known) == run.algorithm.viewed
    for step in known:
        assert step.accepted < step.drafted_nodes
        # Greedily the target refuses only what it rated below another token.
        assert step.target_rank is not None and step.target_rank >= 1
        assert step.target_prob is not None and 0 <= step.target_prob <= 0.5
        assert step.draft_prob is None or 0 <= step.draft_prob <= 1
    refusing = [step for step in known if step.draft_prob is not None]
    assert bool(refusing) == (run.algorithm.confident and run.algorithm.chain)


def test_long_prompt_is_prefilled_in_chunks_and_then_cached(run: AlgorithmRun) -> None:
    first, again = run.told.requests["long"].attributes, run.told.requests["long-again"].attributes
    assert (first[c.REQUEST_PREFILLS], first[c.REQUEST_CACHED]) == (3, 0)
    assert again[c.REQUEST_PREFILLS] < 3 and again[c.REQUEST_CACHED] > 64


def test_stop_cuts_what_was_accepted(run: AlgorithmRun) -> None:
    output = run.answers["stopped"]["output_ids"]
    assert output == references()[0].continuation[: len(output)] and len(output) <= STOP_AFTER + 1
    assert run.told.requests["stopped"].attributes[c.GEN_AI_FINISH_REASONS] == ["stop"]


def test_one_token_needs_no_verify_step(run: AlgorithmRun) -> None:
    assert run.told.requests["one-token"].steps == []
