"""Hidden states, prompts and fingerprints of ranks as they came: whole, within bounds, kept packed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from specscope import chunks, columns, hidden, hidden_rollup
from specscope import convention as c
from specscope.hidden import HiddenRow
from specscope.hidden_rollup import Key, Sums
from specscope.packed_rows import MAX_RAW

from specscope_server.ingest.values import MAX_COUNT, MAX_SMALL, Attributes, Invalid
from specscope_server.store.told import PromptText

MAX_NAME: Final = 64
"""Characters of a place, source, pass or mode."""
MAX_SLOT: Final = 1023
"""Largest slot and draft step: EAGLE-3 has three aux layers and some ten draft steps."""
MAX_SUMS_RAW: Final = 1 << 20
"""Raw bytes of the sums of one rollup; a thousand places take 0.1 MiB."""
MAX_SUM: Final = 1 << 40
"""Largest count of one place, as for verify steps."""
MAX_LEVEL: Final = 256.0
"""Octaves between 1 and anything that a float32 can hold."""
LEVELS: Final = (-32768, 32767)
UNITS: Final = (-127, 127)


def rows(attributes: Attributes, name: str) -> bytes:
    """Return packed rows of hidden states, each of them read and within bounds; absent: empty.

    Raises:
        Invalid: they are damaged, or a value is none that a tracer can have measured.
    """
    blob = attributes.data(name, MAX_RAW)
    if blob is None:
        return b""
    try:
        found = hidden.unpack(blob)
    except columns.CodecError as error:
        raise Invalid(f"{name}: {error}") from error
    for row in found:
        _check(row, name)
    return blob


def _check(row: HiddenRow, name: str) -> None:
    _check_texts((row.place, row.source, row.after, row.mode, row.same_as or ""), name)
    for what, value, most in (
        ("step", row.step, MAX_COUNT),
        ("position", row.position, MAX_COUNT),
        ("rows", row.rows, MAX_SMALL),
        ("slot", row.slot, MAX_SLOT),
        ("draft_step", row.draft_step, MAX_SLOT),
        ("nonfinite", row.nonfinite or 0, MAX_COUNT),
        ("zero_rows", row.zero_rows or 0, row.rows),
        ("equal_rows", row.equal_rows or 0, row.rows),
    ):
        if not 0 <= value <= most:
            raise Invalid(f"{name}: {what} is {value}, not from 0 to {most}")
    levels, units = row.levels or (), row.fingerprints or ()
    if len(levels) > min(row.rows, hidden.MAX_FINGERPRINTS):
        raise Invalid(f"{name}: {len(levels)} levels of {row.rows} rows")
    if len(units) != hidden.PROJECTIONS * len(levels):
        raise Invalid(f"{name}: {len(units)} numbers are no fingerprints of {len(levels)} rows")
    _check_numbers(levels, units, name)


def _check_numbers(levels: Sequence[int], units: Sequence[int], name: str) -> None:
    for what, values, (low, high) in (("level", levels, LEVELS), ("fingerprint", units, UNITS)):
        if values and not (low <= min(values) and max(values) <= high):
            raise Invalid(f"{name}: a {what} is not from {low} to {high}")


def of_rank(blob: bytes) -> dict[str, list[tuple[int, ...] | None]]:
    """Return, by column, levels and fingerprints of each verify step of a rank, as it told them.

    Raises:
        CodecError: they are damaged.
        Invalid: a value is none that a tracer can have measured.
    """
    found = {name: chunks.unpack_rank_looks(blob, name) for name in chunks.RANK_LOOKS}
    for numbers in (one for looks in found.values() for one in looks):
        if numbers is not None:
            levels = numbers[:: chunks.RANK_SLOT]
            units = [one for at, one in enumerate(numbers) if at % chunks.RANK_SLOT]
            _check_numbers(levels, units, c.RANKS_STEPS)
    return found


def _check_texts(texts: Iterable[str], name: str) -> None:
    for text in texts:
        if len(text) > MAX_NAME or not text.isprintable():
            raise Invalid(f"{name} has a place, source, pass or mode that is too long or cannot be printed")


def prompt(attributes: Attributes, uid: str) -> PromptText | None:
    """Return the prompt that a chunk carries, ``None`` where it carries none.

    Raises:
        Invalid: it is damaged, or holds what is no token id.
    """
    blob = attributes.data(c.CHUNK_PROMPT, MAX_RAW)
    if blob is None:
        return None
    try:
        found = chunks.unpack_prompt(blob)
    except columns.CodecError as error:
        raise Invalid(f"{c.CHUNK_PROMPT}: {error}") from error
    if not all(0 <= one <= MAX_SMALL for one in found):
        raise Invalid(f"{c.CHUNK_PROMPT} holds what is no token id")
    ids = np.array(found, dtype="<i4")
    return PromptText(uid, len(ids), hashlib.sha256(ids.tobytes()).hexdigest(), blob)


def sums(attributes: Attributes) -> dict[Key, Sums]:
    """Return what a rollup adds to the sums of hidden states; absent: nothing.

    Raises:
        Invalid: they are damaged, or looks cannot add up to them.
    """
    blob = attributes.data(c.ROLLUP_HIDDEN, MAX_RAW)
    if blob is None:
        return {}
    try:
        found = hidden_rollup.unpack(blob, max_raw=MAX_SUMS_RAW)
    except columns.CodecError as error:
        raise Invalid(f"{c.ROLLUP_HIDDEN}: {error}") from error
    for (place, source, draft_step, slot, after, mode), told in found.items():
        _check_texts((place, source, after, mode), c.ROLLUP_HIDDEN)
        if max(draft_step, slot) > MAX_SLOT:
            raise Invalid(f"{c.ROLLUP_HIDDEN}: a draft step or slot is over {MAX_SLOT}")
        if any(getattr(told, name) > MAX_SUM for name in hidden_rollup.COUNTS):
            raise Invalid(f"{c.ROLLUP_HIDDEN} has a count over {MAX_SUM}")
        if max(told.zero_rows, told.equal_rows) > told.rows or told.levelled > told.looks:
            raise Invalid(f"{c.ROLLUP_HIDDEN} counts more zero or equal rows than rows, or levels than looks")
        if min(told.sum_square, told.max_abs, told.sum_level2) < 0:
            raise Invalid(f"{c.ROLLUP_HIDDEN} has a negative sum of squares, or a negative size")
        if max(abs(told.sum_level), told.sum_level2 / MAX_LEVEL) > MAX_LEVEL * told.levelled:
            raise Invalid(f"{c.ROLLUP_HIDDEN} has levels that {told.levelled} looks cannot add up to")
    return found
