"""What is known of an engine beside its verify steps: slices, history, events, references, expectation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specscope.rollup import Counts


@dataclass(frozen=True, slots=True)
class Slice:
    """Counts of the window in one slice of one dimension of the rollups, by position where they have it."""

    dimension: str
    value: str
    counts: Counts
    positions: tuple[tuple[int, int], ...] = ()
    """[drafted, accepted] from position 0 on; empty where the dimension is not counted by position."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Counts of one minute of the past; ``start`` in unix seconds. A minute without steps has none."""

    start: int
    counts: Counts
    positions: tuple[tuple[int, int], ...] = ()
    mix: Mapping[str, int] = field(default_factory=dict[str, int])
    """Steps by ``dimension=value`` of context, temperature and copy_like: which traffic it was."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to the engine at ``at`` (unix seconds): a start, an update of weights or settings."""

    at: float
    name: str
    process_uid: str
    weight_version: int | None = None
    changed: tuple[str, ...] = ()
    """What it changed: ``draft weights``, ``target weights``, or the name of a field of the configuration."""
    renamed: tuple[str, ...] = ()
    """Tensors of the draft that it wrote from other names of a checkpoint than they came from before."""


@dataclass(frozen=True, slots=True)
class ReferenceEvidence:
    """What the draft was fed, held against a plain forward of the target on the same tokens.

    ``relative_error`` is sqrt(sum |x - y|^2 / sum |y|^2) over ``rows`` tokens at ``place`` and ``slot``;
    ``scale`` the ratio of their root mean squares, ``cosine`` what these two leave: sum <x, y> over both
    sizes. ``shifted`` is the error against the reference of the token before (offset -1) and after (+1).
    ``other_slots``: error against the reference of every other slot, so that a wrong order names itself.
    ``reference`` is its uid.
    """

    place: str
    slot: int
    rows: int
    relative_error: float
    scale: float | None = None
    cosine: float | None = None
    shifted: Mapping[int, float] = field(default_factory=dict[int, float])
    other_slots: Mapping[int, float] = field(default_factory=dict[int, float])
    reference: str = ""
    after: str = ""
    """In passes after a ``prefill`` or a ``verify`` alone; empty: in all of them."""


@dataclass(frozen=True, slots=True)
class DraftState:
    """What one draft extend left for the first draft step, against the reference's state at the same token.

    ``error`` is the relative error of that one token, ``scale`` the ratio of the root mean squares. A sound
    draft's state is a function of the tokens alone, so nothing else here may matter to it: ``after`` a
    ``prefill`` or a ``verify``, in which ``mode`` (eager or graph), how many tokens of the prompt were
    ``cached``, in which ``row`` of a ``batch`` of how many its verify step ran, how many verify steps
    (``since_prefill``) came before in the request and how many of them accepted all (``full_accepts``).
    ``None``: not told. ``sequence`` names the reference's sequence: with it and ``position`` the very token.
    ``shifted`` is the error against the reference's state of the token before (offset -1) and after (+1), and
    ``committed`` how many tokens the verify step committed.
    """

    request: str
    sequence: str
    position: int
    error: float
    scale: float
    after: str
    mode: str = ""
    cached: int | None = None
    row: int | None = None
    batch: int | None = None
    since_prefill: int | None = None
    full_accepts: int | None = None
    shifted: Mapping[int, float] = field(default_factory=dict[int, float])
    committed: int | None = None


@dataclass(frozen=True, slots=True)
class ReferenceWeight:
    """What a tensor of the reference's draft holds (:class:`specscope.reference_file.Weight`).

    ``source`` are the names of the checkpoint that make it up, ``hashes`` its hash in the types that an
    engine may hold it in.
    """

    source: tuple[str, ...]
    shape: tuple[int, ...]
    hashes: tuple[str, ...]
    mean: float
    std: float
    max_abs: float


@dataclass(frozen=True, slots=True)
class Referred:
    """What references say of the requests of a window."""

    reference: tuple[ReferenceEvidence, ...] = ()
    draft_states: tuple[DraftState, ...] = ()
    weights: tuple[ReferenceWeight, ...] = ()
    hand_overs: tuple[HandOver, ...] = ()
    """What needs no reference, of the requests that were read for it: more of them than else."""


@dataclass(frozen=True, slots=True)
class PlaceComparison:
    """What one place of the draft path held, against another place of the very same passes, row by row.

    Needs no reference, but fingerprints (detail ``full``). ``relative_error`` is sqrt(sum |x - y|^2 /
    sum |y|^2) of ``rows`` rows x at ``place`` and y at ``other``, in ``slot``, in passes ``after`` a
    ``prefill`` or a ``verify``; ``scale`` the ratio of their root mean squares. ``shifted``: likewise with y
    of the token before (-1) and after (+1). What is told as the very tensor of ``other`` has the error 0.
    """

    place: str
    other: str
    slot: int
    after: str
    rows: int
    relative_error: float
    scale: float | None = None
    shifted: Mapping[int, float] = field(default_factory=dict[int, float])


@dataclass(frozen=True, slots=True)
class FedRows:
    """What the draft was fed after verify steps of one request, where its steps ran in one place of batches.

    Rows of all slots, each held against what the target packed in the same pass: ``right`` are copies,
    ``wrong`` others. ``row`` of a ``batch`` of how many requests, ``mode`` eager or graph.
    """

    request: str
    row: int
    batch: int
    mode: str
    right: int
    wrong: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """What a proposal started from, held against what the draft extend before it left at the same token.

    Both are of one request and the very same state, so that ``relative_error`` is 0 where it was kept as it
    was; ``scale`` is the ratio of the root mean squares. ``after``: what the draft extend followed, a
    ``prefill`` or a ``verify``. Needs fingerprints (detail ``full``), no reference.
    """

    request: str
    position: int
    after: str
    relative_error: float
    scale: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is promised of a draft: from training (``declared``), or a confirmed period (``learned``).

    ``per_position`` are conditional acceptance probabilities from position 0: accepted at it, of those
    whose predecessor was. ``steps`` is how many steps it was learned from (0: declared). ``floor`` is the
    acceptance length below which an alert is wanted whatever is served.
    """

    source: str
    per_position: tuple[float, ...]
    steps: int = 0
    floor: float | None = None
    who: str = ""
    said: float = 0.0
    """When, in unix seconds."""
    workload: str = ""
    """The slice of the rollups that it holds of, as ``dimension=value``; empty: all traffic together."""


@dataclass(frozen=True, slots=True)
class PassTime:
    """Time of passes of one kind (``convention.PASS_KINDS``) at one batch size, in ms.

    ``batch_size`` is the least of a power-of-two slice; ``engine`` who told it, empty: the engine itself.
    """

    kind: str
    batch_size: int
    passes: int
    mean_ms: float
    engine: str = ""
