"""Rules of a workspace: the built-in ones, changed ones, and its own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from specscope_server.alerts.catalogue import blank, built_in, effective
from specscope_server.alerts.rules import AlertRule, RuleError, changed
from specscope_server.api.changing import JsonOnly
from specscope_server.api.common import DEFAULT_WORKSPACE, NO_NUL, Model, StoreOf, Workspace
from specscope_server.api.errors import RESPONSES, ApiError, not_found
from specscope_server.store.port import Reads

router = APIRouter(tags=["alerts"], responses=RESPONSES)
RuleName = Annotated[str, Path(max_length=128, pattern=NO_NUL, description="Name of the rule.")]


class RuleFields(Model):
    """What can be set of a rule; see the guide to alerts for what each field means."""

    # Strict: a text or a truth value is no number, and the other way round.
    model_config = ConfigDict(extra="forbid", strict=True)

    title: str | None = None
    watches: str | None = Field(None, description="findings, other faults, tracer silent, ...")
    kinds: list[str] | None = Field(None, description="Kinds of finding, where it watches findings.")
    severity: str | None = Field(None, description="critical, warning or info.")
    enabled: bool | None = None
    engine: str | None = Field(None, description="Pattern of engine names or uids; empty: all.")
    model: str | None = Field(None, description="Pattern of model names; empty: all.")
    environment: str | None = Field(None, description="Pattern of environments; empty: all.")
    window_s: float | None = None
    min_steps: int | None = None
    for_s: float | None = None
    suspected_for_s: float | None = None
    recovery_s: float | None = None
    certain_only: bool | None = None
    threshold: float | None = None
    repeat_s: float | None = None


class RuleModel(Model):
    """A rule as it holds."""

    name: str
    title: str
    watches: str
    kinds: list[str]
    severity: str
    enabled: bool
    engine: str
    model: str
    environment: str
    window_s: float
    min_steps: int
    for_s: float
    suspected_for_s: float
    recovery_s: float
    certain_only: bool
    threshold: float
    repeat_s: float
    built_in: bool = Field(description="It comes with SpecScope; deleting it takes its changes back.")
    changed: bool = Field(description="Something of it is stored.")

    @classmethod
    def of(cls, rule: AlertRule, stored: bool) -> RuleModel:
        """Take a rule."""
        return cls(name=rule.name, **rule.body, built_in=built_in(rule.name) is not None, changed=stored)


class Rules(Model):
    """The rules of a workspace."""

    items: list[RuleModel]


def current(reads: Reads, workspace: str, name: str) -> AlertRule | None:
    """Return a rule of a workspace as it holds."""
    return next((rule for rule in effective(reads.alert_rules(workspace)) if rule.name == name), None)


@router.get("/rules", summary="Alert rules of a workspace")
def list_rules(store: StoreOf, workspace: Workspace = DEFAULT_WORKSPACE) -> Rules:
    """Return every rule, built-in ones first."""
    stored = store.alert_rules(workspace)
    names = {row.name for row in stored}
    return Rules(items=[RuleModel.of(rule, rule.name in names) for rule in effective(stored)])


@router.put("/rules/{rule}", summary="Change a rule, or make one")
def set_rule(
    store: StoreOf, rule: RuleName, told: RuleFields, _: JsonOnly, workspace: Workspace = DEFAULT_WORKSPACE
) -> RuleModel:
    """Set the fields that are given of a rule; the others stay. A name that is not known makes a new rule."""
    given = told.model_dump(exclude_none=True)
    try:
        made = changed(current(store, workspace, rule) or blank(rule), given)
    except RuleError as error:
        raise ApiError(400, "invalid_rule", str(error), "See docs/guide/alerts.md for the fields.") from error
    store.set_rule(workspace, rule, made.body, datetime.now(UTC))
    return RuleModel.of(made, True)


class DeletedRule(Model):
    """What was deleted."""

    name: str


@router.delete("/rules/{rule}", summary="Delete a rule, or take back the changes of a built-in one")
def delete_rule(store: StoreOf, rule: RuleName, workspace: Workspace = DEFAULT_WORKSPACE) -> DeletedRule:
    """Delete what is stored of a rule."""
    if not store.delete_rule(workspace, rule):
        raise not_found(
            "rule", rule, "See /api/v1/rules; a built-in one that nobody changed cannot be deleted."
        )
    return DeletedRule(name=rule)
