"""Confidence and the target's view against their definition, row by row, and the memory they may take."""

from __future__ import annotations

import subprocess
from pathlib import Path
from statistics import mean

import pytest
from sglang_engine import sglang_python
from sglang_runs import ChainRun, Run
from specscope.chunks import StepRow

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

CHECK = """
import math
from types import SimpleNamespace

import torch
from specscope import expand
from specscope import recorder as recorder_module
from specscope.contracts import PREFILL, VERIFY
from specscope.engines.sglang import confidence, sampling
from specscope.copies import Copies
from specscope.engines.sglang.passes import Extend, Pass
from specscope.identity import Ranks
from specscope.settings import Settings

torch.manual_seed(1)

# Entropy and top-1 by hand, a masked token included.
logits = torch.randn(3, 4, 17)
logits[0, 0, 5] = -math.inf
found = confidence.of(logits)
assert found.shape == (2, 4, 3)
for position in range(3):
    for row in range(4):
        p = torch.softmax(logits[position, row].double(), 0)
        entropy = -sum(float(x) * math.log(float(x)) for x in p if x > 0)
        assert math.isclose(float(found[0, row, position]), float(p.max()), rel_tol=1e-5)
        assert math.isclose(float(found[1, row, position]), entropy, rel_tol=1e-5)

# A chain: five requests of nodes 4, draft vocabulary 10 of 30 (draft id i is target id 3 i).
rows, nodes, vocab, small = 5, 4, 30, 10
hot = torch.arange(small) * 3
target = torch.randn(rows * nodes, vocab)
first = torch.randn(rows, small)
later = [torch.randn(rows, small) for _ in range(nodes - 2)]
tokens = torch.randint(0, vocab, (rows, nodes))
accepted = torch.tensor([0, 1, 2, 3, 0])
index = torch.full((rows, nodes), -1)
for row, count in enumerate(accepted.tolist()):
    index[row, : count + 1] = torch.arange(count + 1) + row * nodes


def worker(limit):
    sampling.ELEMENTS = limit * vocab
    settings = Settings(off="test", detail="steps", sample_every=1)
    recorder = recorder_module.start(
        settings, role="scheduler", ranks=Ranks(), engine_name="sglang", engine_version="0"
    )
    loaded = SimpleNamespace(
        emits=True,
        worker=SimpleNamespace(topk=1),
        draft_worker=SimpleNamespace(hot_token_id=hot),
        draft_runners=(object(),),
        target_runner=SimpleNamespace(model_config=SimpleNamespace(vocab_size=vocab)),
    )
    return recorder, sampling.Sampling(recorder, loaded, Copies(recorder.missed))


def step(taker, number):
    reqs = [object() for _ in range(rows)]
    uids = tuple("abcde")
    before = Pass(kind=PREFILL, step=number - 1, t_ns=0, reqs=reqs, uids=uids)
    extend = Extend(0, 1, "float32", uids)
    extend.logits = SimpleNamespace(next_token_logits=first)
    taker.extended(before, extend)
    one = Pass(kind=VERIFY, step=number, t_ns=0, reqs=list(reqs), uids=uids, sampled=True)
    for logits in later:
        taker.forwarded(one, logits)
    taker.proposed(one)
    verify = SimpleNamespace(draft_token=tokens.flatten(), tree_topk=1)
    taker.accepted(one, verify, SimpleNamespace(next_token_logits=target), (None, accepted + 1, index))
    return extend, one


def check(extend, one, taken):
    opening = expand.reals(extend.confidence.reals())
    both = expand.reals(one.confidence.reals()).reshape(2, rows, nodes - 2)
    rank, probability, doubt = expand.reals(one.view.reals())
    for row in range(rows):
        if row not in taken:
            assert all(map(math.isnan, (opening[0, row], both[1, row, 0], rank[row], doubt[row])))
            continue
        assert math.isclose(opening[0, row], float(torch.softmax(first[row], 0).max()), rel_tol=1e-5)
        for position in range(nodes - 2):
            p = torch.softmax(later[position][row], 0)
            assert math.isclose(both[0, row, position], float(p.max()), rel_tol=1e-5)
            assert math.isclose(both[1, row, position], float(-(p * p.log()).sum()), rel_tol=1e-5)
        count = int(accepted[row])
        if count == nodes - 1:  # all accepted: nothing was refused
            assert math.isnan(rank[row]) and math.isnan(probability[row]) and math.isnan(doubt[row])
            continue
        logits = target[row * nodes + count]
        refused = int(tokens[row, count + 1])
        assert rank[row] == int((logits > logits[refused]).sum())
        assert math.isclose(probability[row], float(torch.softmax(logits, 0)[refused]), rel_tol=1e-5)
        chosen = int(logits.argmax())
        if chosen % 3:
            assert math.isnan(doubt[row]), "the draft cannot propose it"
        else:
            own = torch.softmax([first, *later][count][row], 0)[chosen // 3]
            assert math.isclose(doubt[row], float(own), rel_tol=1e-5)


recorder, taker = worker(100)
check(*step(taker, 7), range(rows))
# Two rows at once are allowed: every third row is taken, others in the next sampled step.
recorder, taker = worker(2)
check(*step(taker, 6), (0, 3))
check(*step(taker, 7), (1, 4))
assert not recorder.hook_errors, recorder.hook_errors

# A tree: root 0 with children 1 and 2, node 1 with child 3.
child = torch.tensor([[1, 3, -1, -1]])
for count, path, refused in ((0, [0], 1), (1, [0, 1], 3), (1, [0, 2], None), (2, [0, 1, 3], None)):
    at = torch.tensor([path[-1]])
    one = confidence.view(target[at], tokens[:1], at, child, (), torch.tensor([count]), None)
    if refused is None:
        assert bool(one[:2].isnan().all())
    else:
        assert float(one[0, 0]) == int((target[at][0] > target[at][0, tokens[0, refused]]).sum())
print("checked")
"""


def test_confidence_and_view_against_their_definition(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text(CHECK)
    done = subprocess.run([sglang_python(), script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "checked\n"), done.stderr


def steps(run: Run) -> list[StepRow]:
    return [step for one in run.told.requests.values() for step in one.counted if step.drafted_depth]


def check_steps(found: list[StepRow]) -> None:
    """What holds of every step of a greedy engine, and of a trained draft as a whole."""
    refused = [step for step in found if step.target_rank is not None]
    assert found and refused
    surer: list[float] = []
    doubtful: list[float] = []
    for step in found:
        assert step.draft_top1 is not None and step.draft_entropy is not None
        assert len(step.draft_top1) == len(step.draft_entropy) == 4
        assert all(0 < one <= 10_000 for one in step.draft_top1)
        assert all(0 <= one < 6_500 for one in step.draft_entropy), "at most ln 640 = 6.46 nats"
        (surer if step.accepted else doubtful).append(step.draft_top1[0])
    assert mean(surer) > 1.5 * mean(doubtful)
    for step in refused:
        # Under greedy verification the target's favourite is never refused.
        assert step.target_rank is not None and step.target_rank >= 1
        assert step.target_prob is not None and 0 <= step.target_prob <= 0.5


def test_confidence_of_a_real_chain(chain: ChainRun) -> None:
    found = steps(chain)
    check_steps(found)
    proposed = {token for step in found for token in step.draft_tokens or ()}
    for step in found:
        whole = step.accepted == step.drafted_depth
        assert (step.target_rank is None) == (step.outside_draft_vocab is None) == whole
        if whole or not step.output_ids or len(step.output_ids) <= step.accepted:
            continue
        # What the draft cannot propose it gives no probability, and has never proposed.
        assert (step.draft_prob is None) == (step.outside_draft_vocab == 1)
        if step.outside_draft_vocab:
            assert step.output_ids[step.accepted] not in proposed
    assert {step.outside_draft_vocab for step in found} == {None, 0, 1}


def test_confidence_of_a_real_tree(tree: Run) -> None:
    found = steps(tree)
    check_steps(found)
    assert all(step.draft_prob is None for step in found), "a tree's branches are not all kept"
