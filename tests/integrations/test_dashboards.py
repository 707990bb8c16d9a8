"""The Grafana dashboard and the Prometheus rules ask for metrics and labels that the server really has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from serverkit import otlp
from serverkit.live import Live, serving
from storekit.everything import Workspace, fill

FOLDER = Path(__file__).parents[2] / "docs" / "integrations"
REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus-rules.yml").read_text(encoding="utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
DURATION = re.compile(r"\d+[smhd]")


def expressions() -> list[str]:
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    found += [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    return found + [rule["expr"] for rule in ALERTS]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """The labels of every metric of a server that has something of each kind."""
    with serving(f"sqlite:///{tmp_path_factory.mktemp('scraped') / 'store.db'}") as live:
        fill(live.store, Workspace("default", "oakwood", 48_170_976), datetime.now(UTC))
        assert live.export(otlp.traces(otlp.request_span(0))).status_code == 200
        assert live.client.post("/v1/traces", content=b"?").status_code == 415
        assert live.export(otlp.traces(otlp.steps_span(2, **{"spec_decode.request.uid": None}))).status_code
        yield labels(live)


def labels(live: Live) -> dict[str, set[str]]:
    answer = live.client.get("/metrics")
    assert answer.status_code == 200
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_exists_and_is_documented(
    scraped: dict[str, set[str]], expression: str
) -> None:
    asked = re.findall(r"(specscope_\w+)(?:\{([^}]*)\})?", expression)
    assert asked, expression
    for name, selector in asked:
        assert name in scraped, f"{name} is no metric of the server"
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector):
            assert label in scraped[name], f"{name} has no label {label}"
        assert f"`{name.removesuffix('_bucket')}`" in REFERENCE
    for clause in re.findall(r"\bby \(([^)]*)\)", expression):
        wanted = {label.strip() for label in clause.split(",")}
        assert wanted <= set().union(*(scraped[name] for name, _ in asked)), clause
    assert all(expression.count(a) == expression.count(b) for a, b in ("()", "{}", "[]"))


def test_rules_have_the_form_that_prometheus_reads() -> None:
    assert set(RULES) == {"groups"}
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names)
    for group in RULES["groups"]:
        assert set(group) == {"name", "rules"}
    for rule in ALERTS:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert DURATION.fullmatch(rule.get("for", "1s")), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}
        # A rule takes its severity from SpecScope, or names one.
        assert "severity" in rule["labels"] or "severity" in rule["expr"]


def test_the_dashboard_has_the_form_that_grafana_reads() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in {"stat", "table", "timeseries"}
        assert panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies over another"
        taken |= cells
    used = {name for expression in expressions() for name in re.findall(r"\$(\w+)", expression)}
    assert used <= {one["name"] for one in DASHBOARD["templating"]["list"]}
