"""The sender against a real receiver that fails in each way: what it keeps, gives up, and at what cost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags
from specscope import convention as c
from specscope.exporter import division, link, sender
from specscope.exporter.link import Link, retry_after
from specscope.exporter.sender import Sender
from specscope.settings import Settings
from wirekit.receiver import Receiver, eventually, spans_of

POISON = "poison"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


def span(name: str, pad: int = 0) -> ReadableSpan:
    context = SpanContext(1, hash(name) & (2**63 - 1) or 1, False, TraceFlags(1))
    attributes = {"name": name, "pad": "x" * pad}
    return ReadableSpan(name, context, resource=Resource({}), attributes=attributes, start_time=1, end_time=2)


def names(message: Any) -> list[str]:
    return [str(one.attributes["name"]) for one in spans_of(message)]


def started(receiver: Receiver, buffer_bytes: int = 1 << 20) -> Sender:
    found = Sender(Link(Settings(endpoint=receiver.endpoint)), buffer_bytes)
    found.start()
    return found


def queue(one: Sender, wanted: list[str], pad: int = 0) -> None:
    """Queue spans, each the last of one record, in order."""
    for number, name in enumerate(wanted, 1):
        one.put(span(name, pad))
        one.settle(number)


def got(receiver: Receiver) -> list[str]:
    return [str(one.attributes["name"]) for one in receiver.received.spans()]


def end(one: Sender) -> None:
    one.stop(0.0)
    eventually(lambda: not one.wait(0.1), "the sender ends")


@pytest.mark.parametrize("status", [500, 502, 403])
def test_spans_at_which_a_receiver_fails_do_not_hold_up_the_others(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda _path, message: status if any(POISON in n for n in names(message)) else 200
    one = started(receiver)
    first = [f"a{i}" for i in range(300)]
    first[77] = first[201] = POISON
    queue(one, first)
    eventually(lambda: receiver.attempts["/v1/traces"] >= 2, "it fails")
    assert one.dropped == {}
    queue(one, [f"b{i}" for i in range(20)])
    eventually(lambda: one.dropped, "the two are given up")
    eventually(lambda: not one.left, "everything else arrives")
    assert one.dropped == {sender.RECEIVER_ERROR: 2}
    good = [n for n in first if n != POISON] + [f"b{i}" for i in range(20)]
    assert sorted(got(receiver)) == sorted(good)
    assert one.settled == 20  # the second queue's last record
    # 2 for each level of a division, the strikes and the questions whether others are taken.
    assert receiver.attempts["/v1/traces"] <= division.POSTS + division.RECENT + 2 * sender.STRIKES + 6
    end(one)


@pytest.mark.parametrize("status", [500, 503, 401])
def test_a_receiver_that_fails_at_everything_costs_nothing_but_time(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda _path, _message: status
    one = started(receiver)
    queue(one, [f"a{i}" for i in range(600)])
    eventually(lambda: receiver.attempts["/v1/traces"] > sender.STRIKES + 3, "it was asked for others too")
    assert (one.left, one.dropped, one.reachable) == (600, {}, False)
    receiver.answer = lambda _path, _message: 200
    eventually(lambda: not one.left, "everything arrives")
    assert sorted(got(receiver)) == sorted(f"a{i}" for i in range(600))
    assert (one.dropped, one.settled, one.reachable) == ({}, 600, True)
    end(one)


def test_a_receiver_that_fails_now_and_then_loses_nothing(receiver: Receiver) -> None:
    asked = 0

    def every_third(_path: str, _message: Any) -> int:
        nonlocal asked
        asked += 1
        return 200 if asked % 3 == 0 else 500

    receiver.answer = every_third
    one = started(receiver, 8 << 20)
    queue(one, [f"a{i}" for i in range(2000)])
    eventually(lambda: not one.left, "everything arrives")
    assert sorted(got(receiver)) == sorted(f"a{i}" for i in range(2000))
    assert one.dropped == {}
    end(one)


def test_a_receiver_that_fails_at_everything_while_a_batch_is_divided_costs_nothing(
    receiver: Receiver,
) -> None:
    """The next batch is taken, which blames the first; then the receiver breaks: nothing may be dropped."""
    taken = 0

    def breaks_down(_path: str, message: Any) -> int:
        nonlocal taken
        if taken or "a0" in names(message):
            return 500
        taken += 1
        return 200

    receiver.answer = breaks_down
    one = started(receiver)
    queue(one, [f"a{i}" for i in range(600)])
    eventually(lambda: receiver.attempts["/v1/traces"] > sender.STRIKES + 1 + division.POSTS, "a division")
    eventually(lambda: one.reachable is False, "it is away")
    assert (one.left, one.dropped) == (512, {})
    receiver.answer = lambda _path, _message: 200
    eventually(lambda: not one.left, "everything arrives")
    assert one.dropped == {}
    end(one)


def test_rejected_spans_are_found_with_few_requests(receiver: Receiver) -> None:
    receiver.answer = lambda _path, message: 400 if POISON in names(message) else 200
    one = started(receiver)
    queue(one, [POISON if i == 99 else f"a{i}" for i in range(512)])
    eventually(lambda: not one.left, "everything arrives")
    assert one.dropped == {sender.REJECTED: 1}
    assert len(got(receiver)) == 511
    assert receiver.attempts["/v1/traces"] <= 19
    end(one)


def test_a_receiver_that_rejects_everything_is_not_flooded(receiver: Receiver) -> None:
    receiver.answer = lambda _path, _message: 400
    one = started(receiver, 8 << 20)
    queue(one, [f"a{i}" for i in range(5 * 512)])
    eventually(lambda: not one.left, "all are given up")
    assert one.dropped == {sender.REJECTED: 5 * 512}
    assert receiver.attempts["/v1/traces"] <= division.POSTS + 2 + 5
    receiver.answer = lambda _path, _message: 200  # it learns
    queue(one, ["b"])
    eventually(lambda: got(receiver) == ["b"], "the next one arrives")
    end(one)


def test_what_is_too_large_goes_in_smaller_requests_from_then_on(receiver: Receiver) -> None:
    sizes: list[int] = []

    def limited(_path: str, message: Any) -> int:
        sizes.append(message.ByteSize())
        return 413 if message.ByteSize() > 300_000 else 200

    receiver.answer = limited
    one = started(receiver, 8 << 20)
    queue(one, [f"a{i}" for i in range(400)], pad=4000)
    eventually(lambda: not one.left, "everything arrives")
    assert (len(got(receiver)), one.dropped) == (400, {})
    refused = sum(size > 300_000 for size in sizes)
    queue(one, [f"b{i}" for i in range(400)], pad=4000)
    eventually(lambda: not one.left, "everything arrives")
    assert sum(size > 300_000 for size in sizes) == refused
    end(one)


def test_a_receiver_that_needs_longer_than_we_wait_gets_less_at_once(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "READ_S", 0.5)

    def slow(_path: str, message: Any) -> int:
        if message.ByteSize() > 100_000:
            time.sleep(2)
            return 503  # nobody hears it any more
        return 200

    receiver.answer = slow
    one = started(receiver, 8 << 20)
    queue(one, [f"a{i}" for i in range(100)], pad=4000)
    eventually(lambda: not one.left, "everything arrives")
    assert sorted(set(got(receiver))) == sorted(f"a{i}" for i in range(100))
    assert one.dropped == {}
    end(one)


def test_the_receiver_says_when_to_come_again(receiver: Receiver) -> None:
    came: list[float] = []

    def busy(_path: str, _message: Any) -> int:
        came.append(time.monotonic())
        return 429 if len(came) < 3 else 200

    receiver.answer, receiver.retry_after = busy, "2"
    one = started(receiver)
    queue(one, ["a"])
    eventually(lambda: got(receiver) == ["a"], "it arrives")
    assert all(later - sooner >= 1.9 for sooner, later in itertools.pairwise(came))
    assert one.dropped == {}
    end(one)


def test_retry_after_is_read_and_bounded() -> None:
    assert retry_after("7") == 7.0
    assert retry_after("86400") == link.RETRY_AFTER_S
    assert 5 < retry_after(formatdate(time.time() + 20, usegmt=True)) <= 20
    for nonsense in ("", "soon", "-3", "nan", "0", formatdate(0, usegmt=True), "1e999x"):
        assert retry_after(nonsense) == 0.0
    assert retry_after("inf") == link.RETRY_AFTER_S


def test_an_answer_without_end_is_not_read_to_its_end(receiver: Receiver) -> None:
    """It says 200: what it goes on with after the first 64 KiB is nothing that we want to keep."""
    receiver.endless = True
    one = started(receiver)
    queue(one, ["a"])
    eventually(lambda: got(receiver) and not one.left, "the span arrives")
    assert one.dropped == {}
    end(one)


def test_the_buffer_stays_bounded_and_what_went_is_counted(receiver: Receiver) -> None:
    receiver.answer = lambda _path, _message: 503
    one = started(receiver, 100_000)
    queue(one, [f"a{i}" for i in range(500)], pad=1000)
    assert one.left < 100
    assert one.dropped == {sender.BUFFER_FULL: 500 - one.left}
    receiver.answer = lambda _path, _message: 200
    eventually(lambda: not one.left, "the newest arrive")
    assert got(receiver)[-1] == "a499"
    assert len(got(receiver)) + one.dropped[sender.BUFFER_FULL] == 500
    assert c.SPAN_ENGINE not in got(receiver)
    end(one)
