"""A path that falls silent leaves a gap, and what a CPU cannot run is concluded from shapes.

CUDA graphs and a commit that never comes cannot be had from SGLang on a CPU, so the callbacks are given
the few attributes that they read.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from specscope import convention as c
from specscope import expand
from specscope import recorder as recorder_module
from specscope.contracts import VERIFY
from specscope.engines.sglang import conclude
from specscope.engines.sglang.hooks import Guard
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.passes import Extend, Pass
from specscope.engines.sglang.path import UNCOMMITTED, Path
from specscope.engines.sglang.requests import Requests
from specscope.identity import Ranks
from specscope.ledger import gaps
from specscope.recorder import Recorder
from specscope.records import Record, VerifyBatch, VerifyStep
from specscope.settings import Settings

BOUNDARIES: dict[str, bool] = dict.fromkeys(c.BOUNDARIES, True)


@pytest.fixture
def recorder() -> Recorder:
    return recorder_module.start(
        Settings(off="test"), role="scheduler", ranks=Ranks(), engine_name="sglang", engine_version="0"
    )


def loaded(*, captures: bool = True, fc_in: int = 384) -> Loaded:
    model = SimpleNamespace(capture_aux_hidden_states=captures)
    config = SimpleNamespace(hf_config=SimpleNamespace(draft_vocab_size=640), vocab_size=1024)
    return Loaded(
        scheduler=None,
        server_args=None,
        algorithm="EAGLE3",
        ranks=Ranks(),
        emits=True,
        worker=SimpleNamespace(speculative_num_steps=4),
        draft_worker=SimpleNamespace(hot_token_id=None),
        draft_runners=(SimpleNamespace(model_config=config),),
        target_runner=SimpleNamespace(model=model, model_config=config),
        fcs=(object(),),
        fc_in=fc_in,
        fc_out=128,
        target_hidden=128,
    )


def replayed(fed_width: int, buffer_width: int) -> Pass:
    """A verify pass whose draft extend was a replayed graph."""
    one = Pass(kind=VERIFY, step=1, t_ns=0, reqs=[], uids=("a",))
    one.extend = Extend(0, fed_width, "bfloat16", ("a",), done=True, graph=True, buffer_width=buffer_width)
    return one


@pytest.mark.parametrize(
    ("fed", "buffer", "fc_in", "runs"),
    [
        (384, 384, 384, 1),
        (128, 128, 384, 0),  # the seed's fault
        (384, 128, 384, 0),  # the states never reach the graph's buffer
        (128, 384, 384, 0),
        (128, 128, 128, 0),  # one aux layer: as wide as the embedding, so fc is skipped
    ],
)
def test_fc_in_a_replayed_graph_follows_from_widths(fed: int, buffer: int, fc_in: int, runs: int) -> None:
    one = replayed(fed, buffer)
    assert conclude.fc_runs(one, loaded(fc_in=fc_in), seen=True) is None  # not seen, so no count of its runs
    assert one.crossed == [(c.DRAFT_FC, c.TARGET_FED, c.DERIVED)] * runs


def test_fc_of_several_layers_is_concluded_once_for_each_that_was_replayed() -> None:
    one = replayed(384, 384)
    assert one.extend is not None
    one.extend.forwards, one.extend.fc_ran = 3, 1
    assert conclude.fc_runs(one, loaded(), seen=True) is None
    assert one.crossed == [(c.DRAFT_FC, c.TARGET_FED, c.DERIVED)] * 2


def test_a_prefill_of_the_draft_in_a_graph_leaves_no_gap(recorder: Recorder) -> None:
    """Captured prefill bodies are the default on CUDA: ``forward`` is called, fc's Python is not."""
    path = Path(recorder, loaded(), Requests(recorder, dp=0, emits=True))
    path.packing = path.fc = Guard("", (), recorder)
    batch = SimpleNamespace(
        forward_mode=SimpleNamespace(is_idle=lambda: False, is_extend=lambda: True),
        is_extend_in_batch=True,
        forward_iter=1,
        extend_lens=[2],
        reqs=[SimpleNamespace(origin_input_ids=[1, 2], cached_tokens=0)],
    )
    path.forward_begins(batch)
    path.packed(None, None, [None] * 3)
    states = SimpleNamespace(shape=(2, 384), dtype="torch.bfloat16", device=SimpleNamespace(type="cuda"))
    token = path.extend_prefill_begins(batch, states)
    path.draft_ran(None, SimpleNamespace(logits_output=None, can_run_graph=True))
    path.extend_prefill_ended(token, None)
    path.forward_ended(None, SimpleNamespace(can_run_cuda_graph=True), batch)
    expected, seen = recorder.ledger.sums()
    assert not gaps(expected, seen, BOUNDARIES)
    assert seen[c.DRAFT_FORWARD, c.TARGET_FED, c.GRAPH] == seen[c.DRAFT_FC, c.TARGET_FED, c.DERIVED] == 1


def test_an_idle_rank_prefills_without_lengths(recorder: Recorder) -> None:
    path = Path(recorder, loaded(), Requests(recorder, dp=0, emits=True))
    assert path.extend_prefill_begins(SimpleNamespace(extend_lens=None), None) == "target"


@pytest.mark.parametrize(("captures", "states"), [(True, 3), (False, 0)])
def test_capture_in_a_replayed_graph_is_concluded(captures: bool, states: int) -> None:
    one = replayed(384, 384)
    assert conclude.capture(one, loaded(captures=captures), seen=False) == states
    assert one.crossed == [(c.AUX_CAPTURE, "", c.DERIVED)] * (states > 0)


def test_what_was_seen_needs_no_conclusion() -> None:
    one = replayed(384, 384)
    assert conclude.capture(one, loaded(), seen=True) == 0
    one.packed = 3
    assert conclude.capture(one, loaded(), seen=False) == 3
    assert one.extend is not None
    one.extend.graph, one.extend.fc_ran = False, 1
    assert conclude.fc_runs(one, loaded(), seen=True) == 1
    assert not one.crossed


def test_capture_that_nothing_tells_is_not_known() -> None:
    one = Pass(kind=VERIFY, step=1, t_ns=0, reqs=[], uids=("a",))
    assert conclude.capture(one, loaded(), seen=False) is None


def drive(path: Path, steps: int, requests: int = 1) -> list[Any]:
    """Verify passes in which nothing but the forward itself is ever called."""
    mode = SimpleNamespace(is_idle=lambda: False, is_extend=lambda: False)
    results: list[Any] = []
    for step in range(steps):
        batch = SimpleNamespace(
            forward_mode=mode,
            is_extend_in_batch=False,
            forward_iter=step,
            reqs=[SimpleNamespace(origin_input_ids=[1, 2])] * requests,
        )
        results.append(SimpleNamespace(can_run_cuda_graph=False, speculative_num_draft_tokens=5))
        path.forward_begins(batch)
        path.forward_ended(None, results[-1], batch)
    return results


def test_silent_draft_and_commit_leave_gaps(recorder: Recorder) -> None:
    engine = loaded()
    path = Path(recorder, engine, Requests(recorder, dp=0, emits=True))
    path.packing = path.fc = Guard("", (), recorder)
    drive(path, 10)
    assert recorder.ledger.sums()[0][c.ENGINE_COMMIT, ""] == 10 - UNCOMMITTED
    path.close()
    found = {(gap.boundary, gap.source): gap.missing for gap in gaps(*recorder.ledger.sums(), BOUNDARIES)}
    assert found == {
        (c.AUX_CAPTURE, ""): 10,
        (c.DRAFT_EXTEND, c.TARGET_FED): 10,
        (c.DRAFT_FORWARD, c.TARGET_FED): 10,
        (c.DRAFT_FC, c.TARGET_FED): 10,
        (c.DRAFT_FORWARD, c.SELF_FED): 30,
        (c.DRAFT_MAP, ""): 10,
        (c.DRAFT_PROPOSE, ""): 10,
        (c.TARGET_VERIFY, ""): 10,
        (c.ENGINE_COMMIT, ""): 10,
    }


def test_idle_batches_expect_nothing(recorder: Recorder) -> None:
    path = Path(recorder, loaded(), Requests(recorder, dp=0, emits=True))
    batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: True), reqs=[])
    path.forward_begins(batch)
    path.forward_ended(None, SimpleNamespace(can_run_cuda_graph=False), batch)
    path.close()
    assert recorder.ledger.sums() == ({}, {})


def test_commit_one_iteration_later_finds_its_own_pass(recorder: Recorder) -> None:
    """As under the overlap schedule: the next forward begins before the last result is processed."""
    path = Path(recorder, loaded(), Requests(recorder, dp=0, emits=True))
    told: list[VerifyStep] = []

    def odd(error: ValueError) -> None:
        raise error

    def keep(record: Record) -> None:
        assert isinstance(record, VerifyBatch)
        told.append(expand.step(record, odd))

    recorder.emit = keep
    results = drive(path, 2, requests=2)
    fields: dict[str, Any] = {
        "finished_len": None,
        "finished_reason": None,
        "origin_input_ids": [1, 2],
        "output_ids": [5],
        "is_retracted": False,
    }
    running = SimpleNamespace(**fields)
    over = SimpleNamespace(**fields | {"finished_reason": "stop"})
    for result in results:
        batch = SimpleNamespace(reqs=[running, over])
        token = path.commit_begins(None, batch, result)
        running.output_ids = [*running.output_ids, 6, 7]
        result.num_correct_drafts_per_req_cpu = [1, 4]
        result.num_non_draft_tokens_per_req = 1
        result.next_token_ids = SimpleNamespace(device=SimpleNamespace(type="cuda"))
        path.commit_ended(token, None, None, batch, result)
    path.close()
    assert [(one.step, one.accepted, one.committed, one.overshoot, one.context) for one in told] == [
        (0, (1, 4), (2, 0), (False, True), (3, 3)),
        (1, (1, 4), (2, 0), (False, True), (5, 3)),
    ]
    assert recorder.ledger.sums()[1][c.ENGINE_COMMIT, "", c.EAGER] == 2
