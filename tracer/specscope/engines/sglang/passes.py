"""One call of the engine's forward: what it must cross, what it was seen to cross, and the facts it leaves.

The forward of the speculative worker is called for every batch, whatever happens inside it. So it is what
opens a pass and sets the expectation; a part of the path that falls silent then leaves a gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from specscope import convention as c
from specscope.contracts import VERIFY, Contract
from specscope.copies import Copy
from specscope.engines.sglang.looks import Looking
from specscope.records import Crossing, DraftExtend, Expectation, Ids, VerifyStep

IN_TARGET: Final = "target"
IN_PROPOSE: Final = "propose"
IN_EXTEND: Final = "extend"

OF_EXTEND: Final = frozenset(
    {(c.DRAFT_EXTEND, c.TARGET_FED), (c.DRAFT_FORWARD, c.TARGET_FED), (c.DRAFT_FC, c.TARGET_FED)}
)
"""What a draft extend crosses: counted on its own record, or on its pass's where it did not happen."""


@dataclass(slots=True)
class Extend:
    """Facts of the draft extend of one pass. ``fed_width`` 0: it was fed no hidden states."""

    t_ns: int
    fed_width: int
    dtype: str
    uids: tuple[str, ...]
    done: bool = False
    graph: bool = False
    buffer_width: int | None = None
    forwards: int = 0
    """Runs of a draft model, replayed ones included."""
    fc_ran: int = 0
    logits: Any = None
    """The engine's logits output of the draft's forward; its rows are those of the batch once it is done."""
    confidence: Copy | None = None


@dataclass(slots=True)
class Drafted:
    """What was handed to the verifier: ``nodes`` tokens a row that reach ``depth`` positions."""

    nodes: int
    depth: int
    chain: bool
    blocks: Copy | None = None
    """Tokens [rows, nodes], and of a tree first child and next sibling of each node."""
    graph: bool = False
    began_ns: int | None = None
    """When the target's forward over it began, where its time on the host is the device's."""


@dataclass(slots=True, eq=False)
class Pass:
    """A pass under way. ``kind`` is ``contracts.PREFILL`` or ``contracts.VERIFY``."""

    kind: str
    step: int
    t_ns: int
    reqs: list[Any]
    uids: tuple[str, ...]
    prompt: Ids = ()
    """Prompt tokens of each request."""
    cached: Ids = ()
    weight_version: int = 0
    sampled: bool = False
    """Whether confidence, the target's view and, after verify, looks at hidden states are taken."""
    looking: Looking | None = None
    """Looks at hidden states under way, ``None``: none are taken."""
    inside: str = IN_TARGET
    packed: int | None = None
    """Aux hidden states that the target packed; ``None``: its packing was not called."""
    aux_states: int | None = None
    fc_ran: int | None = None
    target_ns: int | None = None
    """What the target's forward over the drafts took; ``None``: not known."""
    extend: Extend | None = None
    drafted: Drafted | None = None
    drafts: list[Any] = field(default_factory=list[Any])
    """Draft logits of the self-fed forwards of a sampled step: float32 [rows taken, draft vocabulary]."""
    confidence: Copy | None = None
    view: Copy | None = None
    free: Copy | None = None
    agreed: Contract | None = None
    """What it had to cross, as the engine was set up when it ran: steps adapt before it is committed."""
    crossed: list[Crossing] = field(default_factory=list[Crossing])

    def cross(self, crossing: Crossing, count: int = 1) -> None:
        """Count ``count`` crossings."""
        if count == 1:
            self.crossed.append(crossing)
        else:
            self.crossed.extend([crossing] * count)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a pass had to cross and crossed: on its own record, and on that of its draft extend."""

    expected: dict[Expectation, int]
    crossed: dict[Crossing, int]
    extend_expected: dict[Expectation, int]
    extend_crossed: dict[Crossing, int]


class Counting:
    """Sums the crossings of passes. Passes that cross the same get the same object: there are few kinds."""

    LIMIT: Final = 256

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[tuple[object, ...], Counts] = {}

    def of(self, one: Pass, agreed: Contract) -> Counts:
        """Return the counts of a pass that must cross what ``agreed`` says.

        Together its own and the draft extend's hold every expectation and crossing once. Without a draft
        extend the pass's own hold them all: that is the gap.
        """
        apart = one.extend is not None
        key = (id(agreed), one.kind, apart, *one.crossed)
        found = self._known.get(key)
        if found is None:
            found = _split(agreed.of(one.kind), one.crossed, apart=apart)
            if len(self._known) < self.LIMIT:
                self._known[key] = found
        return found


def _split(expected: Mapping[Expectation, int], crossed: Iterable[Crossing], *, apart: bool) -> Counts:
    seen = Counter(crossed)
    return Counts(
        expected={k: n for k, n in expected.items() if not (apart and k in OF_EXTEND)},
        crossed={k: n for k, n in seen.items() if not (apart and k[:2] in OF_EXTEND)},
        extend_expected={k: n for k, n in expected.items() if apart and k in OF_EXTEND},
        extend_crossed={k: n for k, n in seen.items() if apart and k[:2] in OF_EXTEND},
    )


def extend_record(one: Pass, extend: Extend, fc_in: int | None, counts: Counts) -> DraftExtend:
    """Return the record of the draft extend of a pass that ended."""
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
        expected=counts.extend_expected,
        crossed=counts.extend_crossed,
        confidence=None if extend.confidence is None else extend.confidence.reals(),
    )


def given_up(one: Pass, counts: Counts) -> VerifyStep:
    """Return the record of a verify pass that was never committed: its counts, and no row."""
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
        expected=counts.expected,
        crossed=counts.crossed,
    )
