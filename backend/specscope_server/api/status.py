"""The server itself: is it up, and what did the receiver do."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import Field
from specscope.version import __version__

from specscope_server.api.common import Model, PartsOf, StoreOf
from specscope_server.api.errors import RESPONSES
from specscope_server.auth.gate import caller_of
from specscope_server.auth.model import ALL_WORKSPACES, ANYBODY, Role
from specscope_server.ingest import scrape
from specscope_server.ingest.scrape import Ingest, Times

router = APIRouter(tags=["status"], responses=RESPONSES)
health = APIRouter(tags=["status"], responses=RESPONSES)


class SignalModel(Model):
    """What became of the exports of one signal and of their items, since the server started."""

    exports: int = Field(description="Exports acknowledged.")
    bytes: int = Field(description="Bytes of these exports, as sent.")
    accepted: int
    rejected: int
    rejected_by_reason: dict[str, int] = Field(description="The same by class of reason.")
    foreign: int = Field(
        description="Other tools' spans and log records (kept apart, within bounds) and metrics (not kept)."
    )

    @classmethod
    def of(cls, told: Ingest, signal: str) -> SignalModel:
        """Take the numbers of one signal."""
        rejected = told.rejected_of(signal)
        return cls(
            exports=told.exports.get(signal, 0),
            bytes=told.bytes.get(signal, 0),
            accepted=told.accepted.get(signal, 0),
            rejected=sum(rejected.values()),
            rejected_by_reason=rejected,
            foreign=told.foreign.get(signal, 0),
        )


class TimesModel(Model):
    """Seconds that something took, from a histogram: half of them took at most ``p50_s``."""

    count: int
    mean_s: float | None = Field(description="null: nothing was counted.")
    p50_s: float | None = Field(description="Bound of a bucket; null: nothing counted, or beyond the last.")
    p99_s: float | None

    @classmethod
    def of(cls, times: Times) -> TimesModel:
        """Take a histogram."""
        return cls(
            count=times.count,
            mean_s=times.total_s / times.count if times.count else None,
            p50_s=_finite(times.quantile(0.5)),
            p99_s=_finite(times.quantile(0.99)),
        )


class ReasonModel(Model):
    """Why something was rejected or refused."""

    reason: str
    times: int
    last: datetime


class IngestModel(Model):
    """The receivers of all workers since the first of them started."""

    started: datetime
    traces: SignalModel = Field(description="Items are spans.")
    metrics: SignalModel = Field(description="Items are points.")
    logs: SignalModel = Field(description="Items are log records.")
    refused: dict[str, int] = Field(description="Exports refused whole, by HTTP status or gRPC code.")
    last_reason: str = Field(description="Why something was last rejected or refused; empty: never.")
    last_reason_at: datetime | None
    reasons: list[ReasonModel] = Field(description="The last different reasons, newest first.")
    waiting: int = Field(description="Exports waiting for their commit now.")
    waiting_bytes: int
    commit: TimesModel = Field(description="From a decoded export to its commit.")
    lag: TimesModel = Field(description="From an export's newest event to its commit.")
    ahead: int = Field(description="Exports whose newest event is dated after their commit.")
    last_export: datetime | None = Field(description="When the last export was committed; null: none was.")

    @classmethod
    def of(cls, told: Ingest) -> IngestModel:
        """Take the statistics as read."""
        refused: dict[str, int] = {}
        for (_, status), count in sorted(told.refused.items()):
            refused[status] = refused.get(status, 0) + count
        return cls(
            started=told.started,
            traces=SignalModel.of(told, "traces"),
            metrics=SignalModel.of(told, "metrics"),
            logs=SignalModel.of(told, "logs"),
            refused=refused,
            last_reason=told.notes[0].reason if told.notes else "",
            last_reason_at=told.notes[0].last if told.notes else None,
            reasons=[ReasonModel(**asdict(note)) for note in told.notes],
            waiting=told.waiting,
            waiting_bytes=told.waiting_bytes,
            commit=TimesModel.of(told.commit),
            lag=TimesModel.of(told.lag),
            ahead=told.ahead,
            last_export=told.last_export,
        )


class CapabilitiesModel(Model):
    """What the database can do."""

    several_servers: bool = Field(description="Servers on several machines may share it.")
    durable_commit: bool = Field(description="What was acknowledged survives a loss of power.")
    bulk_copy: bool = Field(description="Rows come in by bulk copy.")
    partitions: bool = Field(description="Old chunks go a day at a time.")
    size_known: bool = Field(description="It can tell its size, so a size cap holds.")


class LimitsModel(Model):
    """What one export may be, in bytes."""

    wire_bytes: int
    raw_bytes: int


class Status(Model):
    """The server itself."""

    version: str
    started: datetime
    uptime_s: float
    capabilities: CapabilitiesModel
    limits: LimitsModel
    ingest: IngestModel
    auth: Literal["open", "required"] = Field(
        description="open: whoever reaches this server is let in; required: people sign in, or show a token."
    )
    notify_targets: int = Field(description="Addresses that alerts are sent to.")


class Me(Model):
    """Who asks."""

    name: str = Field(description="Of the user or token; empty: nobody has to sign in.")
    role: str = Field(description="viewer, editor or admin.")
    workspace: str | None = Field(description="The only one to be seen; null: all.")


class Health(Model):
    """The server is up and reaches its database."""

    status: Literal["ok"]
    version: str


@router.get("/status", summary="The server itself and its receiver")
def get_status(request: Request, parts: PartsOf) -> Status:
    """Return what the server is, and what its receivers did since it started."""
    limits, caller = parts.receiver.limits, caller_of(request)
    ingest = scrape.read(parts.receiver.stats)
    if caller.workspace != ALL_WORKSPACES:
        ingest = scrape.without_reasons(ingest)
    return Status(
        version=__version__,
        started=parts.started,
        uptime_s=(datetime.now(UTC) - parts.started).total_seconds(),
        capabilities=CapabilitiesModel(**asdict(parts.store.capabilities)),
        limits=LimitsModel(wire_bytes=limits.wire_bytes, raw_bytes=limits.raw_bytes),
        ingest=IngestModel.of(ingest),
        auth="open" if caller is ANYBODY else "required",
        notify_targets=len(parts.settings.notify),
    )


@router.get("/me", summary="Who asks, and what they may do")
def get_me(request: Request) -> Me:
    """Return who the caller's token or session says they are."""
    caller = caller_of(request)
    role = caller.role or Role.VIEWER  # the gate lets nobody through who has none
    return Me(name=caller.name, role=role.word, workspace=caller.workspace or None)


@health.get("/healthz", summary="Is the server up, and does it reach its database")
def get_health(store: StoreOf) -> Health:
    """Return 200 when the database answers, 503 in the usual error shape when it does not."""
    store.models("default")
    return Health(status="ok", version=__version__)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
