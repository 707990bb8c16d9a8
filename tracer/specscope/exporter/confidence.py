"""Columns about how sure the draft was and what the target thought of it."""

from __future__ import annotations

import math
from typing import Final

from specscope import expand
from specscope.chunks import StepRow
from specscope.records import DraftExtend, VerifyStep

First = tuple[float | None, float | None]

PARTS: Final = 10_000
"""Probabilities are kept in 1/10000."""
MILLI: Final = 1_000
"""Entropies are kept in 1/1000 nat."""
UNKNOWN: Final = -1


def first(record: DraftExtend) -> list[First] | None:
    """Return (top-1 probability, entropy) of position 1 of each request's next proposal."""
    if record.confidence is None:
        return None
    top1, entropy = (expand.known(row) for row in expand.reals(record.confidence))
    return list(zip(top1, entropy, strict=True))


def add(row: StepRow, record: VerifyStep, index: int, opening: First | None, draft_ids: bytes | None) -> None:
    """Fill the columns of one step; ``opening`` is position 1, ``draft_ids`` as in ``EngineFacts``."""
    if record.top1 is not None or opening is not None:
        before = opening or (None, None)
        top1 = () if record.top1 is None else record.top1[index]
        entropy = () if record.entropy is None else record.entropy[index]
        row.draft_top1 = [_scaled(one, PARTS) for one in (before[0], *top1)]
        row.draft_entropy = [_scaled(one, MILLI) for one in (before[1], *entropy)]
    if record.target_rank is not None:
        row.target_rank = record.target_rank[index]
    if record.target_prob is not None:
        row.target_prob = record.target_prob[index]
    if record.draft_prob is not None:
        row.draft_prob = record.draft_prob[index]
    if record.accepted_free is not None:
        row.accepted_free = record.accepted_free[index]
    if record.bonus_ids is not None and draft_ids is not None and row.accepted < row.drafted_depth:
        row.outside_draft_vocab = int(not has(draft_ids, record.bonus_ids[index]))


def has(bits: bytes, token: int) -> bool:
    """Say whether a draft with these ids can propose ``token``."""
    return 0 <= token < 8 * len(bits) and bool(bits[token >> 3] >> (token & 7) & 1)


def _scaled(value: float | None, parts: int) -> int:
    return UNKNOWN if value is None or not math.isfinite(value) else round(value * parts)
