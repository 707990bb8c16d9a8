"""The caller's trace context on its way through SGLang's objects: kept whole, refused broken, harmless."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from specscope.engines.sglang import context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"
IDS = (int(TRACE, 16), int(SPAN, 16))


class Stats:
    """As SGLang's time stats: their state is a dict that is taken over whole on the other side."""

    def __init__(self) -> None:
        self.created_time = 1.0

    def plain(self) -> dict[str, Any]:
        return {"created_time": self.created_time}

    def __getstate__(self) -> Any:
        return context.state(type(self).plain, self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class Fresh(Stats):
    """As the stats that a data-parallel controller makes of what it receives."""


def fresh(_cls: Any, _obj: Any) -> Any:
    return Fresh()


def http(header: str | None) -> Any:
    return SimpleNamespace(headers={} if header is None else {"traceparent": header})


def manager(*rids: str) -> Any:
    return SimpleNamespace(rid_to_state={rid: SimpleNamespace(time_stats=Stats()) for rid in rids})


def arrived(stats: Any) -> tuple[int, int] | None:
    """What the scheduler reads once the stats have come through a pipe."""
    return context.carried(SimpleNamespace(time_stats=pickle.loads(pickle.dumps(stats))))


@pytest.mark.parametrize(
    "header", [HEADER, f"  {HEADER.upper()}", f"00-{TRACE}-{SPAN}-00", f"01-{TRACE}-{SPAN}-01-later"]
)
def test_a_traceparent_is_read(header: str) -> None:
    assert context.parse(header) == IDS


@pytest.mark.parametrize(
    "header",
    [
        None,
        7,
        "",
        "nonsense",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
    ],
)
def test_what_is_none_is_not_guessed(header: object) -> None:
    assert context.parse(header) is None


def test_a_header_reaches_the_scheduler() -> None:
    where = manager("a")
    context.received(None, where, SimpleNamespace(rid="a", is_single=True), http(HEADER))
    assert arrived(where.rid_to_state["a"].time_stats) == IDS


def test_each_prompt_of_a_batch_has_it() -> None:
    class Batch(list[Any]):
        rid = ("a", "b")
        is_single = False

    where = manager("a", "b")
    context.received(None, where, Batch([SimpleNamespace(), SimpleNamespace()]), http(HEADER))
    assert [arrived(where.rid_to_state[rid].time_stats) for rid in "ab"] == [IDS, IDS]


def test_each_of_several_samples_has_it() -> None:
    where = manager("a", "a-1")
    prompt = SimpleNamespace(rid="a", is_single=True)
    context.received(None, where, prompt, http(HEADER))
    sample = copy.copy(prompt)
    sample.rid = "a-1"
    context.received(None, where, sample)
    assert arrived(where.rid_to_state["a-1"].time_stats) == IDS


def test_a_context_given_in_the_call_is_taken() -> None:
    where = manager("a")
    given = SimpleNamespace(rid="a", is_single=True, external_trace_header={"traceparent": HEADER})
    context.received(None, where, given)
    assert arrived(where.rid_to_state["a"].time_stats) == IDS


def test_a_controller_passes_it_on() -> None:
    first = Stats()
    setattr(first, context.CARRIED, HEADER)
    passed = context.copied(fresh, Fresh, pickle.loads(pickle.dumps(first)))
    assert isinstance(passed, Fresh)
    assert arrived(passed) == IDS


@pytest.mark.parametrize("header", [None, "nonsense"])
def test_without_a_context_nothing_is_added(header: str | None) -> None:
    where = manager("a")
    context.received(None, where, SimpleNamespace(rid="a", is_single=True), http(header))
    stats = where.rid_to_state["a"].time_stats
    assert stats.__getstate__() == {"created_time": 1.0}
    assert arrived(stats) is None


def test_objects_of_another_version_do_no_harm() -> None:
    context.received(None, SimpleNamespace(), SimpleNamespace(), http(HEADER))
    context.received(None, None, None, None)
    assert context.state(bytes, b"state") == b"state"
    assert isinstance(context.copied(fresh, None, None), Fresh)
    assert context.carried(None) is None
    assert context.carried(SimpleNamespace(time_stats=SimpleNamespace(specscope_traceparent=7))) is None
