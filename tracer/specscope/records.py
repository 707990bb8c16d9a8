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
from typing import Any, ClassVar, Final

Crossing = tuple[str, str, str]
"""(boundary, source, mode) as in :mod:`specscope.convention`."""

Expectation = tuple[str, str]
"""(boundary, source)."""

Ids = tuple[int, ...]

ROOT: Final = -1
"""Parent of a draft that follows the root, the bonus token of the step before."""
ORPHAN: Final = -2
"""Parent of a draft that nothing leads to: it was verified for nothing."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine process at start or after a weight update.

    ``config`` is JSON-able: ``versions``, ``arguments``, ``target``, ``draft``, ``speculative``
    (algorithm, num_steps, topk, num_draft_tokens), ``capture`` (layer ids, number of aux states), ``fc``
    (in and out features), ``d2t`` (present, draft vocabulary), ``vocab_size``.
    """

    TAG: ClassVar[str] = "engine"
    t_ns: int
    event: str
    model: str
    engine_name: str
    engine_version: str
    speculation: bool
    config: dict[str, Any]


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


@dataclass(slots=True)
class HiddenStats:
    """Statistics of the hidden states fed to the draft, over ``rows`` [rows, width] of one request.

    ``rms`` = sqrt(mean(x**2)); non-finite values are left out of the others and counted; ``zero_rows``
    counts rows that are all zero.
    """

    rows: int
    mean: float
    std: float
    rms: float
    max_abs: float
    nonfinite: int
    zero_rows: int


@dataclass(slots=True)
class DraftExtend:
    """One target-fed draft pass over target hidden states: after prefill or after verify.

    ``fed_width`` is the last dimension of what the draft received, ``fc_in`` that of what its fc takes
    (``None``: the draft has no fc), ``fc_ran`` how often fc ran in this pass (``None``: not observable),
    ``aux_states`` how many aux hidden states the target handed over (0: none captured).
    ``hidden`` has one entry a request, ``None`` where not recorded.
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
    hidden: tuple[HiddenStats | None, ...]
    expected: Mapping[Expectation, int]
    crossed: Mapping[Crossing, int]


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
    """A request ended. ``state`` is ``finished`` or ``aborted``; times in seconds, ``None`` where unknown."""

    TAG: ClassVar[str] = "request_finished"
    t_ns: int
    uid: str
    state: str
    reason: str
    output_tokens: int
    queue_s: float | None = None
    first_token_s: float | None = None


Record = EngineFacts | RequestStarted | VerifyStep | DraftExtend | PrefillPass | RequestFinished

_TYPES: dict[str, type[Record]] = {
    t.TAG: t for t in (EngineFacts, RequestStarted, VerifyStep, DraftExtend, PrefillPass, RequestFinished)
}
_FIELDS = {tag: tuple(f.name for f in fields(t)) for tag, t in _TYPES.items()}
_HIDDEN_FIELDS = tuple(f.name for f in fields(HiddenStats))


def to_tuple(record: Record) -> tuple[Any, ...]:
    """Flatten a record to builtins that ``marshal`` takes."""
    values: list[Any] = [record.TAG]
    for name in _FIELDS[record.TAG]:
        value = getattr(record, name)
        if name == "hidden":
            value = tuple(None if h is None else tuple(getattr(h, f) for f in _HIDDEN_FIELDS) for h in value)
        elif name in ("expected", "crossed"):
            value = dict(value)
        values.append(value)
    return tuple(values)


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
    if kind is DraftExtend:
        arguments["hidden"] = tuple(None if h is None else HiddenStats(*h) for h in arguments["hidden"])
    return kind(**arguments)
