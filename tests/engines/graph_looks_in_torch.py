"""Checks of the looks inside CUDA graphs, without a device: what a runner captures runs again at each replay.

Run by ``test_sglang_looks.py`` under the interpreter that has torch; see ``check_report.py``.
"""

from __future__ import annotations

import importlib
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from check_report import report
from looks_in_torch import SLOTS, H, a_pass, a_scheduler, close, of, states
from specscope import convention as c
from specscope import hidden
from specscope.contracts import VERIFY
from specscope.engines.sglang.graph_looks import GraphLooks
from specscope.static_stats import StaticStats

torch: Any = importlib.import_module("torch")


class Draft(torch.nn.Module):
    """A draft with the modules that are watched; ``forward`` of each is what a graph runner captures."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.fc = torch.nn.Linear(SLOTS * H, H)
        self.embed_tokens = torch.nn.Embedding(32, H)
        self.logits_processor = torch.nn.Identity()

    def extend(self, ids: Any, fed: Any) -> Any:
        return self.logits_processor(SimpleNamespace(hidden_states=self.fc(fed) + self.embed_tokens(ids)))

    def loop(self, ids: Any, carry: Any, steps: int) -> None:
        for _ in range(steps):
            carry = self.logits_processor(
                SimpleNamespace(hidden_states=carry * 2 + self.embed_tokens(ids))
            ).hidden_states


class Runner:
    """Captures and replays as SGLang's graph runners do: two warm-ups, then the capture itself.

    A replay runs the captured function again, kernels and all, on what its static inputs hold by then.
    """

    def __init__(self, model: Any, forward: Any, capturing: list[bool]) -> None:
        config = SimpleNamespace(hidden_size=H)
        self.model_runner = SimpleNamespace(model=model, model_config=SimpleNamespace(hf_config=config))
        self.backend = self
        self.graphs: dict[str, Any] = {}
        self._forward, self._capturing = forward, capturing

    def capture_one(self, shape: str, forward: Any, capture_inputs: Any = None) -> None:
        assert capture_inputs is None
        forward()
        forward()
        self._capturing[0] = True
        forward()
        self._capturing[0] = False
        self.graphs[shape] = forward

    def capture_one_shape(self, shapes: list[str]) -> None:
        for shape in shapes:
            self.backend.capture_one(shape, self._forward, capture_inputs=None)

    def replay_graph(self, shape: str) -> None:
        return None


def a_captured(forward: Any, model: Any) -> tuple[GraphLooks, Runner, Any]:
    capturing = [False]
    static = StaticStats(
        Counter[str](), capturing=lambda: capturing[0], loaded=lambda _rows, _slots, _columns: True
    )
    graphs = GraphLooks(static)
    runner = Runner(model, forward, capturing)
    graphs.capture(Runner.capture_one_shape, runner, ["1", "2"])
    return graphs, runner, static


def check_what_runs_inside_a_captured_extend_is_read_after_its_replay() -> None:
    model = Draft()
    ids, fed = torch.arange(12), states(12)
    graphs, runner, static = a_captured(lambda: model.extend(ids, fed), model)
    looks, recorder = a_scheduler()
    one = a_pass(VERIFY, "ab")
    looks.open(one)
    looks.fed_verify(one, fed[:8], 4)
    graphs.serve(cast("Any", recorder), lambda read: looks.replayed(one, read, target_fed=True))
    graphs.replay(Runner.replay_graph, runner, "1")
    looks.extended(one, None)
    looks.tell(one, "verify", c.GRAPH, [3, 1], [1, 1])
    (record,) = recorder.queue
    with torch.no_grad():
        assert close(of(record, hidden.FC_IN, "b"), fed[4:6])
        assert close(of(record, hidden.FC_OUT, "a"), model.fc(fed[:4]), 1)
        assert close(of(record, hidden.EMBEDDING, "b"), model.embed_tokens(ids[4:6]), 1)
    assert not recorder.missed and static.held
    # Nothing of ours stays on the model or the backend.
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert "capture_one" not in vars(runner)


def check_each_step_inside_a_captured_loop_is_told_as_its_draft_step() -> None:
    model, topk = Draft(), 2
    ids, carry = torch.arange(8), states(8, 1)
    graphs, runner, _ = a_captured(lambda: model.loop(ids, carry, 3), model)
    looks, recorder = a_scheduler()
    cast("Any", looks)._loaded.worker = SimpleNamespace(topk=topk)
    one = a_pass(VERIFY, "abc")  # padded to four requests
    looks.open(one)
    graphs.serve(cast("Any", recorder), lambda read: looks.replayed(one, read, target_fed=False))
    graphs.replay(Runner.replay_graph, runner, "2")
    looks.tell(one, "verify", c.GRAPH, [0, 0, 0], [1, 1, 1])
    (record,) = recorder.queue
    with torch.no_grad():
        embedded = model.embed_tokens(ids)
        for step in (1, 2, 3):
            carry = carry * 2 + embedded
            for at, uid in enumerate("abc"):
                assert close(of(record, hidden.CARRY, uid, step), carry[topk * at][None], 1)
                assert close(of(record, hidden.EMBEDDING, uid, step), embedded[topk * at][None], 1)


def failing(*_args: Any, **_more: Any) -> Any:
    raise RuntimeError("planted")


def captured(_runner: Any) -> str:
    return "captured"


def check_a_look_that_fails_costs_neither_capture_nor_replay() -> None:
    model = Draft()
    broken = cast("Any", StaticStats(Counter[str]()))
    broken.record = broken.read = broken.begin = failing
    graphs = GraphLooks(broken)
    runner = Runner(model, lambda: model.extend(torch.arange(4), states(4)), [False])
    graphs.capture(Runner.capture_one_shape, runner, ["1"])
    graphs.serve(cast("Any", a_scheduler()[1]), lambda read: print(read(1)))
    graphs.replay(Runner.replay_graph, runner, "1")
    assert list(runner.graphs) == ["1"]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    # What is built otherwise is captured all the same, and nothing stays on it.
    odd = Runner(SimpleNamespace(), lambda: None, [False])
    graphs.capture(Runner.capture_one_shape, odd, ["1"])
    assert list(odd.graphs) == ["1"]
    del runner.backend
    assert graphs.capture(captured, runner) == "captured"
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


if __name__ == "__main__":
    torch.manual_seed(11)
    report([check for name, check in list(globals().items()) if name.startswith("check_")])
