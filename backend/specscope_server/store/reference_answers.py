"""How far an engine's hidden states are from those of a reference: one request, or its newest ones together.

What the API, the pages and the evidence are made from. Where nothing can be compared the answer says why:
that is no statement about the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast

import numpy as np
from specscope import convention
from specscope.reference_file import ReferenceFileError

from specscope_server.diagnosis.carry_rows import Request, draft_states, mostly_cached
from specscope_server.diagnosis.engine_evidence import DraftState, HandOver
from specscope_server.diagnosis.facts import setting
from specscope_server.diagnosis.hand_over_pairs import hand_overs
from specscope_server.diagnosis.reference import (
    Pairs,
    SlotComparison,
    common_prefix,
    compare,
    compare_by_pass,
    conclude,
    known_ids,
)
from specscope_server.diagnosis.reference_fit import misfits
from specscope_server.store.model import (
    ReferenceRow,
    ReferenceSequence,
    RequestFilter,
    RequestHidden,
    RequestRow,
)
from specscope_server.store.port import Reads

MAX_REFERENCES: Final = 16
"""References looked at, the newest ones that fit the engine."""
MAX_REQUESTS: Final = 20
"""Requests of an engine looked at, the newest ones."""
MAX_LOOKED_THROUGH: Final = 100
"""Requests among which those are chosen."""
MIN_OF_KIND: Final = 8
"""Requests with a cached prefix, and without one, that are looked at where there are so many."""
MAX_STEPS: Final = 1024
MAX_ROWS: Final = 20_000
"""Verify steps and rows of hidden states of one request looked at, the first ones."""

NO_REFERENCE: Final = "no_reference"
NO_FIT: Final = "no_fit"
NO_REQUEST: Final = "no_request"
NO_FINGERPRINTS: Final = "no_fingerprints"
NO_PROMPT: Final = "no_prompt"
NO_SHARED_TOKENS: Final = "no_shared_tokens"
UNREADABLE: Final = "unreadable"
NOT_COMPARED: Final = (
    *(NO_REFERENCE, NO_FIT, NO_REQUEST, NO_FINGERPRINTS, NO_PROMPT, NO_SHARED_TOKENS),
    UNREADABLE,
)


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """What the comparison gives. ``code`` (of :data:`NOT_COMPARED`) and ``reason``: why nothing; else empty.

    ``requests`` were compared, over ``shared_tokens`` tokens that they share with ``sequences`` of
    ``reference``; ``left_out`` counts requests that were not, by code. ``aux_layers`` are those that the
    engine says it captures, counted as the reference's; ``None``: not told.
    """

    code: str = ""
    reason: str = ""
    reference: ReferenceRow | None = None
    sequences: tuple[str, ...] = ()
    requests: int = 0
    shared_tokens: int = 0
    slots: tuple[SlotComparison, ...] = ()
    by_pass: tuple[SlotComparison, ...] = ()
    """Of passes after a prefill, and after a verify, alone; of engines."""
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    aux_layers: tuple[int, ...] | None = None
    draft_states: tuple[DraftState, ...] = ()
    """Of an engine: what its draft extends left, newest request first."""
    hand_overs: tuple[HandOver, ...] = ()
    """Of an engine: what its proposals started from beside it, likewise."""
    since: datetime | None = None
    """Of an engine: when the first of the compared requests arrived."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    reference: ReferenceRow
    sequences: Sequence[ReferenceSequence]


@dataclass(frozen=True, slots=True)
class _Compared:
    reference: ReferenceRow
    sequence: str
    shared: int
    pairs: Sequence[Pairs]
    by_pass: Sequence[Pairs]
    states: Sequence[DraftState]
    handed: Sequence[HandOver]
    arrival: datetime


class _NothingError(Exception):
    """Why nothing was compared: code and reason."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def of_request(
    reads: Reads, workspace: str, uid: str, engine_uid: str | None = None
) -> ReferenceAnswer | None:
    """Return the comparison of one request; ``None`` when there is no such request.

    Who knows the request's engine tells it: then its hidden states are read only if a reference fits.
    """
    found = None
    if engine_uid is None:
        found = reads.hidden(workspace, uid, 0, MAX_STEPS, MAX_ROWS)
        if found is None:
            return None
        engine_uid = found.request.engine_uid
    config = _config(reads, workspace, engine_uid)
    layers = _captured(config)
    try:
        if found is not None:
            _with_fingerprints(found)
        candidates = _candidates(reads, workspace, config)
        if found is None:
            found = reads.hidden(workspace, uid, 0, MAX_STEPS, MAX_ROWS)
            if found is None:
                return None
            _with_fingerprints(found)
        compared = _compared(reads, workspace, found, candidates)
    except _NothingError as nothing:
        return ReferenceAnswer(nothing.code, nothing.reason, aux_layers=layers)
    return ReferenceAnswer(
        reference=compared.reference,
        sequences=(compared.sequence,),
        requests=1,
        shared_tokens=compared.shared,
        slots=tuple(conclude(one) for one in compared.pairs),
        aux_layers=layers,
    )


def of_engine(
    reads: Reads, workspace: str, engine_uid: str, since: datetime | None = None
) -> ReferenceAnswer | None:
    """Return the comparison of an engine's newest requests of users; ``None`` when there is no such engine.

    Of those alone that arrived from ``since`` on, by the engine's clock, where it is told. All are held
    against one reference: that of the newest request which shares tokens with one.
    """
    engine = reads.engine(workspace, engine_uid, datetime.now(UTC))
    if engine is None:
        return None
    layers = _captured(engine.config)
    try:
        candidates = _candidates(reads, workspace, engine.config)
    except _NothingError as nothing:
        return ReferenceAnswer(nothing.code, nothing.reason, aux_layers=layers)
    where = RequestFilter(workspace, engine_uid=engine_uid, kind=convention.KIND_USER, since=since)
    compared: list[_Compared] = []
    reasons: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for request in _chosen(reads.requests(where, MAX_LOOKED_THROUGH).items):
        found = reads.hidden(workspace, request.uid, 0, MAX_STEPS, MAX_ROWS)
        if found is None:
            continue
        chosen = compared[0].reference.reference_uid if compared else None
        fitting = [one for one in candidates if chosen in (None, one.reference.reference_uid)]
        try:
            _with_fingerprints(found)
            compared.append(_compared(reads, workspace, found, fitting))
        except _NothingError as nothing:
            reasons.setdefault(nothing.code, nothing.reason)
            left_out[nothing.code] += 1
    if not compared:
        code = next(iter(reasons), NO_REQUEST)
        reason = reasons.get(code, "no request of a user has reached this engine")
        return ReferenceAnswer(code, reason, left_out=left_out, aux_layers=layers)
    return ReferenceAnswer(
        reference=compared[0].reference,
        sequences=tuple(dict.fromkeys(one.sequence for one in compared)),
        requests=len(compared),
        shared_tokens=sum(one.shared for one in compared),
        slots=tuple(conclude(one) for one in _added(one.pairs for one in compared)),
        by_pass=tuple(conclude(one) for one in _added(one.by_pass for one in compared)),
        left_out=left_out,
        aux_layers=layers,
        draft_states=tuple(state for one in compared for state in one.states),
        hand_overs=tuple(handed for one in compared for handed in one.handed),
        since=min(one.arrival for one in compared),
    )


def _chosen(requests: Sequence[RequestRow]) -> list[RequestRow]:
    """Return the newest requests, and of those before as many as are wanted with and without a cached prefix.

    What is cached decides which faults of a draft's cache can show, and the newest may all be of one kind.
    A loss shows best at the same tokens, cold and cached: prompts as long as one of the other kind go first.
    """
    chosen = list(requests[:MAX_REQUESTS])
    kinds = {True: list[RequestRow](), False: list[RequestRow]()}
    for one in requests:
        if one.cached_tokens is not None and one.prompt_tokens:
            kinds[mostly_cached(one.cached_tokens, one.prompt_tokens)].append(one)
    for cached, alike in kinds.items():
        lengths = {one.prompt_tokens for one in chosen if one in kinds[not cached]}
        twins_first = sorted(alike, key=lambda one: one.prompt_tokens not in lengths)
        chosen += [one for one in twins_first[:MIN_OF_KIND] if one not in chosen]
    return chosen


def _config(reads: Reads, workspace: str, engine_uid: str) -> Mapping[str, Any]:
    engine = reads.engine(workspace, engine_uid, datetime.now(UTC))
    return {} if engine is None else engine.config


def _captured(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    ids: object = setting(config, "capture", "layer_ids")
    if not isinstance(ids, list) or not all(type(one) is int for one in cast("list[object]", ids)):
        return None
    return tuple(cast("list[int]", ids))


def _candidates(reads: Reads, workspace: str, config: Mapping[str, Any]) -> list[_Candidate]:
    """Return the newest references that fit an engine.

    Raises:
        _NothingError: there is none.
    """
    references = reads.references(workspace)
    if not references:
        raise _NothingError(
            NO_REFERENCE,
            "this workspace has no reference; make one with: specscope fingerprint --target DIR "
            "--prompts FILE --out FILE --send URL",
        )
    why = ""
    fitting: list[_Candidate] = []
    for one in references:
        wrong = misfits(one.facts, config)
        why = why or ("; ".join(wrong) and f"{one.name!r}: {'; '.join(wrong)}")
        if not wrong and len(fitting) < MAX_REFERENCES:
            sequences = reads.reference_sequences(workspace, one.reference_uid)
            fitting.append(_Candidate(one, sequences))
    if not fitting:
        raise _NothingError(NO_FIT, f"no reference fits this engine; the newest, {why}")
    return fitting


def _with_fingerprints(found: RequestHidden) -> None:
    """Check that a request can be compared at all.

    Raises:
        _NothingError: it was recorded without fingerprints, or without its prompt.
    """
    level = found.request.detail
    if not any(row.fingerprints for row in found.rows):
        raise _NothingError(
            NO_FINGERPRINTS,
            f"no fingerprints of hidden states were recorded (detail level {level or 'not told'}): "
            f"they are at level {convention.DETAIL_FULL}",
        )
    if not found.prompt_ids:
        raise _NothingError(
            NO_PROMPT,
            f"the prompt's token ids were not recorded (detail level {level or 'not told'}), so nobody knows "
            "which tokens the states belong to",
        )


def _compared(
    reads: Reads, workspace: str, found: RequestHidden, candidates: Sequence[_Candidate]
) -> _Compared:
    """Return the comparison with the sequence that shares most tokens; of equals that of the newest.

    Raises:
        _NothingError: none shares any, or the one that does cannot be read.
    """
    ids = known_ids(found.prompt_ids or (), found.output_ids)
    own = np.array(ids, dtype=np.int64)
    best: tuple[int, _Candidate, ReferenceSequence] | None = None
    for candidate in candidates:
        for sequence in candidate.sequences:
            shared = common_prefix(own, sequence.ids)
            if shared > (0 if best is None else best[0]):
                best = shared, candidate, sequence
    if best is None:
        raise _NothingError(
            NO_SHARED_TOKENS,
            "no sequence of a fitting reference starts with the first token of this prompt: make one of it",
        )
    shared, candidate, sequence = best
    stored = reads.reference_numbers(workspace, candidate.reference.reference_uid, sequence.number)
    try:
        if stored is None:
            raise ReferenceFileError("it was deleted meanwhile")
        passage = stored.passage()
    except ReferenceFileError as error:
        raise _NothingError(
            UNREADABLE, f"reference {candidate.reference.name!r} cannot be read: {error}"
        ) from error
    same_as = cast("Mapping[str, str]", candidate.reference.facts.get("same_as") or {})
    pairs = compare(found.rows, ids, passage, same_as)
    by_pass = compare_by_pass(found.rows, ids, passage, same_as)
    # Of requests that follow one sequence, the tokens at a position are the same.
    states = draft_states(
        found.rows,
        shared - 1,
        passage,
        str(sequence.number),
        Request(found.request.uid, found.request.cached_tokens, found.steps),
    )
    handed = hand_overs(found.rows, found.request.uid)
    return _Compared(
        candidate.reference, sequence.name, shared, pairs, by_pass, states, handed, found.request.arrival
    )


def _added(of_requests: Iterable[Sequence[Pairs]]) -> list[Pairs]:
    """Return the sums over requests, by place, slot and kind of pass, in order of the path."""
    sums: dict[tuple[str, int, str], Pairs] = {}
    for pairs in (pairs for one in of_requests for pairs in one):
        key = pairs.place, pairs.slot, pairs.after
        before = sums.get(key)
        if before is None:
            sums[key] = pairs
        elif len(before.against) == len(pairs.against):
            sums[key] = before + pairs
    return list(sums.values())
