"""Requests: search by keyset pages, and one request with its decoded steps."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from specscope_server.api.common import (
    DEFAULT_WORKSPACE,
    NO_NUL,
    BoundaryModel,
    EngineUid,
    Model,
    StoreOf,
    Uid,
    Workspace,
    json_safe,
    moment,
)
from specscope_server.api.errors import RESPONSES, ApiError, not_found
from specscope_server.store.model import RequestFilter, RequestRow
from specscope_server.web.verdict import judge

router = APIRouter(tags=["requests"], responses=RESPONSES)

Flag = Literal["zero_acceptance", "gap", "unfinished", "health_check"]
State = Literal["running", "finished", "aborted", "lost"]
Kind = Literal["user", "health_check", "warmup"]
MAX_PAGE = 500
MAX_STEPS = 5000


class TotalsModel(Model):
    """Running totals of a request, over its verify steps."""

    verify_steps: int
    drafted_depth: int
    drafted_nodes: int
    accepted: int
    bonus: int
    committed: int
    zero_accept_steps: int
    overshoot_steps: int
    prefill_passes: int


class EngineCountsModel(Model):
    """The engine's own counters of a request."""

    verify_steps: int
    accepted: int


class RequestModel(Model):
    """One request, summary only."""

    uid: str
    engine_uid: str
    engine: str
    model: str
    rid: str = Field(description="What the caller or engine called it; may be reused.")
    trace_id: str
    state: str = Field(description="running, finished, aborted, or lost: its process fell silent.")
    kind: str
    arrival: datetime
    end: datetime | None
    last_received: datetime
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    temperature: float | None
    max_tokens: int | None
    finish_reason: str | None
    response_id: str = Field(
        description="Id of the answer; empty: not told, on SGLang it is the rid. For one request also as "
        "another tool's span of it tells."
    )
    queue_s: float | None
    first_token_s: float | None
    acceptance_rate: float | None = Field(description="accepted / drafted_depth; null: nothing drafted.")
    acceptance_length: float | None = Field(
        description="(accepted + bonus) / verify_steps; null: no verify step."
    )
    totals: TotalsModel
    detail: str
    engine_counts: EngineCountsModel | None = Field(
        description="The engine's own counters at its end; null: not told, or not every step was seen."
    )

    @classmethod
    def of(cls, row: RequestRow) -> RequestModel:
        """Take a row of the store."""
        return cls(
            **asdict(row), acceptance_rate=row.acceptance_rate, acceptance_length=row.acceptance_length
        )


class Requests(Model):
    """One page of requests, newest arrival first."""

    items: list[RequestModel]
    next_cursor: str | None = Field(description="Pass it as ``cursor`` for the next page; null: the last.")


class VerdictModel(Model):
    """What is said of the request first, from its own counts."""

    tone: str = Field(description="ok, warn, bad or off.")
    headline: str
    reasons: list[str]


class RequestDetailModel(Model):
    """One request with its decoded steps and draft extends."""

    request: RequestModel
    first_step: int
    steps_total: int = Field(description="Verify steps stored, of which ``steps`` is a window.")
    steps: list[dict[str, Any]] = Field(
        description="One object a verify step; an absent key or null was not recorded."
    )
    extends: list[dict[str, Any]] = Field(description="One object a draft extend, likewise.")
    boundaries: list[BoundaryModel] = Field(description="This request's own ledger.")
    verdict: VerdictModel


@router.get("/requests", summary="Search requests")
def list_requests(
    store: StoreOf,
    workspace: Workspace = DEFAULT_WORKSPACE,
    text: Annotated[
        str | None,
        Query(
            max_length=512,
            pattern=NO_NUL,
            description="rid, response id, trace id or request uid, whole or its beginning; or an id, whole, "
            "that another tool's span of the request has.",
        ),
    ] = None,
    rid: Annotated[str | None, Query(max_length=512, pattern=NO_NUL, description="Exactly this rid.")] = None,
    trace_id: Annotated[
        str | None, Query(max_length=128, pattern=NO_NUL, description="Exactly this trace.")
    ] = None,
    response_id: Annotated[
        str | None,
        Query(
            max_length=512,
            pattern=NO_NUL,
            description="Exactly this id of the answer, as told by us or another tool's span, or the rid.",
        ),
    ] = None,
    engine: EngineUid = None,
    model: Annotated[
        str | None, Query(max_length=512, pattern=NO_NUL, description="Exactly this model.")
    ] = None,
    kind: Kind | None = None,
    state: State | None = None,
    flag: Annotated[Flag | None, Query(description="What is remarkable about it.")] = None,
    since: Annotated[datetime | None, Query(description="Arrived at or after; ISO 8601.")] = None,
    until: Annotated[datetime | None, Query(description="Arrived before; ISO 8601.")] = None,
    acceptance_min: Annotated[
        float | None, Query(ge=0, le=1e6, allow_inf_nan=False, description="Least acceptance length.")
    ] = None,
    acceptance_max: Annotated[
        float | None, Query(ge=0, le=1e6, allow_inf_nan=False, description="Greatest acceptance length.")
    ] = None,
    cursor: Annotated[str | None, Query(max_length=512, description="From ``next_cursor``.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
) -> Requests:
    """Return one page of the requests that match every given parameter, newest arrival first."""
    where = RequestFilter(
        workspace=workspace,
        text=text or None,
        rid=rid or None,
        trace_id=trace_id or None,
        response_id=response_id or None,
        engine_uid=engine or None,
        model=model or None,
        kind=kind,
        state=state,
        flag=flag,
        since=None if since is None else moment("since", since),
        until=None if until is None else moment("until", until),
        min_acceptance_length=acceptance_min,
        max_acceptance_length=acceptance_max,
    )
    try:
        page = store.requests(where, limit, cursor)
    except ValueError as error:
        raise ApiError(
            400, "invalid_cursor", f"cursor: {error}", "Pass next_cursor of the page before, unchanged."
        ) from error
    return Requests(items=[RequestModel.of(row) for row in page.items], next_cursor=page.next_cursor)


class DeletedRequest(Model):
    """What was deleted."""

    uid: str


@router.delete("/requests/{uid}", summary="Delete a request")
def delete_request(store: StoreOf, uid: Uid, workspace: Workspace = DEFAULT_WORKSPACE) -> DeletedRequest:
    """Delete a request with its prompt and steps; sums over many requests keep what it added to them."""
    if not store.delete_request(workspace, uid):
        raise _no_request(uid)
    return DeletedRequest(uid=uid)


@router.get("/requests/{uid}", summary="One request with its decoded steps")
def get_request(
    store: StoreOf,
    uid: Uid,
    workspace: Workspace = DEFAULT_WORKSPACE,
    first_step: Annotated[int, Query(ge=0, le=1 << 31, description="Index of the first step to return.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_STEPS, description="Steps to return at most.")] = 2000,
) -> RequestDetailModel:
    """Return one request with at most ``limit`` steps from ``first_step`` on."""
    found = store.request(workspace, uid, first_step, limit)
    if found is None:
        raise _no_request(uid)
    return RequestDetailModel(
        request=RequestModel.of(found.request),
        first_step=first_step,
        steps_total=found.steps_total,
        steps=[json_safe(step) for step in found.steps],
        extends=[json_safe(extend) for extend in found.extends],
        boundaries=[BoundaryModel.of(state) for state in found.boundaries],
        verdict=VerdictModel(**asdict(judge(found))),
    )


def _no_request(uid: str) -> ApiError:
    return not_found(
        "request", uid, f"This is the request's uid; search by rid with /api/v1/requests?text={uid[:64]}."
    )
