"""The whole evidence of an engine: every fact that the rules see, as they see it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from specscope_server.api.common import DEFAULT_WORKSPACE, JudgeS, Model, PartsOf, Uid, Workspace, json_safe
from specscope_server.api.errors import RESPONSES, not_found

router = APIRouter(tags=["engines"], responses=RESPONSES)


class EvidenceAnswer(Model):
    """What is known of one engine in a window up to now."""

    engine_uid: str
    at: datetime = Field(description="The end of the window.")
    window_s: float
    evidence: dict[str, Any] = Field(
        description="The facts by name (docs/reference/api.md); null or empty: not known, never zero."
    )


@router.get("/engines/{engine_uid}/evidence", summary="Everything that the rules see of one engine")
def get_evidence(
    parts: PartsOf, engine_uid: Uid, workspace: Workspace = DEFAULT_WORKSPACE, judge_s: JudgeS = None
) -> EvidenceAnswer:
    """Return the evidence of the last ``judge_s`` seconds, whole, so that a finding can be checked."""
    now = datetime.now(UTC)
    window_s = float(judge_s or parts.settings.judge_s)
    found = parts.store.evidence(workspace, engine_uid, now, window_s)
    if found is None:
        raise not_found("engine", engine_uid, "GET /api/v1/engines lists the engines of a workspace.")
    return EvidenceAnswer(engine_uid=engine_uid, at=now, window_s=window_s, evidence=json_safe(asdict(found)))
