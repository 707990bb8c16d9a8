"""What a target is handed to verify, read from SGLang's input before the engine works on it."""

from __future__ import annotations

from typing import Any

from specscope.engines.sglang.passes import Drafted


def drafts_itself(source: Any) -> bool:
    """Say whether the target is to draft, as UNO does it (``uno_worker_v2.py``, ``_run_draft_block``)."""
    return getattr(getattr(source.spec_info, "spec_input_type", None), "name", "") == "UNO_DRAFT"


def read(source: Any, rows: int) -> tuple[Drafted, list[Any]]:
    """Return the shape of the drafts of a batch of ``rows``, and where they are.

    The latter are tensors of rows * nodes: tokens, and of a tree first child and next sibling of each node.
    Empty: the rows are not of one length.
    """
    info = source.spec_info
    tokens = getattr(info, "draft_token", None)
    tokens = source.input_ids if tokens is None else tokens
    # DSPARK may verify rows of different lengths, packed (``dspark_verify.py``, ``_run_ragged``).
    packed = getattr(info, "ragged_verify_layout", None) is not None
    nodes: int = info.draft_token_num if packed else tokens.numel() // rows
    links = getattr(info, "retrieve_next_token", None)
    drafted = Drafted(
        nodes=nodes,
        # NGRAM's trees have no bound but their nodes (``ngram_info.py``, ``max_tree_depth``).
        depth=min(getattr(info, "spec_steps", nodes - 1), nodes - 1),
        chain=links is None or getattr(info, "tree_topk", 1) == 1,
    )
    if packed or nodes * rows != tokens.numel():
        return drafted, []
    return drafted, [tokens] if drafted.chain else [tokens, links, info.retrieve_next_sibling]
