"""What an adapter hands over: engine-neutral facts of one engine pass or one request.

Nothing that belongs to one engine passes this point. Records hold host values only; a value that was not
recorded is ``None``, never 0. They travel from the engine process to the exporter process as
``(tag, *fields)`` tuples of builtins through ``marshal`` (same interpreter on both sides).

The records of every pass are not frozen, though nobody changes one: a frozen dataclass sets each field
through ``object.__setattr__``, measured at 15 against 0.5 µs for 20 fields, on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, Final

Crossing = tuple[str, str, str]
"""(boundary, source, mode) as in :mod:`specscope.convention`."""

Expectation = tuple[str, str]
"""(boundary, source)."""

Ids = tuple[int, ...]

Block = tuple[bytes, int, int]
"""Whole numbers of a batch in one piece, as the engine held them: (little-endian data, bytes a number,
numbers a row). A step of 64 requests is then one copy on the engine's thread, and not hundreds of objects."""

Reals = tuple[bytes, int]
"""Real numbers of a batch in one piece: (little-endian float32 data, numbers a row); NaN: not known."""

ROOT: Final = -1
"""Parent of a draft that follows the root, the bonus token of the step before."""
ORPHAN: Final = -2
"""Parent of a draft that nothing leads to: it was verified for nothing."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine process at start or after a change of its weights.

    ``config`` is JSON-able: ``versions``, ``arguments``, ``target``, ``draft``, ``speculative``
    (algorithm, num_steps, topk, num_draft_tokens), ``capture`` (layer ids, number of aux states), ``fc``
    (in and out features), ``d2t`` (present, draft vocabulary), ``vocab_size``, ``weights`` and
    ``differences`` (see ``docs/reference/wire.md``).
    """

    TAG: ClassVar[str] = "engine"
    t_ns: int
    event: str
    model: str
    engine_name: str
    engine_version: str
    speculation: bool
    config: dict[str, Any]
    draft_ids: bytes | None = None
    """Target ids that the draft can propose, one bit an id from the lowest bit of the first byte on; none
    given: all, or not known. Stays in the exporter."""


@dataclass(frozen=True, slots=True)
class RequestStarted:
    """A request reached this process. ``trace`` is (trace id, parent span id) of its context, if one came."""

    TAG: ClassVar[str] = "request_started"
    t_ns: int
    uid: str
    rid: str
    kind: str
    arrival_ns: int
    prompt_tokens: int
    temperature: float | None = None
    max_tokens: int | None = None
    trace: tuple[int, int] | None = None
    prompt_ids: Ids | None = None
    prompt: Block | None = None
    """The same in one piece, one row: thousands of Python numbers cost the engine's thread."""


@dataclass(slots=True)
class VerifyStep:
    """One engine step that verified drafts for a batch. Tuples have one entry a live row, in batch order.

    ``accepted`` is the verifier's count of accepted drafts, before a stop or grammar cut; ``committed``
    what the request really got; ``bonus`` 1 where the target's own token followed. ``drafted_depth`` is
    the deepest drafted position (from 1), ``drafted_nodes`` the drafts in the tree without its root.
    ``draft_tokens`` hold target-vocabulary ids without the root; ``parents`` the index of each draft's
    parent in ``draft_tokens`` (or :data:`ROOT`, or :data:`ORPHAN`); ``accepted_path`` the accepted indices
    in order; ``output_ids`` what was committed. ``context`` is the length in tokens before this step.
    ``expected`` and ``crossed`` count the boundaries of this pass.

    ``roots`` are the last tokens of the contexts. ``top1`` and ``entropy`` (nats) are the draft's confidence
    at the positions from 2 on (position 1 belongs to the draft extend before), on the best branch of a tree.
    ``target_rank``, ``target_prob`` say what the target thought of the draft it refused first (0: its
    favourite) and ``draft_prob`` what the draft thought of the token that the target chose there;
    ``accepted_free`` how many drafts the target would have accepted without a grammar.
    """

    TAG: ClassVar[str] = "verify"
    t_ns: int
    step: int
    mode: str
    batch_size: int
    uids: tuple[str, ...]
    rows: Ids
    context: Ids
    drafted_depth: Ids
    drafted_nodes: Ids
    accepted: Ids
    bonus: Ids
    committed: Ids
    expected: Mapping[Expectation, int]
    crossed: Mapping[Crossing, int]
    overshoot: tuple[bool, ...] = ()
    draft_tokens: tuple[Ids, ...] | None = None
    parents: tuple[Ids, ...] | None = None
    accepted_path: tuple[Ids, ...] | None = None
    output_ids: tuple[Ids, ...] | None = None
    weight_version: int = 0
    roots: Ids | None = None
    bonus_ids: Ids | None = None
    accepted_free: Ids | None = None
    top1: tuple[tuple[float | None, ...], ...] | None = None
    entropy: tuple[tuple[float | None, ...], ...] | None = None
    target_rank: tuple[int | None, ...] | None = None
    target_prob: tuple[float | None, ...] | None = None
    draft_prob: tuple[float | None, ...] | None = None


@dataclass(slots=True)
class VerifyBatch:
    """A verify step as its batch: :mod:`specscope.expand` makes a :class:`VerifyStep` of it, in the exporter.

    One entry a row: ``prompt`` and ``before`` are the tokens of the prompt and of the output before this
    step, ``after`` those of the output after it, ``over`` whether the request had ended before (``None``:
    none had). Each row was handed ``nodes`` tokens, the root first, that reach at most ``depth`` positions
    beyond it; ``chain`` says that each follows the one before, else the tree stands in ``first_child`` and
    ``next_sibling`` (node numbers, -1: none). ``committed`` [rows, stride] starts with ``lead`` tokens that
    are no drafts, then the accepted drafts and the bonus token; the rest of a row means nothing. ``free``
    [rows, nodes] is the target's favourite at each node before a grammar was applied. Drafts ``padding`` at
    the end of a row that follow the root are placeholders, not drafts (``None``: the algorithm has none).
    ``confidence`` [2, rows, positions] are top-1 probability and entropy, ``view`` [3, rows] the target's
    rank and probability of the draft it refused and the draft's probability of the target's token. ``None``:
    not taken in this step, or not to be seen here.
    """

    TAG: ClassVar[str] = "verify_batch"
    t_ns: int
    step: int
    mode: str
    uids: tuple[str, ...]
    prompt: Ids
    before: list[int]
    after: list[int]
    accepted: list[int]
    bonus: int
    nodes: int
    depth: int
    chain: bool
    expected: Mapping[Expectation, int]
    crossed: Mapping[Crossing, int]
    over: list[bool] | None = None
    drafts: Block | None = None
    first_child: Block | None = None
    next_sibling: Block | None = None
    committed: Block | None = None
    lead: int = 0
    free: Block | None = None
    padding: int | None = None
    confidence: Reals | None = None
    view: Reals | None = None
    weight_version: int = 0


@dataclass(slots=True)
class DraftExtend:
    """One target-fed draft pass over target hidden states: after prefill or after verify.

    ``fed_width`` is the last dimension of what the draft received (0: no hidden states), ``fc_in`` that of
    the hidden states that its fc takes (``None``: the draft has no fc), ``fc_ran`` how often fc ran in this
    pass (``None``: not observable), ``aux_states`` how many aux hidden states the target handed over (0: none
    captured). ``confidence`` [2, requests] are top-1 probability and entropy (nats) of the draft token that
    this pass proposes for position 1.
    """

    TAG: ClassVar[str] = "extend"
    t_ns: int
    step: int
    after: str  # prefill | verify
    mode: str
    uids: tuple[str, ...]
    fed_width: int
    dtype: str
    aux_states: int | None
    fc_in: int | None
    fc_ran: int | None
    expected: Mapping[Expectation, int]
    crossed: Mapping[Crossing, int]
    confidence: Reals | None = None


@dataclass(slots=True)
class HiddenLook:
    """One tensor of hidden states of a batch, looked at in one place (:data:`specscope.hidden.PLACES`).

    ``data`` is float32 [rows, slots, columns], little-endian: the columns of
    :data:`specscope.tensorstats.COLUMNS` and, with ``projections``, :data:`specscope.hidden.PROJECTIONS`
    more; of request i come ``counts[i]`` rows from row ``starts[i]`` on. ``summed``: the rows of each request
    were combined already, [requests, slots, columns of :data:`specscope.tensorstats.SUMMED`]. ``same_as``
    names the place whose very tensor it was; there is no data then. ``source`` and ``draft_step`` as in
    :class:`specscope.hidden.HiddenRow`.
    """

    place: str
    source: str
    draft_step: int
    slots: int
    starts: Ids
    counts: Ids
    data: bytes = b""
    projections: bool = False
    summed: bool = False
    same_as: str = ""


@dataclass(slots=True)
class HiddenPass:
    """The hidden states of one engine pass: told before its :class:`DraftExtend`, or late, or never.

    ``after`` and ``mode`` as in :class:`DraftExtend`; ``positions`` are those of the first target-fed row of
    each request, as in :class:`specscope.hidden.HiddenRow`.
    """

    TAG: ClassVar[str] = "hidden"
    t_ns: int
    step: int
    after: str
    mode: str
    uids: tuple[str, ...]
    positions: Ids
    looks: tuple[HiddenLook, ...]


@dataclass(slots=True)
class PrefillPass:
    """A target prefill pass; each chunk of a chunked prefill is one.

    ``cached`` counts the prompt tokens that came from the prefix cache.
    """

    TAG: ClassVar[str] = "prefill"
    t_ns: int
    step: int
    uids: tuple[str, ...]
    cached: Ids
    expected: Mapping[Expectation, int]
    crossed: Mapping[Crossing, int]


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """A request ended. ``state`` is ``finished`` or ``aborted``; times in seconds, ``None`` where unknown.

    ``engine_verify_steps`` and ``engine_accepted`` are the engine's **own** counters of this request, read
    and not computed, so that ours can be held against them; ``None`` where the engine keeps none.
    """

    TAG: ClassVar[str] = "request_finished"
    t_ns: int
    uid: str
    state: str
    reason: str
    output_tokens: int
    queue_s: float | None = None
    first_token_s: float | None = None
    engine_verify_steps: int | None = None
    engine_accepted: int | None = None


@dataclass(frozen=True, slots=True)
class RankSteps:
    """Verify steps of one rank as checksums, for comparison with those of the other ranks of its group.

    ``size`` is how many ranks must agree. One entry a step: ``steps`` are engine step numbers, ``proposals``
    and ``accepts`` CRC-32 of what this rank proposed and accepted, ``None`` where it was not on the host.
    ``hidden`` are levels and fingerprints of what the draft was fed, of one row of the batch: nine whole
    numbers a slot (:data:`specscope.hidden.quantise`: the level, then the fingerprint). ``fc_out`` likewise
    of what its fc made of that row, one slot. ``None``: not taken in that step; empty: in none.
    """

    TAG: ClassVar[str] = "ranks"
    t_ns: int
    size: int
    steps: Ids
    proposals: tuple[int | None, ...]
    accepts: tuple[int | None, ...]
    hidden: tuple[Ids | None, ...] = ()
    fc_out: tuple[Ids | None, ...] = ()


Record = (
    EngineFacts
    | RequestStarted
    | VerifyStep
    | VerifyBatch
    | DraftExtend
    | HiddenPass
    | PrefillPass
    | RequestFinished
    | RankSteps
)

_TYPES: dict[str, type[Record]] = {
    t.TAG: t
    for t in (
        EngineFacts,
        RequestStarted,
        VerifyStep,
        VerifyBatch,
        DraftExtend,
        HiddenPass,
        PrefillPass,
        RequestFinished,
        RankSteps,
    )
}
_FIELDS = {tag: tuple(f.name for f in fields(t)) for tag, t in _TYPES.items()}
_VALUES = {tag: attrgetter("TAG", *names) for tag, names in _FIELDS.items()}
_MAPPINGS = {
    tag: tuple(1 + names.index(name) for name in ("expected", "crossed") if name in names)
    for tag, names in _FIELDS.items()
}
_PROMPTS = tuple(1 + _FIELDS[RequestStarted.TAG].index(name) for name in ("prompt_ids", "prompt"))
_LOOKS = 1 + _FIELDS[HiddenPass.TAG].index("looks")
_LOOK_VALUES = attrgetter(*(f.name for f in fields(HiddenLook)))


def to_tuple(record: Record) -> tuple[Any, ...]:
    """Flatten a record to ``(tag, *fields)`` of builtins that ``marshal`` takes."""
    tag = record.TAG
    values: tuple[Any, ...] = _VALUES[tag](record)
    for index in _MAPPINGS[tag]:
        if type(values[index]) is not dict:
            values = _with(values, index, dict(values[index]))
    if tag == HiddenPass.TAG:
        values = _with(values, _LOOKS, tuple([_LOOK_VALUES(one) for one in values[_LOOKS]]))
    return values


def without_prompt(started: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the tuple of a :class:`RequestStarted` without its prompt."""
    for index in _PROMPTS:
        started = _with(started, index, None)
    return started


def _with(values: tuple[Any, ...], index: int, value: object) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def from_tuple(values: tuple[Any, ...]) -> Record:
    """Rebuild a record; the inverse of :func:`to_tuple`.

    Raises:
        ValueError: the tag is unknown or the number of fields does not fit.
    """
    kind = _TYPES.get(values[0]) if values else None
    if kind is None:
        raise ValueError(f"unknown record {values[:1]!r}")
    names = _FIELDS[kind.TAG]
    if len(names) != len(values) - 1:
        raise ValueError(f"record {kind.TAG!r} has {len(values) - 1} fields, {len(names)} wanted")
    arguments: dict[str, Any] = dict(zip(names, values[1:], strict=True))
    if kind is HiddenPass:
        arguments["looks"] = tuple(HiddenLook(*look) for look in arguments["looks"])
    return kind(**arguments)
