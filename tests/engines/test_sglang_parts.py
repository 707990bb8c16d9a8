"""The parts of the SGLang adapter that need no engine: trees, guarded hooks, arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specscope import convention as c
from specscope import recorder as recorder_module
from specscope import tree
from specscope.contracts import PREFILL, VERIFY, Shape, contract
from specscope.engines.sglang import facts, hooks, passes
from specscope.engines.sglang.passes import Extend, Pass
from specscope.identity import Ranks
from specscope.ledger import Arming
from specscope.recorder import Recorder
from specscope.settings import Settings


@pytest.fixture
def recorder() -> Recorder:
    """A real recorder that sends nothing anywhere."""
    return recorder_module.start(
        Settings(off="test"), role="scheduler", ranks=Ranks(), engine_name="sglang", engine_version="0"
    )


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """Parents of up to 40 drafts, each after its parent, -1 for the root."""
    return [draw(st.integers(-1, node - 1)) for node in range(draw(st.integers(0, 40)))]


def linked(parents: list[int]) -> tuple[list[int], list[int]]:
    """The same tree as SGLang writes it: first child and next sibling of each node, the root first."""
    count = len(parents) + 1
    first, following = [-1] * count, [-1] * count
    last: dict[int, int] = {}
    for draft, parent in enumerate(parents):
        node = draft + 1
        if parent + 1 in last:
            following[last[parent + 1]] = node
        else:
            first[parent + 1] = node
        last[parent + 1] = node
    return first, following


@given(trees())
def test_tree_is_read_back(parents: list[int]) -> None:
    assert tree.parents(*linked(parents)) == tuple(parents)
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    assert tree.depth(tuple(parents)) == max(depths, default=0)


def test_what_hangs_on_an_orphan_is_no_depth() -> None:
    # Node 3 (draft 2) was kept without its parent; drafts 3 and 4 hang on it.
    parents = tree.parents([1, 2, -1, 4, 5, -1], [-1, -1, -1, -1, -1, -1])
    assert parents == (-1, 0, tree.ORPHAN, 2, 3)
    assert tree.depth(parents) == 2


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(ValueError, match="node 1 of the draft tree has two parents"):
        tree.parents([1, 1], [-1, -1])
    with pytest.raises(ValueError, match="draft 0 of the tree stands before its parent 1"):
        tree.depth((1, -1))


def test_accepted_tokens_are_found_in_their_tree() -> None:
    parents, drafts = (-1, -1, 0, 0, 1), (7, 8, 7, 9, 7)
    assert tree.walk(parents, drafts, (8, 7)) == (1, 4)
    assert tree.walk(parents, drafts, (7, 8)) == (0,)  # as far as it goes
    # The target's favourite after the root is 7, after that 9, after that 1.
    assert tree.follow(parents, drafts, (7, 9, 0, 0, 1, 0)) == 2
    assert tree.follow(parents, drafts, (1, 0, 0, 0, 0, 0)) == 0


class Engine:
    """Something with a function to hook."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def work(self, batch: str, *, fast: bool = False) -> str:
        self.calls.append((batch, fast))
        if batch == "bad":
            raise KeyError(batch)
        return batch.upper()


def test_callbacks_see_arguments_and_result(recorder: Recorder) -> None:
    engine, seen = Engine(), list[Any]()

    def before(batch: str, **_: Any) -> str:
        return f"token of {batch}"

    def after(token: str, result: str, batch: str, *, fast: bool) -> None:
        seen.append((token, result, batch, fast))

    hooks.wrap(engine, "work", hooks.Guard("work", (), recorder), before, after)
    hooks.wrap(engine, "work", hooks.Guard("work", (), recorder), before, after)  # once is enough
    assert engine.work("a", fast=True) == "A"
    assert seen == [("token of a", "A", "a", True)]
    assert engine.calls == [("a", True)]


@pytest.mark.parametrize("where", ["before", "after"])
def test_failing_callback_changes_nothing_and_is_dropped_after_three(recorder: Recorder, where: str) -> None:
    engine, calls = Engine(), list[str]()

    def broken(*_args: Any, **_kwargs: Any) -> None:
        calls.append(where)
        raise RuntimeError("broken")

    recorder.ledger.arm(c.TARGET_VERIFY)
    callbacks = {where: broken}
    hooks.wrap(engine, "work", hooks.Guard("work", (c.TARGET_VERIFY,), recorder), **callbacks)
    assert [engine.work(f"a{i}") for i in range(5)] == [f"A{i}" for i in range(5)]
    assert len(engine.calls) == 5
    assert calls == [where] * recorder_module.HOOK_ERRORS
    assert recorder.ledger.armed[c.TARGET_VERIFY] == Arming(
        False, "hook work disarmed itself: RuntimeError: broken", c.ARMING_FAILED
    )


def test_engines_own_error_passes_unchanged(recorder: Recorder) -> None:
    engine, seen = Engine(), list[Any]()
    hooks.wrap(engine, "work", hooks.Guard("work", (), recorder), after=lambda *a, **_: seen.append(a))
    with pytest.raises(KeyError, match="bad"):
        engine.work("bad")
    assert (engine.calls, seen, recorder.hook_errors) == ([("bad", False)], [], {})


def test_unknown_symbols_and_signatures_are_named() -> None:
    engine = Engine()
    assert hooks.examine(engine, "work", ("batch", "fast")) == Arming(True, "", c.ARMING_ARMED)
    assert hooks.examine(engine, "rest", ()) == Arming(
        False, "Engine.rest does not exist in this engine version", c.ARMING_MISSING
    )
    assert hooks.examine(engine, "work", ("batch", "tree")) == Arming(
        False, "Engine.work has no parameter tree in this engine version", c.ARMING_CHANGED
    )
    absent = hooks.kind(SimpleNamespace(worker=SimpleNamespace()), "worker.draft")
    assert hooks.examine(absent, "propose", ("batch",)) == Arming(
        False, "SimpleNamespace.worker.draft does not exist in this engine version", c.ARMING_MISSING
    )
    assert hooks.examine(hooks.module("specscope.nothing"), "work", ()).state == c.ARMING_MISSING
    assert hooks.kind(SimpleNamespace(engine=engine), "engine") is Engine


def test_parameters_that_moved_are_a_change() -> None:
    """The callbacks take what comes at a place: another object there must not be taken for the old one."""

    class Moved:
        def inserted(self, tree: str, batch: str) -> None: ...
        def appended(self, batch: str, tree: str) -> None: ...
        def named(self, tree: str, *, batch: str) -> None: ...

    moved = hooks.examine(Moved(), "inserted", ("batch",))
    assert (moved.state, moved.reason) == (
        c.ARMING_CHANGED,
        "Moved.inserted takes batch at another place in this engine version",
    )
    assert hooks.examine(Moved(), "appended", ("batch",)).armed
    assert hooks.examine(Moved(), "named", ("batch",)).armed
    assert hooks.examine(Moved, "appended", ("self", "batch")).armed


def test_no_secret_is_among_the_arguments() -> None:
    server_args = SimpleNamespace(
        model_path="/models/a",
        api_key="hunter2",
        admin_api_key="hunter2",
        watermark_key_b="hunter2",
        storage_extra_config='{"access_key": "hunter2", "hf_token": "hunter2", "bucket": "b"}',
        custom_weight_loader="{ hunter2",
        max_total_tokens=8192,
        ssl_keyfile="/k",
        otlp_traces_endpoint="http://me:hunter2@collector:4317",
        model_loader_extra_config={"secret_name": "hunter2", "threads": 4},
        served=None,
        device=object(),
    )
    found = facts.arguments(server_args)
    assert "hunter2" not in repr(found)
    assert found == {
        "max_total_tokens": 8192,
        "model_path": "/models/a",
        "storage_extra_config": {"bucket": "b"},
        "otlp_traces_endpoint": "http://collector:4317",
        "model_loader_extra_config": {"threads": 4},
    }


def test_every_count_of_a_pass_is_in_one_of_its_records() -> None:
    agreed = contract("EAGLE3", Shape(4, fc=True, map=True))
    counting = passes.Counting()
    for kind in (PREFILL, VERIFY):
        one = Pass(kind=kind, step=1, t_ns=0, reqs=[], uids=("a",))
        wanted = dict(agreed.of(kind))
        for (boundary, source), times in wanted.items():
            one.cross((boundary, source, c.EAGER), times)
        crossed = {(boundary, source, c.EAGER): times for (boundary, source), times in wanted.items()}
        # Without a draft extend its expectations stay on the pass's own record: that is the gap.
        alone = counting.of(one, agreed)
        assert (alone.expected, alone.crossed) == (wanted, crossed)
        assert (alone.extend_expected, alone.extend_crossed) == ({}, {})
        one.extend = Extend(t_ns=1, fed_width=384, dtype="float32", uids=("a",))
        both = counting.of(one, agreed)
        assert set(both.extend_expected) == passes.OF_EXTEND
        assert both.expected | both.extend_expected == wanted
        assert both.crossed | both.extend_crossed == crossed
        assert not both.expected.keys() & both.extend_expected.keys()
        assert not both.crossed.keys() & both.extend_crossed.keys()
        assert counting.of(one, agreed) is both, "the same counts are the same object"
