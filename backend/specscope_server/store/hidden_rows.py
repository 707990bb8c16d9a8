"""Hidden states on their way into rows: prompts, and the increments of the sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specscope.rollup import bucket_start

from specscope_server.store.merges import LARGER, SUM, Merge
from specscope_server.store.schema_hidden import HIDDEN_COUNTS, HIDDEN_REALS
from specscope_server.store.told import PromptText, RollupIncrement
from specscope_server.store.values import count, key

MAX_NUMBER: Final = 1023
"""Largest slot and draft step."""
Row = dict[str, Any]

MERGE: Final[dict[str, Merge]] = {
    **dict.fromkeys((*HIDDEN_COUNTS, *HIDDEN_REALS), SUM),
    "max_abs": LARGER,
}


def increment_rows(increment: RollupIncrement, engine: Mapping[str, Any]) -> list[Row]:
    """Return the rows that an increment adds; ``engine`` holds the engine's part of the key.

    Raises:
        Refused: a count is out of range.
    """
    bucket = bucket_start(increment.bucket * 1_000_000_000)
    return [
        dict(engine)
        | {"bucket": bucket, "place": key(place), "source": key(source), "after": key(after)}
        | {"mode": key(mode), "draft_step": count(draft_step, "draft step", MAX_NUMBER)}
        | {"slot": count(slot, "slot", MAX_NUMBER)}
        | {name: count(getattr(sums, name), f"hidden states' {name}") for name in HIDDEN_COUNTS}
        | {name: getattr(sums, name) for name in HIDDEN_REALS}
        for (place, source, draft_step, slot, after, mode), sums in increment.hidden.items()
    ]


def prompt_row(prompt: PromptText, engine: Mapping[str, Any]) -> Row:
    """Return the row of a prompt.

    Raises:
        Refused: its length is out of range.
    """
    return dict(engine) | {
        "uid": key(prompt.uid),
        "prompt_tokens": count(prompt.tokens, "prompt tokens"),
        "prompt_sha256": key(prompt.sha256),
        "prompt_ids": prompt.ids,
    }
