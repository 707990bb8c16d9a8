"""One call of the engine's forward: what it must cross, what it was seen to cross, and the facts it leaves.

The forward of the speculative worker is called for every batch, whatever happens inside it. So it is what
opens a pass and sets the expectation; a part of the path that falls silent then leaves a gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from specscope import convention as c
from specscope.ledger import VERIFY, Contract, eagle3_contract
from specscope.records import Crossing, DraftExtend, Expectation, HiddenStats, Ids, VerifyStep

IN_TARGET: Final = "target"
IN_PROPOSE: Final = "propose"
IN_EXTEND: Final = "extend"

OF_EXTEND: Final = frozenset(
    {(c.DRAFT_EXTEND, c.TARGET_FED), (c.DRAFT_FORWARD, c.TARGET_FED), (c.DRAFT_FC, c.TARGET_FED)}
)
"""What a draft extend crosses: counted on its own record, or on its pass's where it did not happen."""


@dataclass(slots=True)
class Extend:
    """Facts of the draft extend of one pass."""

    t_ns: int
    fed_width: int
    dtype: str
    uids: tuple[str, ...]
    hidden: tuple[HiddenStats | None, ...]
    done: bool = False
    graph: bool = False
    buffer_width: int | None = None
    fc_ran: int = 0


@dataclass(slots=True)
class Drafted:
    """What was handed to the verifier and what it answered, as host values; ``None``: on a device."""

    nodes: int
    steps: int
    chain: bool
    tokens: list[list[int]] | None = None
    first_child: list[list[int]] | None = None
    next_sibling: list[list[int]] | None = None
    accept_index: list[list[int]] | None = None
    graph: bool = False


@dataclass(slots=True, eq=False)
class Pass:
    """A pass under way. ``kind`` is ``ledger.PREFILL`` or ``ledger.VERIFY``."""

    kind: str
    step: int
    t_ns: int
    uids: tuple[str, ...]
    cached: Ids = ()
    inside: str = IN_TARGET
    packed: int | None = None
    """Aux hidden states that the target packed; ``None``: its packing was not called."""
    aux_states: int | None = None
    fc_ran: int | None = None
    extend: Extend | None = None
    drafted: Drafted | None = None
    expected: Mapping[Expectation, int] = field(default_factory=dict[Expectation, int])
    crossed: Counter[Crossing] = field(default_factory=Counter[Crossing])

    def cross(self, boundary: str, source: str, mode: str, count: int = 1) -> None:
        """Count ``count`` crossings."""
        if count:
            self.crossed[boundary, source, mode] += count

    def split(self, *, extend: bool) -> tuple[dict[Expectation, int], dict[Crossing, int]]:
        """Return (expected, crossed) of the draft extend's record, or of the pass's own.

        Together both hold every expectation and crossing of the pass once. Without a draft extend the
        pass's own record holds them all.
        """
        apart = self.extend is not None
        expected = {k: n for k, n in self.expected.items() if (apart and k in OF_EXTEND) == extend}
        crossed = {k: n for k, n in self.crossed.items() if (apart and k[:2] in OF_EXTEND) == extend}
        return expected, crossed


@cache
def contract(num_steps: int, has_fc: bool, has_map: bool) -> Contract:
    """Return what one pass must cross when the draft takes ``num_steps`` steps.

    With 0 steps (SGLang's adaptive speculation switches drafting off for large batches) the target still
    verifies and commits, but nothing is expected of the draft.
    """
    full = eagle3_contract(num_steps=num_steps, has_fc=has_fc, has_map=has_map)
    if num_steps > 0:
        return full
    still = (c.TARGET_VERIFY, c.ENGINE_COMMIT)
    return Contract(full.prefill, {k: n for k, n in full.verify.items() if k[0] in still})


def extend_record(one: Pass, extend: Extend, fc_in: int | None) -> DraftExtend:
    """Return the record of the draft extend of a pass that ended."""
    expected, crossed = one.split(extend=True)
    return DraftExtend(
        t_ns=extend.t_ns,
        step=one.step,
        after="verify" if one.kind == VERIFY else "prefill",
        mode=c.GRAPH if extend.graph else c.EAGER,
        uids=extend.uids,
        fed_width=extend.fed_width,
        dtype=extend.dtype,
        aux_states=one.aux_states,
        fc_in=fc_in,
        fc_ran=one.fc_ran,
        hidden=extend.hidden,
        expected=expected,
        crossed=crossed,
    )


def given_up(one: Pass) -> VerifyStep:
    """Return the record of a verify pass that was never committed: its counts, and no row."""
    expected, crossed = one.split(extend=False)
    none: Ids = ()
    return VerifyStep(
        t_ns=one.t_ns,
        step=one.step,
        mode=c.GRAPH if one.drafted is not None and one.drafted.graph else c.EAGER,
        batch_size=len(one.uids),
        uids=(),
        rows=none,
        context=none,
        drafted_depth=none,
        drafted_nodes=none,
        accepted=none,
        bonus=none,
        committed=none,
        expected=expected,
        crossed=crossed,
    )
