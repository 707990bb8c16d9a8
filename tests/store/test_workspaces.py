"""No read reaches into another workspace, whatever ids the two share."""

from __future__ import annotations

import pytest
from specscope_server.diagnosis.model import Finding
from specscope_server.store.model import AlertRow, RequestFilter
from specscope_server.store.port import NewDelivery, Store
from specscope_server.store.values import engine_uid
from storekit import facts

MINE, THEIRS = "mine", "theirs"
FINDING = Finding("draft_silent", "F05", "critical", "certain", "Draft silent", "It says nothing.", ())


@pytest.fixture
def both(store: Store) -> Store:
    """Two workspaces with one engine each, equal in everything they tell but a few names."""
    for workspace in (MINE, THEIRS):
        told = facts.batch(
            facts.REPORT,
            facts.request(rid=f"rid-{workspace}", model=f"model-{workspace}"),
            facts.chunk(steps=[facts.step(1)], extends=[facts.extend(1)]),
            facts.increment(1),
            facts.heartbeat(boundaries=facts.crossings("draft.fc", "target_fed", 3, eager=0)),
            workspace=workspace,
        )
        store.write([told], facts.NOW)
        engine = engine_uid(workspace, "test", "launch")
        store.replace_findings(engine, [FINDING], facts.NOW)
        alert = AlertRow("silent", "Silent path", engine, "", "firing", workspace, facts.NOW, facts.NOW)
        store.set_alerts([alert], [NewDelivery("silent", engine, "firing", workspace, {})])
    return store


def test_each_workspace_sees_exactly_its_own(both: Store) -> None:
    for workspace in (MINE, THEIRS):
        engine = engine_uid(workspace, "test", "launch")
        (row,) = both.engines(workspace, facts.ago(60))
        assert (row.workspace, row.engine_uid) == (workspace, engine)
        assert row.counts is not None
        assert row.counts.steps == 3
        (request,) = both.requests(RequestFilter(workspace=workspace), 10).items
        assert (request.rid, request.engine_uid) == (f"rid-{workspace}", engine)
        assert both.models(workspace) == [f"model-{workspace}", "tiny"]
        (point,) = both.series(workspace, None, facts.ago(60), facts.NOW, 10)
        assert point.counts.steps == 3
        assert [finding.engine_uid for finding in both.findings(workspace)] == [engine]
        assert [alert.reason for alert in both.alerts(workspace)] == [workspace]
        assert [alert.reason for alert in both.alert_history(workspace, 10)] == [workspace]
        assert [delivery.target for delivery in both.deliveries(workspace, 10)] == [workspace]


def test_ids_of_the_other_workspace_find_nothing(both: Store) -> None:
    theirs = engine_uid(THEIRS, "test", "launch")
    assert both.engine(MINE, theirs, facts.ago(60)) is None
    assert both.series(MINE, theirs, facts.ago(60), facts.NOW, 10) == []
    assert both.findings(MINE, theirs) == []
    for where in (
        RequestFilter(MINE, engine_uid=theirs),
        RequestFilter(MINE, text="rid-theirs"),
        RequestFilter(MINE, rid="rid-theirs"),
        RequestFilter(MINE, model="model-theirs"),
    ):
        assert both.requests(where, 10).items == ()


def test_one_uid_in_two_workspaces_is_two_requests(both: Store) -> None:
    for workspace in (MINE, THEIRS):
        detail = both.request(workspace, "u0")
        assert detail is not None
        assert detail.request.rid == f"rid-{workspace}"
        assert len(detail.steps) == 1
    assert both.request("third", "u0") is None


def test_a_cursor_does_not_carry_over(both: Store) -> None:
    both.write([facts.batch(facts.request("u1"), workspace=MINE)], facts.NOW)
    cursor = both.requests(RequestFilter(MINE), 1).next_cursor
    found = both.requests(RequestFilter(THEIRS), 10, cursor).items
    assert {row.rid for row in found} <= {"rid-theirs"}


def test_an_unknown_workspace_is_empty(both: Store) -> None:
    assert both.engines("third", facts.ago(60)) == []
    assert both.requests(RequestFilter("third"), 10).items == ()
    assert both.models("third") == []
    assert both.findings("third") == both.alerts("third") == both.deliveries("third", 9) == []
