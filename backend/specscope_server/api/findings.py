"""Findings: what the diagnosis says of an engine, live with the engine and stored with its history."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from specscope_server.api.common import DEFAULT_WORKSPACE, EngineUid, Model, StoreOf, Workspace, json_safe
from specscope_server.api.errors import RESPONSES
from specscope_server.diagnosis.model import Finding
from specscope_server.store.model import FindingRow

router = APIRouter(tags=["findings"], responses=RESPONSES)


class NumberModel(Model):
    """One piece of evidence."""

    name: str
    value: float | int | str | None
    expected: float | int | str | None
    unit: str
    link: str = Field(description="Where on this server it can be looked at; may be empty.")


class RuledModel(Model):
    """A rival explanation that the evidence rules out, and by what."""

    fault: str
    by: str


class FindingModel(Model):
    """A named fault or observation on one engine."""

    kind: str = Field(description="Stable name of the rule, e.g. fc_bypassed.")
    fault_class: str = Field(description="F01 to F24; empty for an observation.")
    severity: str = Field(description="critical, warning or info.")
    confidence: str = Field(description="certain, suspected or observation.")
    title: str
    sentence: str = Field(description="What is wrong, for someone who has never seen it.")
    numbers: list[NumberModel]
    ruled_out: list[RuledModel]
    next_check: str
    fix: str
    boundary: str = Field(description="Where on the speculative path; may be empty.")
    root: str = Field(description="Kind of the finding that explains this one; empty: it is a root itself.")

    @classmethod
    def of(cls, finding: Finding) -> FindingModel:
        """Take a finding of the diagnosis."""
        return cls.model_validate(json_safe(asdict(finding)))


class StoredFinding(Model):
    """A finding with its history."""

    id: int
    engine_uid: str
    engine: str = Field(description="The engine's name.")
    kind: str
    fault_class: str
    severity: str
    confidence: str
    title: str
    sentence: str
    opened: datetime
    last_seen: datetime
    closed: datetime | None = Field(description="null while it holds.")
    body: dict[str, Any] = Field(
        description="The whole finding: numbers, ruled_out, next_check, fix, boundary."
    )

    @classmethod
    def of(cls, row: FindingRow) -> StoredFinding:
        """Take a row of the store."""
        return cls.model_validate(json_safe(asdict(row)))


class Findings(Model):
    """Findings, worst first."""

    items: list[StoredFinding]


@router.get("/findings", summary="Findings of all engines, or of one")
def list_findings(
    store: StoreOf,
    workspace: Workspace = DEFAULT_WORKSPACE,
    engine: EngineUid = None,
    active: Annotated[bool, Query(description="false: also those that no longer hold.")] = True,
) -> Findings:
    """Return findings, worst first."""
    return Findings(items=[StoredFinding.of(row) for row in store.findings(workspace, engine, active)])
