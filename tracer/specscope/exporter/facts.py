"""Facts of drafted token ids that survive redaction: they show map and vocabulary faults at ``steps``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from specscope import tree
from specscope.chunks import SHIFTS, StepRow
from specscope.exporter.tokens import TokenStream
from specscope.records import ORPHAN, ROOT


def add_id_facts(row: StepRow, drafts: Sequence[int], vocab_size: int | None, last: int | None) -> None:
    """Fill the ``ids_*`` columns from the drafted nodes; ``last`` is the context's last token, if known.

    A step that drafted nothing has no facts: they stay ``None``.
    """
    if not drafts:
        return
    count, distinct = len(drafts), set(drafts)
    low, high = min(distinct), max(distinct)
    row.ids_min, row.ids_max = low, high
    row.ids_distinct = len(distinct)
    mode = 1 if len(distinct) == count else max(Counter(drafts).values())
    row.ids_mode_share = mode / count
    row.ids_even_share = (count - sum([i & 1 for i in drafts])) / count
    row.ids_below_zero = 0 if low >= 0 else len([i for i in drafts if i < 0])
    if vocab_size is not None:
        row.ids_above_vocab = 0 if high < vocab_size else len([i for i in drafts if i >= vocab_size])
    if last is not None:
        row.ids_repeats_last = int(drafts[0] == last)


def by_depth(drafts: Sequence[int], parents: Sequence[int] | None) -> list[set[int]]:
    """Return the drafted ids of each depth, from depth 1; without ``parents`` the drafts are a chain.

    A draft that no path from the root reaches (an orphan, and what hangs on it) is left out. A parent that
    does not stand before its child (a damaged tree) ends the walk: only what is sound is compared.
    """
    if parents is None or parents == tree.chain(len(drafts)):
        return [{token} for token in drafts]
    depths: list[int | None] = []
    levels: list[set[int]] = []
    for index, (token, parent) in enumerate(zip(drafts, parents, strict=False)):
        if not ORPHAN <= parent < index:
            break
        reached = parent == ROOT or (parent != ORPHAN and depths[parent] is not None)
        depth = (0 if parent == ROOT else (depths[parent] or 0) + 1) if reached else None
        depths.append(depth)
        if depth is None:
            continue
        while len(levels) <= depth:
            levels.append(set())
        levels[depth].add(token)
    return levels


def add_shift_match(row: StepRow, levels: Sequence[set[int]], stream: TokenStream, start: int) -> None:
    """Fill ``shift_hits`` and ``shift_of``; ``start`` is where in ``stream`` the step's first token stands.

    Call it when the chunk closes: the offsets +1 and +2 need tokens that later steps commit.
    """
    if not levels:
        return
    hits: list[int] = []
    known: list[int] = []
    lowest, depths = SHIFTS[0], len(levels)
    around = stream.between(start + lowest, start + SHIFTS[-1] + depths)
    for shift in SHIFTS:
        tokens = around[shift - lowest : shift - lowest + depths]
        known.append(depths - tokens.count(None))
        hits.append(len([token for token, level in zip(tokens, levels, strict=True) if token in level]))
    row.shift_hits, row.shift_of = hits, known
