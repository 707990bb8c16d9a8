"""Engines: state with its reason, acceptance, ledger, findings, processes and configuration."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from specscope_server.api.common import (
    DEFAULT_WINDOW_S,
    DEFAULT_WORKSPACE,
    BoundaryModel,
    CountsModel,
    JudgeS,
    Model,
    PartsOf,
    PositionModel,
    Uid,
    WindowS,
    Workspace,
    json_safe,
    positions,
)
from specscope_server.api.errors import RESPONSES, not_found
from specscope_server.api.findings import FindingModel
from specscope_server.diagnosis import Diagnosis, diagnose
from specscope_server.diagnosis.model import Evidence, RankEvidence
from specscope_server.store.model import EngineRow

router = APIRouter(tags=["engines"], responses=RESPONSES)


class EngineModel(Model):
    """One engine: one launch of a serving deployment, all its processes together."""

    engine_uid: str
    workspace: str
    environment: str
    instance: str
    name: str
    model: str
    engine_name: str = Field(description="sglang, vllm, ...")
    engine_version: str
    speculation: bool | None = Field(description="Whether it is set to draft; null: not told yet.")
    started: datetime
    last_received: datetime
    last_request: datetime | None
    state: str = Field(
        description="healthy, faulty, suspect, idle, health checks only, not drafting, speculation off, "
        "ended, tracer silent, starting, too little data or not observable."
    )
    state_reason: str
    acceptance_length: float | None = Field(
        description="(accepted + bonus) / verify_steps in the window; null: no verify step."
    )
    acceptance_rate: float | None = Field(
        description="accepted / drafted_depth in the window; null: nothing drafted."
    )
    verify_steps: int | None = Field(description="In the window; null: no rollup arrived, which is not zero.")
    counts: CountsModel | None = Field(description="Sums over the window; null: no rollup arrived.")
    positions: list[PositionModel]
    ledger: list[BoundaryModel] = Field(description="Totals since the engine started.")
    findings: list[FindingModel]
    unknown: dict[str, str] = Field(
        description="Kinds of finding that could be neither found nor excluded, and why."
    )
    requests: dict[str, int] = Field(description="Requests since start, by kind.")
    reconciliation: ReconciliationModel | None = Field(
        description="Over the last 5 minutes, as state is; null: no evidence."
    )
    ranks: list[RanksModel] = Field(
        description="Groups of ranks that must agree, over their newest steps; empty: no group was heard."
    )


class RankHiddenModel(Model):
    """What the draft was fed in one slot, or what its fc made of that, on the ranks of a group."""

    place: str
    slot: int
    compared: int = Field(description="Steps in which two or more ranks told of it.")
    relative_error: float = Field(
        description="The largest |x - y| of a rank to the lowest one, over their root mean square; above "
        "0.05 is no rounding."
    )
    step: int = Field(description="The engine step of it.")
    rank: int = Field(description="The rank of it.")
    median: float = Field(description="The median over steps of their largest relative errors.")


class RanksModel(Model):
    """The ranks of one group held against each other, step by step."""

    dp: int
    pp: int
    serving_role: str
    size: int = Field(description="How many ranks must agree.")
    heard: list[int] = Field(description="Tensor-parallel ranks that told of their steps.")
    compared: int = Field(description="Steps that two or more of them told.")
    proposals_compared: int = Field(description="Of these, those whose proposals could be compared.")
    proposals_differ: int
    accepts_differ: int
    first_step: int | None = Field(description="The first engine step that differs; null: none does.")
    boundary: str = Field(description="Where the ranks parted in that step; empty: they did not.")
    apart: list[int] = Field(description="The ranks that left the others in that step.")
    hidden: list[RankHiddenModel] = Field(
        description="Hidden states by slot; empty: no two ranks told of them in the same step."
    )

    @classmethod
    def of(cls, group: RankEvidence) -> RanksModel:
        """Take one group."""
        values = asdict(group)
        return cls(**{name: values[name] for name in cls.model_fields})


class ReconciliationModel(Model):
    """Our totals of requests against the engine's own counters of them."""

    compared: int = Field(description="Of the newest 1000 requests that ended, those seen whole.")
    differing: int = Field(description="Requests whose totals differ; each is a lie of one of the two.")
    not_compared: dict[str, int] = Field(description="The others of the newest 1000, by reason.")

    @classmethod
    def of(cls, evidence: Evidence | None) -> ReconciliationModel | None:
        """Take what the evidence says."""
        if evidence is None:
            return None
        told = evidence.reconciliation
        return cls(
            compared=told.compared, differing=len(told.differing), not_compared=dict(told.not_compared)
        )


class ProcessModel(Model):
    """One process of an engine with what it last said of itself."""

    process_uid: str
    role: str
    pid: int
    started: datetime
    tp: int
    dp: int
    pp: int
    serving_role: str
    detail: str = Field(description="Level of detail it sends: summary, steps, tokens or full.")
    tracer_version: str
    last_event: datetime
    last_received: datetime
    clock_skewed: bool = Field(description="Its clock is more than five minutes off the server's.")
    requests: dict[str, int]
    dropped: dict[str, int] = Field(description="Records the tracer lost, by reason.")
    hook_errors: dict[str, int]
    queued: int | None
    export_failures: int | None


class EventModel(Model):
    """A start, or a change of weights, as one process told it."""

    at: datetime
    event: str = Field(
        description="start, weight_update, lora_load, lora_unload, memory_release or memory_resume."
    )
    process_uid: str
    weight_version: int | None = Field(description="Version of the weights from then on; null: not told.")
    detail: dict[str, Any] = Field(
        description="What the change was: how it came, success, message, seconds, changed (tensors)."
    )


class EngineDetail(EngineModel):
    """One engine with its processes, configuration and events."""

    processes: list[ProcessModel]
    config: dict[str, Any] = Field(
        description="As last reported; weights: the inventory of draft and target, differences: where "
        "checkpoint, draft and target differ."
    )
    events: list[EventModel] = Field(description="The newest, newest first.")


class Engines(Model):
    """All engines of the workspace."""

    items: list[EngineModel]
    window_s: int


def _fields(row: EngineRow, evidence: Evidence | None, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return what both endpoints tell."""
    counts = None if row.counts is None else CountsModel.of(row.counts)
    return {
        "engine_uid": row.engine_uid,
        "workspace": row.workspace,
        "environment": row.environment,
        "instance": row.instance,
        "name": row.name,
        "model": row.model,
        "engine_name": row.engine_name,
        "engine_version": row.engine_version,
        "speculation": row.speculation,
        "started": row.started,
        "last_received": row.last_received,
        "last_request": row.last_request,
        "state": diagnosis.state.word,
        "state_reason": diagnosis.state.reason,
        "acceptance_length": counts and counts.acceptance_length,
        "acceptance_rate": counts and counts.acceptance_rate,
        "verify_steps": counts and counts.verify_steps,
        "counts": counts,
        "positions": positions(row.positions),
        "ledger": [BoundaryModel.of(state) for state in row.ledger],
        "findings": [FindingModel.of(finding) for finding in diagnosis.findings],
        "unknown": dict(diagnosis.unknown),
        # As the state was judged by: the row's own counter may lag behind the requests that were told.
        "requests": dict(evidence.requests if evidence else row.requests),
        "reconciliation": ReconciliationModel.of(evidence),
        "ranks": [RanksModel.of(group) for group in (evidence.ranks if evidence else ())],
    }


@router.get("/engines", summary="Engines with state, acceptance, ledger and findings")
def list_engines(
    parts: PartsOf,
    workspace: Workspace = DEFAULT_WORKSPACE,
    window_s: WindowS = DEFAULT_WINDOW_S,
    judge_s: JudgeS = None,
) -> Engines:
    """Return every engine of the workspace; its counts are over the last ``window_s`` seconds.

    State and findings are as of now where the engine told anything new, else at most 10 s old (60 s where its
    tracer is silent, or nothing is left in the window).
    """
    now = datetime.now(UTC)
    with parts.store.snapshot() as reads:
        rows = reads.engines(workspace, now - timedelta(seconds=window_s))
        judged = parts.lately.judged(reads, rows, now, float(judge_s or parts.settings.judge_s))
    items = [EngineModel(**_fields(row, *judged[row.engine_uid])) for row in rows]
    return Engines(items=items, window_s=window_s)


@router.get("/engines/{engine_uid}", summary="One engine with its processes and configuration")
def get_engine(
    parts: PartsOf,
    engine_uid: Uid,
    workspace: Workspace = DEFAULT_WORKSPACE,
    window_s: WindowS = DEFAULT_WINDOW_S,
    judge_s: JudgeS = None,
) -> EngineDetail:
    """Return one engine; its counts are over the last ``window_s`` seconds."""
    now = datetime.now(UTC)
    with parts.store.snapshot() as reads:
        row = reads.engine(workspace, engine_uid, now - timedelta(seconds=window_s))
        if row is None:
            raise not_found("engine", engine_uid, "GET /api/v1/engines lists the engines of a workspace.")
        evidence = reads.evidence(workspace, engine_uid, now, judge_s or parts.settings.judge_s)
        told = _fields(row, evidence, diagnose(evidence))
    return EngineDetail(
        **told,
        processes=[ProcessModel(**asdict(process)) for process in row.processes],
        config=json_safe(row.config),
        events=[
            EventModel(
                at=one.at,
                event=one.event,
                process_uid=one.process_uid,
                weight_version=one.weight_version,
                detail=json_safe(one.detail),
            )
            for one in row.events
        ],
    )
