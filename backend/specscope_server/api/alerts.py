"""Alerts: the state of every rule on every engine, what changed, and what became of notifications."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from specscope_server.api.common import DEFAULT_WORKSPACE, Model, StoreOf, Workspace
from specscope_server.api.errors import RESPONSES
from specscope_server.store.model import AlertRow, DeliveryRow

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
    evaluated: datetime

    @classmethod
    def of(cls, row: AlertRow) -> AlertModel:
        """Take a row of the store."""
        return cls(**asdict(row))


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
    history: list[AlertModel] = Field(description="State changes, newest first.")
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
            history=[AlertModel.of(row) for row in reads.alert_history(workspace, limit)],
            deliveries=[DeliveryModel.of(row) for row in reads.deliveries(workspace, limit)],
        )
