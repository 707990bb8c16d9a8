"""Verify steps as the store has them, with as few words as a test needs."""

from __future__ import annotations

from typing import Any


def chain(
    index: int, output: list[int] | None, draft: list[int], accepted: int, **more: Any
) -> dict[str, Any]:
    """A step of a chain of drafts, of which the first ``accepted`` were."""
    tokens: dict[str, Any] = {
        "draft_tokens": draft,
        "parents": list(range(-1, len(draft) - 1)),
        "accepted_path": list(range(accepted)),
        "output_ids": output,
    }
    return {
        "index": index,
        "step": 100 + index,
        "t": 1_000_000_000 * index,
        "drafted_depth": len(draft),
        "drafted_nodes": len(draft),
        "accepted": accepted,
        "bonus": 1,
        "committed": accepted + 1,
        **({} if output is None else tokens),
        **more,
    }
