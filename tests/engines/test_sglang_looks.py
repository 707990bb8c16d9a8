"""Looks at hidden states: each row reaches the request it belongs to, whatever the batch looks like."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from in_torch_runs import run_checks

pytestmark = pytest.mark.engine

SCRIPTS = ("looks_in_torch.py", "graph_looks_in_torch.py")
CHECKS = [
    (script, line.split("(")[0].removeprefix("def "))
    for script in SCRIPTS
    for line in Path(__file__).with_name(script).read_text().splitlines()
    if line.startswith("def check_")
]


@functools.cache
def told(script: str) -> dict[str, str]:
    return run_checks(Path(__file__).with_name(script))


@pytest.mark.parametrize(("script", "check"), CHECKS)
def test_looks(script: str, check: str) -> None:
    assert told(script)[check] == ""
