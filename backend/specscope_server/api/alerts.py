"""Alerts: the state of every rule on every engine, what changed, and what became of notifications."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field

from specscope_server.alerts.try_out import try_out
from specscope_server.api.changing import JsonOnly
from specscope_server.api.common import (
    DEFAULT_WORKSPACE,
    NO_NUL,
    Model,
    PartsOf,
    SomeText,
    StoreOf,
    Workspace,
    json_safe,
)
from specscope_server.api.errors import RESPONSES, ApiError, not_found
from specscope_server.store.model import AlertEvent, AlertRow, DeliveryRow

router = APIRouter(tags=["alerts"], responses=RESPONSES)


class AlertModel(Model):
    """The state of one rule on one engine."""

    rule: str
    title: str
    engine_uid: str
    engine: str = Field(description="The engine's name.")
    state: str = Field(description="firing, ok or no data.")
    reason: str
    since: datetime
    evaluated: datetime = Field(description="At most about ten seconds older than the last evaluation.")
    severity: str
    pending: str = Field(description="State that it changes to if that holds; empty: none.")
    pending_since: datetime | None
    told: str = Field(description="firing: somebody was told that it fires, and not yet of its end.")
    told_at: datetime | None
    quiet: str = Field(description="Why nobody is told that it fires; empty: somebody is.")
    acknowledged: datetime | None
    acknowledged_by: str
    note: str

    @classmethod
    def of(cls, row: AlertRow) -> AlertModel:
        """Take a row of the store."""
        told = asdict(row)
        del told["memo"]
        return cls(**told)


class AlertEventModel(Model):
    """One change of a state."""

    id: int
    rule: str
    title: str
    engine_uid: str
    engine: str = Field(description="The engine's name.")
    state: str = Field(description="The state from then on.")
    reason: str
    since: datetime
    severity: str
    evidence: dict[str, Any] = Field(description="What was known then; empty where none was kept.")

    @classmethod
    def of(cls, row: AlertEvent) -> AlertEventModel:
        """Take a row of the store."""
        return cls(**json_safe(asdict(row)))


class DeliveryModel(Model):
    """One notification to one address. The address itself may hold a secret and is not told."""

    id: int
    rule: str
    engine_uid: str
    state: str
    status: str = Field(description="pending, delivered or failed.")
    attempts: int
    next_attempt: datetime | None
    error: str
    created: datetime

    @classmethod
    def of(cls, row: DeliveryRow) -> DeliveryModel:
        """Take a row of the store, without what may be secret."""
        told = asdict(row)
        del told["target"], told["payload"]
        return cls(**told)


class Alerts(Model):
    """Rules now, their history and their notifications."""

    items: list[AlertModel] = Field(description="The state of every rule on every engine, firing first.")
    history: list[AlertEventModel] = Field(description="State changes, newest first.")
    deliveries: list[DeliveryModel] = Field(description="Notifications, newest first.")


@router.get("/alerts", summary="Alert states, history and notifications")
def list_alerts(
    store: StoreOf,
    workspace: Workspace = DEFAULT_WORKSPACE,
    limit: Annotated[int, Query(ge=1, le=500, description="Of history and of deliveries, each.")] = 50,
) -> Alerts:
    """Return all rule states, and the newest ``limit`` state changes and notifications."""
    with store.snapshot() as reads:
        return Alerts(
            items=[AlertModel.of(row) for row in reads.alerts(workspace)],
            history=[AlertEventModel.of(row) for row in reads.alert_history(workspace, limit)],
            deliveries=[DeliveryModel.of(row) for row in reads.deliveries(workspace, limit)],
        )


class Acknowledgement(Model):
    """Who takes on what fires."""

    model_config = ConfigDict(extra="forbid")

    engine_uid: str = Field(max_length=128, pattern=NO_NUL)
    rule: str = Field(max_length=128, pattern=NO_NUL)
    by: SomeText = Field(max_length=200, description="Who.")
    note: str = Field("", max_length=500)


class Acknowledged(Model):
    """What was acknowledged."""

    engine_uid: str
    rule: str
    by: str


@router.post("/alerts/acknowledge", summary="Take on a rule that fires")
def acknowledge(
    store: StoreOf, told: Acknowledgement, _: JsonOnly, workspace: Workspace = DEFAULT_WORKSPACE
) -> Acknowledged:
    """Note who looks after a rule that fires on an engine: nobody is reminded of it until it fires anew."""
    at = datetime.now(UTC)
    if not store.acknowledge(workspace, told.engine_uid, told.rule, told.by, told.note, at):
        raise not_found(
            "alert",
            f"{told.rule} on {told.engine_uid}",
            "Only what fires can be acknowledged: see /api/v1/alerts.",
        )
    return Acknowledged(engine_uid=told.engine_uid, rule=told.rule, by=told.by)


class TriedModel(Model):
    """What came of a test at one address."""

    target: str = Field(description="The address without what may be secret.")
    error: str = Field(description="Empty: it was taken.")


class Trial(Model):
    """What came of a test."""

    items: list[TriedModel]


@router.post("/alerts/test", summary="Send a test to every address")
async def send_test(parts: PartsOf, _: JsonOnly, workspace: Workspace = DEFAULT_WORKSPACE) -> Trial:
    """Send a notification that says it is a test to every address, and wait for what comes of it."""
    if not parts.targets:
        raise ApiError(
            409,
            "no_targets",
            "This server notifies nobody.",
            "Start it with --notify (docs/guide/alerts.md).",
        )
    tried = await try_out(parts.targets, workspace, parts.settings.public_url)
    return Trial(items=[TriedModel(target=one.target, error=one.error) for one in tried])


class Queued(Model):
    """What was queued again."""

    id: int


@router.post("/deliveries/{delivery_id}/retry", summary="Send a notification again that was given up")
def retry(
    store: StoreOf,
    delivery_id: Annotated[int, Path(ge=1, le=2**62)],
    _: JsonOnly,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> Queued:
    """Queue a notification that failed, from its first attempt."""
    if not store.send_again(workspace, delivery_id):
        raise not_found(
            "delivery", str(delivery_id), "Only what failed can be sent again: see /api/v1/alerts."
        )
    return Queued(id=delivery_id)
