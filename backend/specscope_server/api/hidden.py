"""Hidden states: of an engine over a window against an earlier one, and of one request, look by look."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from specscope.hidden import PROJECTIONS, HiddenRow, restore
from specscope.rollup import BUCKET_S

from specscope_server.api.common import (
    DEFAULT_WINDOW_S,
    DEFAULT_WORKSPACE,
    NO_NUL,
    Model,
    StoreOf,
    Uid,
    WindowS,
    Workspace,
    moment,
)
from specscope_server.api.errors import RESPONSES, not_found
from specscope_server.diagnosis import hidden_drift, hidden_evidence
from specscope_server.diagnosis.hidden_drift import Comparison, Drift
from specscope_server.diagnosis.hidden_evidence import HiddenEvidence
from specscope_server.store.port import Reads

router = APIRouter(tags=["hidden states"], responses=RESPONSES)

MAX_ROWS = 2000
MAX_TOKENS = 100_000
"""Numbers of single tokens in one answer."""
MAX_PLACES = 1000
"""Places in one answer; an engine has some dozens, and who makes names up shall not make pages of them."""


class PlaceModel(Model):
    """One place on the draft path: what its looks came to. A place that was not looked at is not here."""

    place: str = Field(description="target.aux_capture, draft.extend, draft.fc.in, draft.fc.out, ...")
    source: str = Field(description="target_fed or self_fed.")
    draft_step: int = Field(description="0: target-fed; from 1: the draft's own steps.")
    slot: int = Field(description="Which aux layer; 0 where there is one tensor.")
    after: str = Field(description="prefill or verify.")
    mode: str
    looks: int = Field(description="Requests times passes.")
    rows: int = Field(description="Rows of all looks.")
    mean: float | None
    rms: float | None = Field(description="sqrt of the mean square over all rows.")
    max_abs: float
    levelled: int = Field(description="Looks whose rms is finite and above 0.")
    geometric_rms: float | None = Field(description="Geometric mean of the rms of these; null: none.")
    deviation: float | None = Field(description="Its standard deviation between looks, in octaves.")
    nonfinite_per_row: float | None = Field(description="Values of a row that are NaN or infinite.")
    zero_share: float | None = Field(description="Rows that are all zero.")
    equal_share: float | None = Field(
        description="Rows that equal the row before in the same look; null: no row has one before it."
    )

    @classmethod
    def of(cls, one: HiddenEvidence) -> PlaceModel:
        """Take the evidence of one place."""
        return cls(**asdict(one))


class CarryModel(Model):
    """What a draft step makes of the size of the state that it hands on."""

    draft_step: int
    slot: int
    after: str
    mode: str
    ratio: float = Field(description="rms after draft step k + 1 over rms after draft step k.")


class ShareModel(Model):
    """A share of rows in both windows."""

    name: str
    now: float | None
    baseline: float | None
    verdict: str


class DriftModel(Model):
    """One place in both windows."""

    place: str
    source: str
    draft_step: int
    slot: int
    after: str
    mode: str
    looks: int
    baseline_looks: int
    log2_ratio: float | None = Field(
        description="log2 of now over baseline (geometric means); null: unknown."
    )
    standard_error: float | None = Field(description="Of log2_ratio, the looks taken as independent.")
    shares: list[ShareModel]
    verdict: str = Field(description="same, moved or unknown, which is not same.")
    reason: str

    @classmethod
    def of(cls, one: Drift) -> DriftModel:
        """Take the comparison of one place."""
        place, source, draft_step, slot, after, mode = one.key
        told: dict[str, Any] = asdict(one)
        told |= {"place": place, "source": source, "draft_step": draft_step, "slot": slot}
        del told["key"]
        return cls(**told, after=after, mode=mode)


class BaselineModel(Model):
    """The earlier window, whether it was healthy itself, and how each place moved since."""

    start: datetime
    end: datetime
    verify_steps: int
    acceptance_length: float | None
    healthy: bool = Field(description="False: this baseline proves nothing, for the reason given.")
    reason: str
    drifts: list[DriftModel]

    @classmethod
    def of(cls, found: Comparison, start: datetime, end: datetime) -> BaselineModel:
        """Take a comparison."""
        return cls(
            start=start,
            end=end,
            verify_steps=found.baseline_steps,
            acceptance_length=found.baseline_length,
            healthy=found.baseline_healthy,
            reason=found.baseline_reason,
            drifts=[DriftModel.of(one) for one in found.drifts[:MAX_PLACES]],
        )


class EngineHidden(Model):
    """Hidden states of an engine in a window."""

    engine_uid: str
    since: datetime
    until: datetime
    places: list[PlaceModel]
    carries: list[CarryModel]
    baseline: BaselineModel | None = Field(description="null: no baseline was asked for.")


class LookModel(Model):
    """One look at one request in one pass. null: not recorded."""

    step: int = Field(description="The engine's step number.")
    after: str
    mode: str
    place: str
    source: str
    draft_step: int
    slot: int
    position: int = Field(description="Tokens of prompt and output before that of the first row.")
    rows: int
    mean: float | None
    std: float | None
    rms: float | None
    max_abs: float | None
    nonfinite: int | None
    zero_rows: int | None
    equal_rows: int | None
    same_as: str | None = Field(description="The place whose very tensor this was: the numbers are there.")
    token_rms: list[float | None] = Field(
        description="rms of single rows, to 0.3 %; null: all zero or not finite. Empty: not recorded."
    )
    fingerprints: int = Field(description="Rows that have a fingerprint.")

    @classmethod
    def of(cls, row: HiddenRow) -> LookModel:
        """Take one row of the wire."""
        told = asdict(row)
        del told["levels"], told["fingerprints"]
        units = row.fingerprints or ()
        rms, _ = restore(row.levels or (), units)
        return cls(
            **told,
            rms=row.rms,
            token_rms=[None if math.isnan(one) else one for one in map(float, rms)],
            fingerprints=len(units) // PROJECTIONS,
        )


class RequestHiddenModel(Model):
    """Hidden states of one request, along its engine steps."""

    uid: str
    engine_uid: str
    first_step: int
    prompt_tokens: int | None
    prompt_sha256: str = Field(description="Of the prompt's ids as little-endian int32; empty: not told.")
    looks: list[LookModel]
    left_out: int = Field(description="At least so many looks of these steps are left out; ask for fewer.")


@router.get("/engines/{engine_uid}/hidden", summary="Hidden states of an engine, against an earlier time")
def get_engine_hidden(
    store: StoreOf,
    engine_uid: Uid,
    workspace: Workspace = DEFAULT_WORKSPACE,
    window_s: WindowS = DEFAULT_WINDOW_S,
    baseline_end: Annotated[
        datetime | None, Query(description="End of a time that was healthy; ISO 8601. None: no comparison.")
    ] = None,
    baseline_s: Annotated[
        int, Query(ge=60, le=30 * 86_400, description="Seconds before baseline_end that it lasted.")
    ] = DEFAULT_WINDOW_S,
) -> EngineHidden:
    """Return what was seen of hidden states in the last ``window_s`` seconds, and how it moved."""
    # Up to the end of the bucket that runs.
    until = datetime.now(UTC) + timedelta(seconds=BUCKET_S)
    since = until - timedelta(seconds=window_s + BUCKET_S)
    with store.snapshot() as reads:
        if reads.engine(workspace, engine_uid, until) is None:
            raise not_found("engine", engine_uid, "GET /api/v1/engines lists the engines of a workspace.")
        now = hidden_evidence.of(reads.hidden_stats(workspace, engine_uid, since, until))
        baseline = None
        if baseline_end is not None:
            end = moment("baseline_end", baseline_end)
            start = max(end - timedelta(seconds=baseline_s), datetime(1970, 1, 1, tzinfo=UTC))
            found = _compared(reads, workspace, engine_uid, now, start, end)
            baseline = BaselineModel.of(found, start, end)
    return EngineHidden(
        engine_uid=engine_uid,
        since=since,
        until=until,
        places=[PlaceModel.of(one) for one in now[:MAX_PLACES]],
        carries=[CarryModel(**asdict(one)) for one in hidden_evidence.carry_ratios(now)[:MAX_PLACES]],
        baseline=baseline,
    )


def _compared(
    reads: Reads,
    workspace: str,
    engine_uid: str,
    now: tuple[HiddenEvidence, ...],
    start: datetime,
    end: datetime,
) -> Comparison:
    before = hidden_evidence.of(reads.hidden_stats(workspace, engine_uid, start, end))
    counts = reads.counts(workspace, engine_uid, start, end)
    return hidden_drift.compare(now, before, counts)


@router.get("/requests/{uid}/hidden", summary="Hidden states of one request, look by look")
def get_request_hidden(
    store: StoreOf,
    uid: Uid,
    workspace: Workspace = DEFAULT_WORKSPACE,
    first_step: Annotated[int, Query(ge=0, le=1 << 31, description="Index of the first verify step.")] = 0,
    steps: Annotated[int, Query(ge=1, le=1000, description="Verify steps to tell of.")] = 100,
    place: Annotated[
        str | None, Query(max_length=64, pattern=NO_NUL, description="Only looks at this place.")
    ] = None,
    slot: Annotated[int | None, Query(ge=0, le=1023, description="Only looks at this slot.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="Looks at most.")] = MAX_ROWS,
) -> RequestHiddenModel:
    """Return the looks of ``steps`` verify steps from ``first_step`` on; from 0 on the prefill's too."""
    found = store.hidden(workspace, uid, first_step, steps, 1 << 20)
    if found is None:
        raise not_found(
            "request", uid, f"This is the request's uid; search by rid with /api/v1/requests?text={uid[:64]}."
        )
    wanted = [
        row
        for row in found.rows
        if (place is None or row.place == place) and (slot is None or row.slot == slot)
    ]
    shown = _bounded(wanted, limit)
    return RequestHiddenModel(
        uid=uid,
        engine_uid=found.request.engine_uid,
        first_step=first_step,
        prompt_tokens=found.request.prompt_tokens,
        prompt_sha256=found.prompt_sha256,
        looks=[LookModel.of(row) for row in shown],
        left_out=len(wanted) - len(shown) + found.left_out,
    )


def _bounded(rows: list[HiddenRow], limit: int) -> list[HiddenRow]:
    """Return the first rows whose tokens are not too many together, the first one in any case."""
    tokens = 0
    for index, row in enumerate(rows[:limit]):
        tokens += len(row.levels or ())
        if index and tokens > MAX_TOKENS:
            return rows[:index]
    return rows[:limit]
