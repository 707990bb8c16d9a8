"""The ranks that must agree with this one on every verify step."""

from __future__ import annotations

import importlib
from typing import Any


def size() -> int:
    """Return how many ranks run the same steps on the same requests as this one, itself included.

    These are the ranks of one attention group: all of a tensor-parallel group, or under data-parallel
    attention those of one replica in it (``derive_attention_ranks``, ``runtime_context.py``). Where a
    context is split over ranks (``attn_cp_size``) each sees a part of it, and 1 says: not compared.
    """
    context: Any = importlib.import_module("sglang.srt.runtime_context")
    parallel = context.get_parallel()
    return int(parallel.attn_tp_size) if parallel.attn_cp_size == 1 else 1
