"""Silences: while one holds, nobody is told of what it covers."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from specscope_server.alerts.silencing import SilenceError, silence
from specscope_server.api.changing import JsonOnly
from specscope_server.api.common import DEFAULT_WORKSPACE, Model, StoreOf, Uid, Workspace, moment
from specscope_server.api.errors import RESPONSES, ApiError, not_found
from specscope_server.store.model import SilenceRow

router = APIRouter(tags=["alerts"], responses=RESPONSES)


class SilenceModel(Model):
    """One silence."""

    silence_uid: str
    rule: str = Field(description="Pattern of rule names; empty: all.")
    engine: str = Field(description="Pattern of engine names or uids; empty: all.")
    starts: datetime
    ends: datetime
    created: datetime
    author: str
    comment: str
    active: bool = Field(description="It holds now.")

    @classmethod
    def of(cls, row: SilenceRow, now: datetime) -> SilenceModel:
        """Take a row of the store."""
        return cls(**asdict(row), active=row.starts <= now < row.ends)


class Silences(Model):
    """Silences, also those that are over."""

    items: list[SilenceModel]


class NewSilence(Model):
    """A silence to make."""

    model_config = ConfigDict(extra="forbid")

    rule: str = Field("", description="Pattern of rule names; empty: all.")
    engine: str = Field("", description="Pattern of engine names or uids; empty: all.")
    starts: datetime | None = Field(None, description="null: now.")
    ends: datetime
    author: str = ""
    comment: str


@router.get("/silences", summary="Silences of a workspace")
def list_silences(store: StoreOf, workspace: Workspace = DEFAULT_WORKSPACE) -> Silences:
    """Return all silences, the last to end first."""
    now = datetime.now(UTC)
    return Silences(items=[SilenceModel.of(row, now) for row in store.silences(workspace)])


@router.post("/silences", summary="Silence rules on engines for a time")
def add_silence(
    store: StoreOf, told: NewSilence, _: JsonOnly, workspace: Workspace = DEFAULT_WORKSPACE
) -> SilenceModel:
    """Make a silence."""
    now = datetime.now(UTC)
    try:
        made = silence(
            rule=told.rule,
            engine=told.engine,
            starts=now if told.starts is None else moment("starts", told.starts),
            ends=moment("ends", told.ends),
            author=told.author,
            comment=told.comment,
            now=now,
        )
    except SilenceError as error:
        raise ApiError(400, "invalid_silence", str(error), "See docs/guide/alerts.md.") from error
    store.add_silence(workspace, made)
    return SilenceModel.of(made, now)


class EndedSilence(Model):
    """What was ended."""

    silence_uid: str


@router.delete("/silences/{uid}", summary="End a silence now")
def end_silence(store: StoreOf, uid: Uid, workspace: Workspace = DEFAULT_WORKSPACE) -> EndedSilence:
    """End a silence; it stays in the list until room is needed."""
    if not store.end_silence(workspace, uid, datetime.now(UTC)):
        raise not_found("silence", uid, "See /api/v1/silences for those there are.")
    return EndedSilence(silence_uid=uid)
