"""What the draft extends of a request left, each against the reference's state at its token. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from specscope import convention, hidden
from specscope.chunks import StepRow
from specscope.hidden import HiddenRow
from specscope.reference_file import Passage, Track

from specscope_server.diagnosis import relative_error
from specscope_server.diagnosis.engine_evidence import DraftState
from specscope_server.diagnosis.reference import SHIFTS
from specscope_server.diagnosis.relative_error import Array

PREFILL: Final = "prefill"
_PART: Final = 4
"""One in so many tokens of a prompt must come from the cache: of a few nobody sees the loss."""


def mostly_cached(cached: int, prompt: int) -> bool:
    """Say whether so many tokens of a prompt come from the cache that losing them would show."""
    return 0 < prompt <= cached * _PART


@dataclass(frozen=True, slots=True)
class Request:
    """What is known of the request beside its states; ``steps`` are its verify steps in order."""

    uid: str
    cached: int | None
    steps: Sequence[StepRow] = ()


def draft_states(
    rows: Iterable[HiddenRow], known: int, passage: Passage, sequence: str, request: Request
) -> list[DraftState]:
    """Return the states after draft extends at the positions below ``known``, in order of the engine's steps.

    ``known`` counts positions whose next token both sides share; ``sequence`` names the tokens, so that
    states of requests with the same tokens can be told to be of the same token.
    """
    track = next((one for one in passage.tracks if one.place == hidden.CARRY and one.slot == 0), None)
    if track is None:
        return []
    kept = [one for one in rows if _compared(one) and 0 <= one.position < min(known, len(track.rms))]
    kept.sort(key=lambda one: one.step)
    if not kept:
        return []
    levels = [(one.levels or [])[0] for one in kept]
    units = [unit for one in kept for unit in (one.fingerprints or [])]
    rms, projections = hidden.restore(levels, units)
    at = np.array([one.position for one in kept])
    most = min(known, len(track.rms))
    errors = _errors((rms, projections), track, at, most)
    beside = {shift: _errors((rms, projections), track, at + shift, most) for shift in SHIFTS}
    other = track.rms[at].astype(np.float64)
    by_step = {step.step: index for index, step in enumerate(request.steps)}
    full = np.cumsum([0, *(step.accepted == step.drafted_depth > 0 for step in request.steps)]).tolist()
    return [
        replace(
            _state(
                row,
                float(errors[n]),
                float(rms[n] / other[n]),
                by_step.get(row.step),
                full,
                sequence,
                request,
            ),
            shifted={shift: float(told[n]) for shift, told in beside.items() if np.isfinite(told[n])},
        )
        for n, row in enumerate(kept)
        if np.isfinite(errors[n])
    ]


def _errors(own: tuple[Array, Array], track: Track, at: NDArray[np.int64], most: int) -> Array:
    """Return the relative error of each row to the reference at ``at`` below ``most``; NaN: none there."""
    inside = np.flatnonzero((at >= 0) & (at < most))
    other, theirs = track.rms[at[inside]].astype(np.float64), track.projections[at[inside]].astype(np.float64)
    sound = np.isfinite(own[0][inside]) & np.isfinite(other) & (other > 0)
    rows = inside[sound]
    errors = np.full(len(at), np.nan)
    errors[rows] = relative_error.of_rows((own[0][rows], own[1][rows]), (other[sound], theirs[sound]))
    return errors


def _compared(row: HiddenRow) -> bool:
    return (
        row.place == hidden.CARRY
        and row.source == convention.TARGET_FED
        and row.draft_step == 0
        and row.slot == 0
        and len(row.levels or ()) == 1
        and len(row.fingerprints or ()) == hidden.PROJECTIONS
    )


def _state(
    row: HiddenRow,
    error: float,
    scale: float,
    index: int | None,
    full: Sequence[int],
    sequence: str,
    request: Request,
) -> DraftState:
    prefill = row.after == PREFILL
    step = request.steps[index] if index is not None and not prefill else None
    since = 0 if prefill else None if index is None else index + 1
    return DraftState(
        request=request.uid,
        sequence=sequence,
        position=row.position,
        error=error,
        scale=scale,
        after=row.after,
        mode=row.mode,
        cached=request.cached,
        row=None if step is None else step.row,
        batch=None if step is None else step.batch_size,
        since_prefill=since,
        full_accepts=None if since is None else full[since],
        committed=None if step is None else step.committed,
    )
