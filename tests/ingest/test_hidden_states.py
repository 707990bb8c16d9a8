"""Hidden states, prompts and their sums come in whole and within bounds, or their span is refused."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from serverkit import otlp
from specscope import chunks, columns, hidden, hidden_rollup
from specscope import convention as c
from specscope.hidden_rollup import Sums
from specscope_server.ingest import traces
from specscope_server.store.told import Batch
from storekit import facts


def _read(**attributes: Any) -> tuple[list[Batch], str]:
    """Return the batches of a steps span with these attributes, and what was said of it."""
    named = {getattr(c, name): value for name, value in attributes.items()}
    batches, tally = traces.batches_of(otlp.traces(otlp.steps_span(**named)))
    return batches, tally.explain()


def _rollup(rows: bytes) -> tuple[list[Batch], str]:
    batches, tally = traces.batches_of(otlp.traces(otlp.rollup_span(3, **{c.ROLLUP_HIDDEN: rows})))
    return batches, tally.explain()


def test_a_chunk_carries_looks_and_the_prompt() -> None:
    looks = hidden.pack([facts.look(1), facts.look(2, mean=math.nan, max_abs=math.inf)])
    ids = [7, 0, 2**31 - 1]
    [batch], said = _read(CHUNK_HIDDEN=looks, CHUNK_PROMPT=columns.encode({"id": ids}))
    [chunk], [prompt] = batch.chunks, batch.prompts
    assert (said, chunk.hidden) == ("", looks)
    assert (prompt.uid, prompt.tokens) == (chunk.uid, 3)
    assert prompt.sha256 == hashlib.sha256(np.array(ids, dtype="<i4").tobytes()).hexdigest()


def test_a_chunk_without_them_has_none() -> None:
    [batch], _ = _read()
    assert (batch.chunks[0].hidden, batch.prompts) == (b"", ())


def test_an_empty_prompt_is_one() -> None:
    [batch], said = _read(CHUNK_PROMPT=columns.encode({"id": []}))
    assert (said, [prompt.tokens for prompt in batch.prompts]) == ("", [0])


BAD_LOOKS: dict[str, tuple[dict[str, Any], str]] = {
    "negative rows": ({"rows": -1}, "rows is -1"),
    "too many rows": ({"rows": 1 << 40}, "rows is"),
    "negative step": ({"step": -1}, "step is -1"),
    "slot": ({"slot": 5000}, "slot is 5000"),
    "draft step": ({"draft_step": -1}, "draft_step is -1"),
    "more zero rows than rows": ({"zero_rows": 2}, "zero_rows is 2"),
    "nonfinite": ({"nonfinite": -3}, "nonfinite is -3"),
    "place with NUL": ({"place": "a\0"}, "cannot be printed"),
    "source too long": ({"source": "x" * 65}, "too long"),
    "same as": ({"same_as": "x" * 65}, "too long"),
    "more levels than rows": ({"levels": [1, 2], "fingerprints": [0] * 16}, "2 levels of 1 rows"),
    "level out of range": ({"levels": [40000]}, "level is not from"),
    "fingerprint out of range": ({"fingerprints": [128] * 8}, "fingerprint is not from"),
    "fingerprint cut off": ({"fingerprints": [1] * 7}, "7 numbers are no fingerprints"),
}


@pytest.mark.parametrize(("changed", "message"), BAD_LOOKS.values(), ids=BAD_LOOKS)
def test_a_look_that_cannot_be_refuses_its_span_alone(changed: dict[str, Any], message: str) -> None:
    batches, said = _read(CHUNK_HIDDEN=hidden.pack([facts.look(1), facts.look(2, **changed)]))
    assert batches == []
    assert c.CHUNK_HIDDEN in said and message in said


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"junk" * 9, "SPSC"),
        (hidden.pack([facts.look(1)])[:-1] + b"\0", "does not"),
        (columns.encode({"step": [1]}), "lack the columns"),
        (columns.encode({"step": [0] * 5000}), "over the limit of 4096"),
        (columns.encode({"step": [""] * 4_000_000}, codec=columns.ZLIB), "over the limit"),
    ],
)
def test_damaged_looks(blob: bytes, message: str) -> None:
    batches, said = _read(CHUNK_HIDDEN=blob)
    assert (batches, message in said) == ([], True), said


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"junk" * 9, "SPSC"),
        (columns.encode({"ids": [1]}), "no column 'id'"),
        (columns.encode({"id": [1, None]}), "no column 'id'"),
        (columns.encode({"id": ["a"]}), "no column 'id'"),
        (columns.encode({"id": [1, -1]}), "no token id"),
        (columns.encode({"id": [1 << 31]}), "no token id"),
        (columns.encode({"id": [0] * (chunks.MAX_PROMPT + 1)}), "over the limit"),
    ],
)
def test_bad_prompts(blob: bytes, message: str) -> None:
    batches, said = _read(CHUNK_PROMPT=blob)
    assert (batches, message in said) == ([], True), said


def test_a_rollup_carries_sums() -> None:
    rows = {facts.PLACE: facts.looks(3), facts.place(slot=1): facts.looks(2, 0.5)}
    [batch], said = _rollup(hidden_rollup.pack(rows))
    [increment] = batch.rollups
    assert (said, increment.seq, dict(increment.hidden)) == ("", 3, rows)
    assert dict(increment.rows) == otlp.rollup_rows()


def test_a_rollup_without_sums_has_none() -> None:
    [batch], _ = traces.batches_of(otlp.traces(otlp.rollup_span()))
    assert batch.rollups[0].hidden == {}


BAD_SUMS: dict[str, tuple[Sums, str]] = {
    "count": (facts.looks(rows=1 << 50), "count over"),
    "negative square": (facts.looks(sum_square=-1.0), "negative"),
    "negative size": (facts.looks(max_abs=-1.0), "negative"),
    "level": (facts.looks(sum_level=1e6), "cannot add up"),
    "level without a look": (facts.looks(levelled=0), "cannot add up"),
    "zero rows": (facts.looks(zero_rows=21), "more zero or equal rows than rows"),
    "equal rows": (facts.looks(equal_rows=21), "more zero or equal rows than rows"),
    "levels": (facts.looks(levelled=11), "levels than looks"),
    "square of level": (facts.looks(sum_level2=1e9), "cannot add up"),
}


@pytest.mark.parametrize(("sums", "message"), BAD_SUMS.values(), ids=BAD_SUMS)
def test_sums_that_no_looks_add_up_to_refuse_their_span(sums: Sums, message: str) -> None:
    batches, said = _rollup(hidden_rollup.pack({facts.PLACE: facts.looks(), facts.place(slot=1): sums}))
    assert (batches, message in said) == ([], True), said


def test_bad_keys_and_damage_of_sums() -> None:
    for key, message in (
        (facts.place("a\n"), "cannot be printed"),
        (facts.place("x" * 65), "too long"),
        (facts.place(slot=5000), "over 1023"),
    ):
        batches, said = _rollup(hidden_rollup.pack({key: facts.looks()}))
        assert (batches, message in said) == ([], True), said
    whole = hidden_rollup.pack({facts.PLACE: facts.looks()})
    for blob in (whole[:-1] + b"\0", b"SPSC", columns.encode({"place": ["x"]})):
        batches, said = _rollup(blob)
        assert (batches, c.ROLLUP_HIDDEN in said) == ([], True), said


def test_a_huge_sum_is_kept_and_finite() -> None:
    huge = replace(facts.looks(), sum_square=1e300)
    [batch], _ = _rollup(hidden_rollup.pack({facts.PLACE: huge}))
    assert batch.rollups[0].hidden[facts.PLACE].sum_square == hidden_rollup.LARGEST


def _ranks(told: Sequence[Sequence[int] | None], name: str = "hidden") -> tuple[list[Batch], str]:
    looks = [told if one == name else () for one in chunks.RANK_LOOKS]
    packed: dict[str, Any] = {c.RANKS_STEPS: chunks.pack_ranks([7, 9], [1, 2], [3, 4], *looks)}
    batches, tally = traces.batches_of(otlp.traces(otlp.rank_span([7, 9], **packed)))
    return batches, tally.explain()


def test_ranks_keep_their_fingerprints() -> None:
    told = (512, *[16] * 8, hidden.NO_LEVEL, *[0] * 8)
    for name in chunks.RANK_LOOKS:
        [batch], said = _ranks([None, told], name)
        assert (said, chunks.unpack_rank_looks(batch.ranks[0].sums, name)) == ("", [None, told])
        assert chunks.unpack_ranks(batch.ranks[0].sums) == [(7, 1, 3), (9, 2, 4)]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ((512, *[16] * 7), "8 numbers in one step"),
        ((), "0 numbers in one step"),
        ((512, *[16] * 8) * 65, "585 numbers in one step"),
        ((70_000, *[16] * 8), "level is not from"),
        ((512, *[300] * 8), "fingerprint is not from"),
    ],
)
def test_bad_fingerprints_of_ranks(told: tuple[int, ...], message: str) -> None:
    batches, said = _ranks([told, None])
    assert (batches, message in said) == ([], True), said
