"""What the endpoints share: the server's parts, the workspace, time parameters, and honest numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from specscope.rollup import Counts

from specscope_server.alerts.targets import Target
from specscope_server.api.errors import ApiError
from specscope_server.ingest.receiver import Receiver
from specscope_server.lately import Lately
from specscope_server.settings import ServerSettings
from specscope_server.store.model import BoundaryState
from specscope_server.store.port import Store


class Parts:
    """What one running server consists of, for the endpoints; see :mod:`specscope_server.app`."""

    def __init__(
        self,
        settings: ServerSettings,
        store: Store,
        receiver: Receiver,
        targets: tuple[Target, ...] = (),
    ) -> None:
        """Hold the parts; ``targets`` are the addresses that alerts go to. The clock starts now."""
        self.settings, self.store, self.receiver, self.targets = settings, store, receiver, targets
        self.lately = Lately()
        self.started = datetime.now(UTC)


def parts_of(request: Request) -> Parts:
    """Return the parts of the server that a request came to."""
    return cast(Parts, request.app.state.parts)


def _store(request: Request) -> Store:
    return parts_of(request).store


def only_known_parameters(request: Request) -> None:
    """Refuse a query parameter that the endpoint does not know: a mistyped filter would show everything.

    Raises:
        ApiError: 400, naming the parameter and those there are.
    """
    route = cast(APIRoute, request.scope["route"])
    known = sorted({field.alias for field in route.dependant.query_params})
    unknown = sorted(set(request.query_params) - set(known))
    if unknown:
        raise ApiError(
            400,
            "invalid_parameter",
            f"unknown parameter {', '.join(repr(name[:40]) for name in unknown[:5])}",
            f"Known here: {', '.join(known) or 'none'}.",
        )


StoreOf = Annotated[Store, Depends(_store)]
PartsOf = Annotated[Parts, Depends(parts_of)]
NO_NUL = r"^[^\x00]*$"
"""Pattern of every text parameter: PostgreSQL takes no NUL, and nothing stored holds one."""
SomeText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=NO_NUL)]
"""Of a body: a text that says something."""
Workspace = Annotated[
    str, Query(description="Workspace to read.", min_length=1, max_length=128, pattern=NO_NUL)
]
Uid = Annotated[str, Path(max_length=128, pattern=NO_NUL)]
EngineUid = Annotated[
    str | None, Query(max_length=128, pattern=NO_NUL, description="Only of this engine_uid.")
]
WindowS = Annotated[int, Query(ge=60, le=30 * 86_400, description="Seconds up to now that counts look at.")]
JudgeS = Annotated[
    int | None,
    Query(
        ge=10,
        le=30 * 86_400,
        description="Seconds up to now that state and findings are judged by; default 300, as alerts are.",
    ),
]

DEFAULT_WORKSPACE = "default"
DEFAULT_WINDOW_S = 3600
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
"""As for what the receiver takes; anything further cannot have been stored."""


class Model(BaseModel):
    """Base of all response bodies. Numbers that are undefined are null, never 0."""

    model_config = ConfigDict(ser_json_inf_nan="strings")


def moment(name: str, value: datetime) -> datetime:
    """Return the value of a time parameter in UTC; one without a zone is taken as UTC.

    Raises:
        ApiError: 400, it is not between 1970 and 2200.
    """
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    if not EARLIEST <= value <= LATEST:
        raise ApiError(400, "invalid_parameter", f"{name}: not between 1970 and 2200", "Times are ISO 8601.")
    return value.astimezone(UTC)


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
    arming: str = Field(
        description="State of the tracer's hooks: armed, missing (the engine version has no such function), "
        "changed (it has one with other parameters), failed (the hook disarmed itself), off (nothing to see "
        "here), or empty: not told."
    )

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
            arming=state.arming,
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
