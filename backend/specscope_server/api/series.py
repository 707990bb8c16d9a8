"""Acceptance over time, from rollups."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from specscope_server.api.common import (
    DEFAULT_WORKSPACE,
    CountsModel,
    EngineUid,
    Model,
    PositionModel,
    StoreOf,
    Workspace,
    moment,
    positions,
)
from specscope_server.api.errors import RESPONSES, ApiError

router = APIRouter(tags=["series"], responses=RESPONSES)

MAX_BUCKETS = 5000


class PointModel(Model):
    """Sums of one bucket."""

    start: datetime
    counts: CountsModel
    positions: list[PositionModel]


class Series(Model):
    """Acceptance over time. A bucket without data is left out: a gap is no zero."""

    items: list[PointModel]
    since: datetime
    until: datetime
    bucket_s: int


@router.get("/series", summary="Acceptance over time")
def get_series(
    store: StoreOf,
    workspace: Workspace = DEFAULT_WORKSPACE,
    engine: EngineUid = None,
    since: Annotated[datetime | None, Query(description="ISO 8601; default an hour before until.")] = None,
    until: Annotated[datetime | None, Query(description="ISO 8601; default now.")] = None,
    bucket: Annotated[
        int, Query(ge=10, le=86_400, multiple_of=10, description="Seconds of one point, a multiple of 10.")
    ] = 10,
) -> Series:
    """Return the sums of each bucket from ``since`` on, up to and without ``until``."""
    end = datetime.now(UTC) if until is None else moment("until", until)
    start = end - timedelta(hours=1) if since is None else moment("since", since)
    if start >= end:
        raise ApiError(400, "invalid_parameter", "since is not before until.", "Swap them.")
    if (end - start).total_seconds() / bucket > MAX_BUCKETS:
        raise ApiError(
            400,
            "too_many_points",
            f"That would be more than {MAX_BUCKETS} points.",
            "Widen bucket or shorten the time.",
        )
    points = store.series(workspace, engine or None, start, end, bucket)
    return Series(
        items=[
            PointModel(start=p.start, counts=CountsModel.of(p.counts), positions=positions(p.positions))
            for p in points
        ],
        since=start,
        until=end,
        bucket_s=bucket,
    )
