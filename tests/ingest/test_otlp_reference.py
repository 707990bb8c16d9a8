"""What the OTLP page claims to be tested is tested: each test that its table names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "otlp.md"
HEADING = "## What the OTLP specification demands, and the test of it\n"
SECTION = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
ROWS = [
    cells
    for line in SECTION.splitlines()
    if line.startswith("|") and len(cells := line.strip("|").split("|")) == 2 and not set(line) <= set("|-")
][1:]
NAMED = sorted({*re.findall(r"`([^`\s]+\.py::[^`\s]+)`", SECTION)})


@pytest.mark.parametrize("named", NAMED)
def test_a_test_that_the_page_names_exists(named: str) -> None:
    file, _, test = named.partition("::")
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_demand_has_a_test_or_says_that_it_has_none() -> None:
    assert len(ROWS) > 20
    assert len(NAMED) > 20
    for demand, shown_by in ROWS:
        assert ".py::test_" in shown_by or "no test" in shown_by, demand
