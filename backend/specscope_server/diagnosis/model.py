"""Evidence in, findings out: both plain facts, so that every rule can be tested from a literal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specscope import hidden
from specscope.rollup import Counts

from specscope_server.diagnosis.engine_evidence import (
    DraftState,
    Event,
    Expectation,
    FedRows,
    HandOver,
    Moment,
    PassTime,
    PlaceComparison,
    ReferenceEvidence,
    ReferenceWeight,
    Slice,
)
from specscope_server.diagnosis.hidden_evidence import HiddenEvidence
from specscope_server.diagnosis.step_evidence import StepEvidence
from specscope_server.store.model import BoundaryState
from specscope_server.store.told import EngineCounts

CERTAIN = "certain"
SUSPECTED = "suspected"
OBSERVATION = "observation"
CRITICAL = "critical"
WARNING = "warning"
INFO = "info"


@dataclass(frozen=True, slots=True)
class ExtendEvidence:
    """Sums over the draft extends of an engine in the window, one entry a (after, fed width, fc_in)."""

    after: str
    fed_width: int
    fc_in: int | None
    aux_states: int | None
    passes: int
    fc_ran: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One request whose totals are not those that the engine counted itself."""

    uid: str
    rid: str
    verify_steps: int
    accepted: int
    engine: EngineCounts


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Our totals of the requests that ended in the window, against the engine's own counters of them.

    ``compared`` counts among the newest of them those that were seen whole, ``not_compared`` the others by
    reason. ``differing`` are all of the window, newest first.
    """

    compared: int
    differing: tuple[Difference, ...] = ()
    not_compared: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class RankHidden:
    """What the draft was fed in one slot, or what its fc made of that (``place``), on the ranks of a group.

    Over ``compared`` steps in which two or more ranks told of it: the largest ``relative_error`` of a rank to
    the lowest one, in which engine ``step`` and of which ``rank``; ``median`` is that of the steps' largest
    ones. Rounding on the wire is taken off.
    """

    slot: int
    compared: int
    relative_error: float
    step: int
    rank: int
    place: str = hidden.FED
    median: float = 0.0


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """The ranks of one group that must agree, held against each other over their newest steps.

    ``heard`` of ``size`` ranks told of their steps; ``compared`` counts the steps that two or more told,
    ``alone`` those that one alone did. ``proposals_compared`` of the compared ones had proposals on the host
    to compare. At ``first_step``, ``boundary`` is where the ranks ``apart`` left the others (all of them
    where no side has a majority). ``steps`` are the first and last engine step compared.
    """

    dp: int
    pp: int
    size: int
    heard: tuple[int, ...]
    compared: int
    proposals_compared: int
    proposals_differ: int
    accepts_differ: int
    first_step: int | None = None
    boundary: str = ""
    apart: tuple[int, ...] = ()
    steps: tuple[int, int] | None = None
    alone: int = 0
    serving_role: str = "both"
    hidden: tuple[RankHidden, ...] = ()
    """One entry a place and slot; empty where no two ranks told of hidden states in the same step."""

    @property
    def name(self) -> str:
        """Return which group it is among those of its engine."""
        role = "" if self.serving_role == "both" else f" {self.serving_role}"
        return f"dp {self.dp} pp {self.pp}{role}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one engine in a window ending ``now``; times are unix seconds.

    ``last_received`` is when the tracer was last heard, ``None`` never. ``window`` are the ledger
    differences within the window, ``since_start`` the ledger's totals. ``counts`` sums rollups in the
    window (``None``: none arrived). ``requests`` counts requests since start by kind, ``window_requests``
    those that arrived in the window. ``dropped`` and ``hook_errors`` are the tracer's own counters since
    start; ``example_requests`` are uids of a few user requests in the window.
    """

    engine_uid: str
    name: str
    now: float
    window_s: float
    last_received: float | None
    heartbeat_s: float
    speculation: bool | None
    config: Mapping[str, Any]
    window: tuple[BoundaryState, ...]
    since_start: tuple[BoundaryState, ...]
    counts: Counts | None
    positions: tuple[tuple[int, int], ...]
    requests: Mapping[str, int]
    window_requests: Mapping[str, int]
    extends: tuple[ExtendEvidence, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    hook_errors: Mapping[str, int] = field(default_factory=dict[str, int])
    example_requests: tuple[str, ...] = ()
    reconciliation: Reconciliation = Reconciliation(0)
    ranks: tuple[RankEvidence, ...] = ()
    """One entry a group of ranks of which any was heard."""
    hidden: tuple[HiddenEvidence, ...] = ()
    """What was seen of hidden states in the window; a place without an entry was not looked at."""
    steps: StepEvidence = field(default_factory=StepEvidence)
    """What the newest verify steps of the window tell of single proposals."""
    slices: tuple[Slice, ...] = ()
    """The rollups of the window by every dimension but ``all``."""
    history: tuple[Moment, ...] = ()
    """The minutes before, oldest first: what is served now is compared with them."""
    events: tuple[Event, ...] = ()
    """Oldest first, of the history's span."""
    reference: tuple[ReferenceEvidence, ...] = ()
    """Empty: no request of the window has a reference."""
    reference_weights: tuple[ReferenceWeight, ...] = ()
    """What the tensors of that reference's draft hold; empty: it was made without one."""
    draft_states: tuple[DraftState, ...] = ()
    """What draft extends left, against a reference, by token, newest request first; empty: not known."""
    places: tuple[PlaceComparison, ...] = ()
    """Empty: no fingerprints of hidden states were told in the window."""
    hand_overs: tuple[HandOver, ...] = ()
    """Of a few of the newest requests; empty: none with fingerprints was told in the window."""
    fed_rows: tuple[FedRows, ...] = ()
    """Of a few of the newest requests, where what the draft is fed differs at all; else empty."""
    expectation: Expectation | None = None
    """What is expected of all traffic together."""
    workload_expectations: tuple[Expectation, ...] = ()
    """What is expected of single slices of it."""
    times: tuple[PassTime, ...] = ()
    """Empty: the engine's passes are not timed."""
    ended: float | None = None
    """When the last of its processes told that it ends in order; ``None``: one of them has not."""
    detail: str = ""
    """Detail level that it runs at, the lowest of its processes; empty: not told."""
    references: int = 0
    """How many references the workspace holds, whether or not they tell of this engine's requests."""


@dataclass(frozen=True, slots=True)
class Number:
    """One piece of evidence: what was measured, its value and unit, what was expected, and where it is."""

    name: str
    value: float | int | str | None
    expected: float | int | str | None = None
    unit: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Ruled:
    """A rival explanation that the evidence rules out, and by what."""

    fault: str
    by: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A named fault or observation on one engine.

    ``kind`` is the stable name of the rule (``fc_bypassed``, ``draft_silent``, ``zero_acceptance``, ...),
    ``fault_class`` F01..F24 or empty for an observation. ``sentence`` says it to a newcomer.
    """

    kind: str
    fault_class: str
    severity: str
    confidence: str
    title: str
    sentence: str
    numbers: tuple[Number, ...]
    ruled_out: tuple[Ruled, ...] = ()
    next_check: str = ""
    fix: str = ""
    boundary: str = ""
    root: str = ""
    """The ``kind`` of the finding that explains this one; empty: this is a root itself."""


@dataclass(frozen=True, slots=True)
class State:
    """The engine in one word with its reason: exactly one of the words below, and why.

    ``healthy``, ``faulty``, ``suspect``, ``idle``, ``health checks only``, ``not drafting``,
    ``speculation off``, ``tracer silent``, ``ended``, ``starting``, ``too little data``, ``not observable``.
    """

    word: str
    reason: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is said of one engine: its state and its findings, root before symptom.

    ``unknown`` names the kinds of finding that could be neither found nor excluded, and why: for these,
    a missing finding is no sign of health.
    """

    state: State
    findings: tuple[Finding, ...]
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
