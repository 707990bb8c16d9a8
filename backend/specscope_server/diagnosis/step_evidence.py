"""What the newest verify steps of a window tell of single proposals.

Assembled by the store from at most a few dozen chunks: a loaded engine costs no more than a quiet one.
Everything is of requests of users. Positions count from 0, as in rollups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specscope.rollup import Counts

SINCE_PREFILL = "since_prefill"
"""Verify steps of the request before this one: ``0``, ``1``, ``2-3``, ``4-7``, ... (power-of-two slices)."""
AFTER = "after"
"""What the step before accepted: ``all`` it drafted, ``none`` of it, ``some``; ``first`` for a first step."""
PREFIX = "prefix"
"""How the request's prompt met the prefix cache: ``cold``, ``cached`` (any cached tokens), ``retracted``."""
LENGTH = "length"
"""Power-of-two slice of the length of the context."""
REQUEST = "request"
"""``first`` to the newest request: the rank of the request by arrival among those looked at, in quarters."""
STEP_DIMENSIONS = (SINCE_PREFILL, AFTER, PREFIX, LENGTH, REQUEST)


@dataclass(frozen=True, slots=True)
class Ids:
    """Facts of proposed ids over ``steps`` verify steps with ``nodes`` drafted nodes (detail ``steps`` up).

    ``mode_share`` and ``even_share`` are means over steps; ``same_mode`` is the share of all nodes that are
    the one id proposed most (``None`` below detail ``tokens``, where ids are not recorded) and ``mode_id``
    that id. ``distinct`` counts different ids over all steps (likewise). ``repeats_last`` is the share of
    steps whose first draft repeats the last token of the context.
    """

    steps: int
    nodes: int
    smallest: int
    largest: int
    mode_share: float
    even_share: float
    below_zero: int
    above_vocab: int
    repeats_last: float | None = None
    distinct: int | None = None
    same_mode: float | None = None
    mode_id: int | None = None
    outside_draft_vocab: float | None = None
    """Share of steps where the token the target chose is none that the draft can propose."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How often drafts equal the token that the target committed ``offset`` places away."""

    offset: int
    hits: int
    of: int


@dataclass(frozen=True, slots=True)
class Certainty:
    """The draft's own distribution at one position over ``steps`` steps, and how often it was right.

    ``top1`` is the mean probability of its favourite, ``entropy`` the mean entropy in nat, ``drafted`` and
    ``accepted`` count drafts at this position whose predecessor was accepted (all, at position 0).
    """

    position: int
    steps: int
    top1: float
    entropy: float
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first refused draft of ``steps`` steps, as target and draft rated it (``None``: not recorded)."""

    steps: int
    target_rank: float | None
    """Median number of tokens that the target rated above it."""
    target_prob: float | None
    """Mean."""
    draft_prob: float | None
    """Mean probability the draft gave the token that the target chose there."""


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """What the steps looked at tell.

    ``slices`` are sums by dimension of :data:`STEP_DIMENSIONS` and value, ``versions`` by weight version.
    """

    steps: int = 0
    requests: int = 0
    ids: Ids | None = None
    shifts: tuple[Shift, ...] = ()
    certainty: tuple[Certainty, ...] = ()
    refusal: Refusal | None = None
    slices: Mapping[str, Mapping[str, Counts]] = field(default_factory=dict[str, Mapping[str, Counts]])
    versions: Mapping[int, Counts] = field(default_factory=dict[int, Counts])
    undrafted: Mapping[str, int] = field(default_factory=dict[str, int])
    """Steps that drafted nothing, by the length slice of their context."""
