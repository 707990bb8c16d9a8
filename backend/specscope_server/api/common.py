"""What the endpoints share: the server's parts, the workspace, time parameters, and honest numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, cast

from fastapi import Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from specscope.rollup import Counts

from specscope_server.ingest.receiver import Receiver
from specscope_server.settings import ServerSettings
from specscope_server.store.model import BoundaryState
from specscope_server.store.port import Store


class Parts:
    """What one running server consists of, for the endpoints; see :mod:`specscope_server.app`."""

    def __init__(self, settings: ServerSettings, store: Store, receiver: Receiver) -> None:
        """Hold the parts; the clock starts now."""
        self.settings, self.store, self.receiver = settings, store, receiver
        self.started = datetime.now(UTC)


def parts_of(request: Request) -> Parts:
    """Return the parts of the server that a request came to."""
    return cast(Parts, request.app.state.parts)


def _store(request: Request) -> Store:
    return parts_of(request).store


StoreOf = Annotated[Store, Depends(_store)]
PartsOf = Annotated[Parts, Depends(parts_of)]
Workspace = Annotated[str, Query(description="Workspace to read.", min_length=1, max_length=128)]
Uid = Annotated[str, Field(max_length=128)]
WindowS = Annotated[int, Query(ge=60, le=30 * 86_400, description="Seconds up to now that counts look at.")]

DEFAULT_WORKSPACE = "default"
DEFAULT_WINDOW_S = 3600


class Model(BaseModel):
    """Base of all response bodies. Numbers that are undefined are null, never 0."""

    model_config = ConfigDict(ser_json_inf_nan="strings")


def utc(moment: datetime) -> datetime:
    """Return a moment in UTC; one without a zone is taken as UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def ratio(part: int, whole: int) -> float | None:
    """Return part / whole; ``None`` (undefined) when whole is 0."""
    return part / whole if whole else None


def json_safe(value: Any) -> Any:
    """Return a decoded value with non-finite numbers as the texts ``NaN``, ``Infinity``, ``-Infinity``."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(k): json_safe(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(v) for v in cast("list[Any]", value)]
    return value


class BoundaryModel(Model):
    """One line of the ledger: what must have happened at a boundary and what was seen."""

    boundary: str = Field(description="Place on the speculative path, e.g. draft.fc.")
    source: str = Field(description="What fed the draft: target_fed, self_fed, or empty.")
    expected: int = Field(description="Crossings that the engine's contract asks for.")
    observed: int = Field(description="Crossings seen, in any mode.")
    observed_by_mode: dict[str, int] = Field(description="Crossings seen, by eager, graph, derived.")
    armed: bool = Field(description="False: nothing can be said about this boundary, for the reason given.")
    reason: str = Field(description="Why it is not armed; empty where it is.")

    @classmethod
    def of(cls, state: BoundaryState) -> BoundaryModel:
        """Take a line of the store's ledger."""
        return cls(
            boundary=state.boundary,
            source=state.source,
            expected=state.expected,
            observed=state.observed_total,
            observed_by_mode=dict(state.observed),
            armed=state.armed,
            reason=state.reason,
        )


class PositionModel(Model):
    """How one draft position fared. Undrafted is unobserved, never rejected."""

    position: int = Field(description="Position in the draft, from 1.")
    drafted: int = Field(description="Verify steps that drafted this deep.")
    accepted: int = Field(description="Verify steps that accepted this deep.")
    rate: float | None = Field(description="accepted / drafted; null where nothing was drafted.")


def positions(pairs: tuple[tuple[int, int], ...]) -> list[PositionModel]:
    """Return (drafted, accepted) pairs as numbered positions."""
    return [
        PositionModel(position=i, drafted=drafted, accepted=accepted, rate=ratio(accepted, drafted))
        for i, (drafted, accepted) in enumerate(pairs, start=1)
    ]


class CountsModel(Model):
    """Sums over verify steps, from rollups, and what follows from them."""

    verify_steps: int
    drafted_depth: int = Field(description="Sum of the deepest drafted position of each step.")
    drafted_nodes: int = Field(description="Sum of drafted tree nodes.")
    accepted: int
    bonus: int
    committed: int
    zero_accept_steps: int = Field(description="Steps that drafted and had nothing accepted.")
    undrafted_steps: int = Field(description="Steps that drafted nothing.")
    acceptance_rate: float | None = Field(description="accepted / drafted_depth; null: nothing drafted.")
    acceptance_length: float | None = Field(
        description="(accepted + bonus) / verify_steps; null: no verify step."
    )
    node_yield: float | None = Field(description="accepted / drafted_nodes; null: no node drafted.")

    @classmethod
    def of(cls, counts: Counts) -> CountsModel:
        """Take sums of rollups."""
        told = asdict(counts)
        return cls(
            verify_steps=told.pop("steps"),
            zero_accept_steps=told.pop("zero_steps"),
            **told,
            acceptance_rate=ratio(counts.accepted, counts.drafted_depth),
            acceptance_length=ratio(counts.accepted + counts.bonus, counts.steps),
            node_yield=ratio(counts.accepted, counts.drafted_nodes),
        )
