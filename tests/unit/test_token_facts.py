"""Facts of token ids against a plain reading of their definitions."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specscope.chunks import SHIFTS, StepRow
from specscope.exporter import facts
from specscope.exporter.tokens import WINDOW, TokenStream

FEW = st.integers(0, 5)


def row() -> StepRow:
    return StepRow(1, 2, "eager", 1, 0, 9, 3, 3, 2, 1, 3, 0, 0)


def test_id_facts_by_hand() -> None:
    one = row()
    facts.add_id_facts(one, [4, 4, -1, 100, 7], vocab_size=100, last=4)
    assert (one.ids_min, one.ids_max, one.ids_distinct) == (-1, 100, 4)
    assert (one.ids_mode_share, one.ids_even_share) == (0.4, 0.6)
    assert (one.ids_below_zero, one.ids_above_vocab, one.ids_repeats_last) == (1, 1, 1)


def test_unknown_is_not_zero() -> None:
    one = row()
    facts.add_id_facts(one, [], vocab_size=100, last=4)
    assert one == row()
    facts.add_id_facts(one, [4], vocab_size=None, last=None)
    assert one.ids_above_vocab is None
    assert one.ids_repeats_last is None


@given(st.lists(FEW, max_size=30), st.lists(st.lists(FEW, max_size=4), max_size=12))
def test_copies_is_what_its_definition_says(prompt: list[int], outputs: list[list[int]]) -> None:
    stream = TokenStream(prompt)
    context: list[int | None] = [*prompt, None]  # the first output token comes from the prefill
    for ids in [[], *outputs]:
        stream.append(ids)
        context += ids
        last = context[-2:]
        expected: bool | None = None
        if len(last) == 2 and None not in last:
            pairs = list(pairwise(context))
            expected = tuple(last) in pairs[:-1]
        assert stream.copies() == expected
        assert [stream.at(i) for i in range(len(context))] == context
        assert stream.length == len(context)


def test_without_the_prompt_copying_is_not_known() -> None:
    stream = TokenStream(None)
    stream.append([1, 2, 1, 2])
    assert stream.copies() is None
    assert stream.at(stream.length - 1) == 2


def test_only_the_window_is_looked_at() -> None:
    stream = TokenStream([])
    stream.append([7, 8])
    for start in range(0, WINDOW, 64):
        stream.append(range(1000 + start, 1064 + start))
    stream.append([7, 8])
    assert stream.copies() is False
    assert stream.at(0) is None
    assert stream.at(stream.length - 2) == 7
    stream.append([7, 8])
    assert stream.copies() is True


def test_more_than_a_window_at_once() -> None:
    stream = TokenStream(range(3 * WINDOW))
    stream.append(range(2 * WINDOW))
    assert stream.at(stream.length - 1) == 2 * WINDOW - 1
    assert stream.at(stream.length - WINDOW) == WINDOW
    assert stream.copies() is False


def test_ids_that_are_no_tokens_are_unknown_ones() -> None:
    stream = TokenStream([1])
    stream.append([-5, 1 << 40, 3])
    assert [stream.at(i) for i in range(5)] == [1, None, None, None, 3]


@pytest.mark.parametrize(
    ("drafts", "parents", "levels"),
    [
        ([5, 6, 7], None, [{5}, {6}, {7}]),
        ([5, 6, 7], [-1, 0, 1], [{5}, {6}, {7}]),
        ([5, 6, 7, 8], [-1, -1, 0, 1], [{5, 6}, {7, 8}]),
        ([5, 6, 7], [-1, 2, 0], [{5}]),  # a parent after its child
        ([5, 6], [-1, 1], [{5}]),  # its own parent
        ([5, 6], [-7, 0], []),
        ([5, 6, 7, 8], [-1, -2, 1, 0], [{5}, {8}]),  # an orphan, and a draft that hangs on it
        ([], [], []),
    ],
)
def test_depths(drafts: list[int], parents: list[int] | None, levels: list[set[int]]) -> None:
    assert facts.by_depth(drafts, parents) == levels


@pytest.mark.parametrize("fault", SHIFTS)
def test_a_draft_that_is_shifted_by_one_place_shows_where(fault: int) -> None:
    truth = list(range(100, 140))
    stream = TokenStream([1, 2, 3])
    stream.append(truth[:10])
    start = stream.length
    drafted = [truth[10 + depth + fault] for depth in range(4)]
    stream.append(truth[10:])
    one = row()
    facts.add_shift_match(one, facts.by_depth(drafted, None), stream, start)
    assert one.shift_of == [4] * 5
    hits: Any = one.shift_hits
    assert dict(zip(SHIFTS, hits, strict=True)) == {s: 4 * (s == fault) for s in SHIFTS}


def test_what_is_not_committed_yet_is_not_compared() -> None:
    stream = TokenStream(None)
    stream.append([9, 9])
    start = stream.length
    stream.append([1])
    one = row()
    facts.add_shift_match(one, [{1}, {2}, {3}], stream, start)
    assert one.shift_of == [3, 2, 1, 0, 0]
    assert one.shift_hits == [0, 0, 1, 0, 0]
