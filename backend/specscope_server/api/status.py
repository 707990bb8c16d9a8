"""The server itself: is it up, and what did the receiver do."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import Field
from specscope.version import __version__

from specscope_server.api.common import Model, PartsOf, StoreOf
from specscope_server.api.errors import RESPONSES

router = APIRouter(tags=["status"], responses=RESPONSES)
health = APIRouter(tags=["status"], responses=RESPONSES)


class SignalModel(Model):
    """What became of the items of one signal since the server started."""

    accepted: int
    rejected: int
    foreign: int = Field(description="Other tools' spans (kept apart, within bounds) and metrics (not kept).")


class IngestModel(Model):
    """The receiver since the server started."""

    traces: SignalModel = Field(description="Counted in spans.")
    metrics: SignalModel = Field(description="Counted in points.")
    refused: dict[str, int] = Field(description="Requests refused whole, by HTTP status.")
    last_reason: str = Field(description="Why something was last rejected or refused; empty: never.")
    last_reason_at: datetime | None
    waiting: int = Field(description="Exports waiting for their commit now.")
    waiting_bytes: int


class CapabilitiesModel(Model):
    """What the database can do."""

    several_servers: bool
    durable_commit: bool


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
    notify_targets: int = Field(description="Addresses that alerts are sent to.")


class Health(Model):
    """The server is up and reaches its database."""

    status: Literal["ok"]
    version: str


@router.get("/status", summary="The server itself and its receiver")
def get_status(parts: PartsOf) -> Status:
    """Return what the server is, and what the receiver did since it started."""
    stats, admission, limits = parts.receiver.stats, parts.receiver.admission, parts.receiver.limits

    def signal(name: str) -> SignalModel:
        return SignalModel(
            accepted=stats.accepted[name], rejected=stats.rejected[name], foreign=stats.foreign[name]
        )

    return Status(
        version=__version__,
        started=parts.started,
        uptime_s=(datetime.now(UTC) - parts.started).total_seconds(),
        capabilities=CapabilitiesModel(**asdict(parts.store.capabilities)),
        limits=LimitsModel(wire_bytes=limits.wire_bytes, raw_bytes=limits.raw_bytes),
        ingest=IngestModel(
            traces=signal("traces"),
            metrics=signal("metrics"),
            refused={str(status): count for status, count in sorted(stats.refused.items())},
            last_reason=stats.last_reason,
            last_reason_at=stats.last_reason_at,
            waiting=admission.waiting,
            waiting_bytes=admission.waiting_bytes,
        ),
        notify_targets=len(parts.settings.notify),
    )


@health.get("/healthz", summary="Is the server up, and does it reach its database")
def get_health(store: StoreOf) -> Health:
    """Return 200 when the database answers, 503 in the usual error shape when it does not."""
    store.models("default")
    return Health(status="ok", version=__version__)
