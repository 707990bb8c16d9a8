"""Expectations: what is promised of a draft, and what is served of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, Strict

from specscope_server import baseline
from specscope_server.api.changing import JsonOnly
from specscope_server.api.common import (
    DEFAULT_WORKSPACE,
    NO_NUL,
    JudgeS,
    Model,
    PartsOf,
    SomeText,
    StoreOf,
    Uid,
    Workspace,
    moment,
)
from specscope_server.api.errors import RESPONSES, ApiError, not_found
from specscope_server.diagnosis import expectation
from specscope_server.diagnosis.expectation import Answer
from specscope_server.diagnosis.promise import odds_words
from specscope_server.store.model import ExpectationRow, ExpectationScope
from specscope_server.store.port import Store

router = APIRouter(tags=["expectations"], responses=RESPONSES)
Text = Annotated[str, Field(max_length=128, pattern=NO_NUL)]
ScopeText = Annotated[str, Query(max_length=128, pattern=NO_NUL)]


class Scoped(Model):
    """Of whom it is expected, and who says so."""

    model_config = ConfigDict(extra="forbid")

    engine: Text = Field("", description="Uid, instance or name of the engine; empty: any.")
    model: Text = Field("", description="Name of the model; empty: any.")
    workload: Text = Field("", description="Slice of the rollups, dimension=slice; empty: all traffic.")
    who: SomeText = Field(max_length=128, description="Who says so.")
    note: Annotated[str, Field(max_length=500, pattern=NO_NUL)] = ""
    floor: Annotated[float, Strict()] | None = Field(
        None, description="Acceptance length that is too low whatever is promised."
    )
    accept_low: bool = Field(False, description="It is meant although it promises very little.")


class Declared(Scoped):
    """An expectation from training."""

    per_position: list[Annotated[float, Strict()]] = Field(
        max_length=baseline.MAX_POSITIONS,
        description="Conditional acceptance from the first position on: of those that got there.",
    )


class Learn(Scoped):
    """A period of one engine to learn from."""

    engine_uid: Annotated[str, Field(max_length=128, pattern=NO_NUL)] = Field(
        description="The engine whose period it is."
    )
    since: datetime
    until: datetime
    confirmed: bool = Field(
        False, description="A person says that the period was healthy; else nothing is stored."
    )


class ExpectationModel(Model):
    """What is expected of a draft."""

    engine: str
    model: str
    workload: str
    source: str = Field(description="declared or learned.")
    per_position: list[float] = Field(description="Conditional acceptance from the first position on.")
    length: float = Field(description="Acceptance length that this adds up to.")
    steps: int = Field(description="Verify steps that it was learned from; 0: declared.")
    floor: float | None
    who: str
    said: datetime
    note: str
    since: datetime | None = Field(description="The period that it was learned from; null: declared.")
    until: datetime | None
    learned_on: str = Field(description="Uid of the engine that it was learned from.")
    stored: bool = Field(True, description="False: it only shows what would be learned.")

    @classmethod
    def of(cls, row: ExpectationRow, *, stored: bool = True) -> ExpectationModel:
        """Take a row of the store."""
        return cls(
            engine=row.scope.engine,
            model=row.scope.model,
            workload=row.scope.workload,
            source=row.source,
            per_position=list(row.per_position),
            length=baseline.promised_length(row.per_position),
            steps=row.steps,
            floor=row.floor,
            who=row.who,
            said=row.said,
            note=row.note,
            since=None if row.period is None else row.period[0],
            until=None if row.period is None else row.period[1],
            learned_on=row.learned_on,
            stored=stored,
        )


class Expectations(Model):
    """The expectations of a workspace, in the order of their scopes."""

    items: list[ExpectationModel]


class Cleared(Model):
    """How many expectations were cleared."""

    cleared: int


class ServedPosition(Model):
    """One position against its promise."""

    position: int = Field(description="From 1.")
    reached: int = Field(description="Verify steps that accepted the position before and drafted this one.")
    served: float
    promised: float


class ServedModel(Model):
    """What is served of one expectation. null: nothing of it is served in the window."""

    workload: str
    source: str
    who: str
    said: datetime
    floor: float | None
    promise: str = Field(description="What was promised by whom, in words.")
    verify_steps: int
    length: float | None = Field(description="Acceptance length served, over the positions compared.")
    promised_length: float | None
    odds: str | None = Field(
        description="Chance of so little if the promise held, in words; null: none is below."
    )
    log10_odds: float | None
    broken: bool = Field(description="Clearly less is served than promised.")
    below_floor: bool
    sentence: str
    positions: list[ServedPosition]

    @classmethod
    def of(cls, answer: Answer) -> ServedModel:
        """Take what the diagnosis says."""
        one, held = answer.expectation, answer.held
        odds = None if held is None else held.odds(below=True)
        known = None if odds is None or odds[1] is None else odds[0]
        return cls(
            workload=one.workload,
            source=one.source,
            who=one.who,
            said=datetime.fromtimestamp(one.said, UTC),
            floor=one.floor,
            promise=expectation.promise_words(one),
            verify_steps=answer.steps,
            length=None if held is None else held.length,
            promised_length=None if held is None else held.promised,
            odds=None if known is None else odds_words(known),
            log10_odds=None if known is None else known / expectation.LN_10,
            broken=answer.broken,
            below_floor=answer.below_floor,
            sentence="Nothing of it is served in the window."
            if held is None
            else expectation.odds_sentence(held),
            positions=[
                ServedPosition(
                    position=place.position + 1,
                    reached=place.reached,
                    served=place.served,
                    promised=place.promised,
                )
                for place in (held.places if held is not None else ())
            ],
        )


class Served(Model):
    """Every expectation that holds of an engine, and what is served of it."""

    items: list[ServedModel]


@router.get("/expectations", summary="What is expected of drafts")
def list_expectations(store: StoreOf, workspace: Workspace = DEFAULT_WORKSPACE) -> Expectations:
    """Return the expectations of a workspace."""
    return Expectations(items=[ExpectationModel.of(row) for row in store.expectations(workspace)])


@router.put("/expectations", summary="Declare what training promises")
def declare(
    store: StoreOf, told: Declared, _: JsonOnly, workspace: Workspace = DEFAULT_WORKSPACE
) -> ExpectationModel:
    """Store a declared expectation; the declared one of the same scope is replaced."""
    row = ExpectationRow(
        _scope(told),
        baseline.DECLARED,
        tuple(told.per_position),
        0,
        told.floor,
        told.who,
        datetime.now(UTC),
        told.note,
    )
    return _say(store, workspace, row, accept_low=told.accept_low)


@router.post("/expectations/learn", summary="Learn from a period that a person confirms")
def learn(
    store: StoreOf, told: Learn, _: JsonOnly, workspace: Workspace = DEFAULT_WORKSPACE
) -> ExpectationModel:
    """Return what a period makes of it; with ``confirmed`` it is stored. The learned one is replaced."""
    since, until = moment("since", told.since), moment("until", told.until)
    if since >= until:
        raise ApiError(400, "invalid_parameter", "until: it ends before it starts", "Times are ISO 8601.")
    with store.snapshot() as reads:
        if reads.engine(workspace, told.engine_uid, until) is None:
            raise not_found("engine", told.engine_uid, "GET /api/v1/engines lists the engines.")
        against = baseline.against(reads, workspace, told.engine_uid)
        try:
            served = baseline.period(reads, workspace, told.engine_uid, told.workload, since, until)
        except baseline.BaselineError as error:
            raise _refused(error) from error
    if against and not told.accept_low:
        raise ApiError(
            400,
            "invalid_expectation",
            f"this engine has a certain finding now: {'; '.join(against[:3])}",
            "Learn from a healthy engine, or say accept_low (--accept-low) if its period was healthy.",
        )
    row = baseline.learned(
        *(_scope(told), served, told.floor, told.who, datetime.now(UTC)),
        *(told.note, (since, until), told.engine_uid),
    )
    if not told.confirmed:
        return ExpectationModel.of(row, stored=False)
    return _say(store, workspace, row, accept_low=told.accept_low)


@router.delete("/expectations", summary="Clear the expectations of a scope")
def clear(
    store: StoreOf,
    workspace: Workspace = DEFAULT_WORKSPACE,
    engine: ScopeText = "",
    model: ScopeText = "",
    workload: ScopeText = "",
    source: Annotated[Literal["declared", "learned"] | None, Query(description="Only this one.")] = None,
) -> Cleared:
    """Clear the expectations of exactly this scope."""
    cleared = store.clear_expectations(workspace, ExpectationScope(engine, model, workload), source)
    if not cleared:
        raise ApiError(
            404,
            "expectation_not_found",
            "There is no expectation of exactly this scope.",
            "See /api/v1/expectations.",
        )
    return Cleared(cleared=cleared)


@router.get("/engines/{engine_uid}/expectation", summary="What an engine serves of what was promised")
def served(
    parts: PartsOf, engine_uid: Uid, workspace: Workspace = DEFAULT_WORKSPACE, judge_s: JudgeS = None
) -> Served:
    """Return every expectation that holds of an engine against the last ``judge_s`` seconds."""
    found = parts.store.evidence(workspace, engine_uid, datetime.now(UTC), judge_s or parts.settings.judge_s)
    if found is None:
        raise not_found("engine", engine_uid, "GET /api/v1/engines lists the engines of a workspace.")
    return Served(items=[ServedModel.of(answer) for answer in expectation.answers(found)])


def _scope(told: Scoped) -> ExpectationScope:
    return ExpectationScope(told.engine, told.model, told.workload)


def _say(store: Store, workspace: str, row: ExpectationRow, *, accept_low: bool) -> ExpectationModel:
    try:
        store.set_expectation(workspace, baseline.checked(row, accept_low=accept_low))
    except baseline.BaselineError as error:
        raise _refused(error) from error
    return ExpectationModel.of(row)


def _refused(error: baseline.BaselineError) -> ApiError:
    return ApiError(400, "invalid_expectation", str(error), "See docs/diagnosis.md, section expectation.")
