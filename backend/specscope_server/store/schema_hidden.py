"""Tables of hidden states over time, and of prompts, which lists never touch."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Double, LargeBinary, Table

from specscope_server.store.schema_parts import (
    engine_key,
    int_column,
    key_column,
    metadata,
    text_column,
)

HIDDEN_COUNTS: Final = ("looks", "rows", "nonfinite", "zero_rows", "equal_rows", "levelled")
HIDDEN_REALS: Final = ("sum", "sum_square", "max_abs", "sum_level", "sum_level2")
"""Fields of :class:`specscope.hidden_rollup.Sums`, whole and real ones. All add up but ``max_abs``."""


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


# Sums of what was looked at in 10 s, over all requests of users; which increments are in is noted in
# ``rollup_applied``, together with their verify steps.
hidden_stat = Table(
    "hidden_stat",
    metadata,
    engine_key(),
    _number("bucket"),
    key_column("place"),
    key_column("source"),
    _number("draft_step"),
    _number("slot"),
    key_column("after"),
    key_column("mode"),
    *(int_column(name) for name in HIDDEN_COUNTS),
    *(Column(name, Double, nullable=False) for name in HIDDEN_REALS),
    sqlite_with_rowid=False,
)

# A prompt as token ids, packed as it came, where the detail level allows it.
request_text = Table(
    "request_text",
    metadata,
    engine_key(),
    key_column("uid"),
    int_column("prompt_tokens"),
    text_column("prompt_sha256"),
    Column("prompt_ids", LargeBinary, nullable=False),
)
