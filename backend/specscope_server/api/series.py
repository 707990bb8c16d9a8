"""Acceptance over time, by slice and position, from rollups."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from specscope.rollup import ALL, POSITION_DIMENSIONS

from specscope_server.api.common import (
    DEFAULT_WORKSPACE,
    NO_NUL,
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
from specscope_server.store.sliced import MOST, SLICES

router = APIRouter(tags=["series"], responses=RESPONSES)

MAX_BUCKETS = 5000
MAX_SLICED_BUCKETS = 500
"""Points of one answer: of one slice, and of each of many."""

Dimension = Literal["all", "context", "row", "batch", "mode", "cached", "temperature", "copy_like"]


class PointModel(Model):
    """Sums of one bucket, of one slice."""

    start: datetime
    slice: str = Field(description="Which slice of the dimension; empty for dimension all, which has none.")
    counts: CountsModel
    positions: list[PositionModel] = Field(
        description="From the first draft position on; empty for dimensions that are not counted by position."
    )


class Series(Model):
    """Acceptance over time. A bucket without data is left out: a gap is no zero."""

    items: list[PointModel] = Field(description="By start, then by slice.")
    since: datetime
    until: datetime
    bucket_s: int
    dimension: str
    slices: list[str] = Field(description="Slices with data, smallest first; empty for dimension all.")
    left_out: int = Field(description=f"Slices beyond {MOST}, those with fewest steps: not in the answer.")


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
    dimension: Annotated[Dimension, Query(description="What to slice by; all does not.")] = "all",
    only: Annotated[
        str | None,
        Query(alias="slice", max_length=128, pattern=NO_NUL, description="Only this slice of the dimension."),
    ] = None,
    position: Annotated[
        int | None, Query(ge=1, le=1024, description="Only this draft position, from 1 on.")
    ] = None,
) -> Series:
    """Return the sums of each bucket from ``since`` on, up to and without ``until``."""
    end = datetime.now(UTC) if until is None else moment("until", until)
    start = end - timedelta(hours=1) if since is None else moment("since", since)
    if start >= end:
        raise ApiError(400, "invalid_parameter", "since is not before until.", "Swap them.")
    _check(dimension, only, position)
    most = MAX_BUCKETS if dimension == ALL or only is not None else MAX_SLICED_BUCKETS
    if (end - start).total_seconds() / bucket > most:
        raise ApiError(
            400,
            "too_many_points",
            f"That would be more than {most} points of a slice.",
            "Widen bucket, shorten the time or ask for one slice.",
        )
    index = None if position is None else position - 1
    found = store.sliced(workspace, engine or None, start, end, bucket, dimension, only, index)
    items = [
        PointModel(
            start=point.start,
            slice=name,
            counts=CountsModel.of(point.counts),
            positions=[p for p in positions(point.positions) if position in (None, p.position)],
        )
        for name, points in found.series.items()
        for point in points
    ]
    return Series(
        # Stable: within a bucket the slices stay in their order.
        items=sorted(items, key=lambda item: item.start),
        since=start,
        until=end,
        bucket_s=bucket,
        dimension=dimension,
        slices=[name for name in found.series if dimension != ALL],
        left_out=found.left_out,
    )


def _check(dimension: Dimension, only: str | None, position: int | None) -> None:
    """Refuse what no answer could hold: an empty one would look like no data.

    Raises:
        ApiError: 400, the dimension has no such slice or is not counted by position.
    """
    known = SLICES[dimension]
    if only is not None and only not in known:
        hint = f"Known are {', '.join(known[:6])}{', ...' if len(known) > 6 else ''}." if known else ""
        raise ApiError(
            400,
            "invalid_parameter",
            f"slice: dimension {dimension} has no slice {only!r}",
            hint or "Leave slice out, or name a dimension.",
        )
    if position is not None and dimension not in POSITION_DIMENSIONS:
        raise ApiError(
            400,
            "invalid_parameter",
            f"position: dimension {dimension} is not counted by position",
            f"Those are: {', '.join(POSITION_DIMENSIONS)}.",
        )
