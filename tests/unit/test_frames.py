"""Frames between the engine process and the exporter."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specscope import frames
from specscope.clock import Anchor
from specscope.identity import Ranks
from specscope.settings import Settings

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.lists(st.tuples(st.text(), PLAIN), max_size=5), st.data())
def test_frames_survive_any_cut_of_the_stream(sent: list[tuple[str, Any]], data: st.DataObject) -> None:
    stream = b"".join(frames.pack(kind, payload) for kind, payload in sent)
    reader = frames.Reader()
    received: list[tuple[str, Any]] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += list(reader.feed(stream[:size]))
        stream = stream[size:]
    assert received == sent


def test_what_is_not_plain_is_refused() -> None:
    with pytest.raises(ValueError, match="unmarshallable"):
        frames.pack(frames.RECORDS, [object()])


def test_hello_beat_and_ack_come_back_equal() -> None:
    hello = frames.Hello(
        settings=Settings(endpoint="http://x", headers=(("a", "b"),), ignored=("c",)),
        instance="i",
        process="p",
        pid=1,
        start_ns=2,
        role="scheduler",
        ranks=Ranks(tp=1, serving_role="decode"),
        engine_name="sglang",
        engine_version="0",
        anchor=Anchor(3, 4),
        dropped={"queue_full": 1},
        export_failures=5,
    )
    beat = frames.Beat(
        Anchor(1, 2),
        {("b", ""): 1},
        {("b", "", "eager"): 1},
        {"b": ("missing", "why")},
        {"user": 1},
        {},
        2,
        {"h": 1},
        3,
    )
    ack = frames.Ack(1, 2, {"rejected": 3}, 4, True, done=True)
    reader = frames.Reader()
    data = frames.pack(frames.HELLO, hello) + frames.pack(frames.BEAT, beat) + frames.pack(frames.ACK, ack)
    (_, first), (_, second), (_, third) = reader.feed(data)
    assert frames.hello(first) == hello
    assert frames.beat(second) == beat
    assert frames.Ack(*third) == ack
