"""Looks at hidden states: each row reaches the request it belongs to, whatever the batch looks like."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from in_torch_runs import run_checks

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).with_name("looks_in_torch.py")
CHECKS = [
    line.split("(")[0].removeprefix("def ")
    for line in SCRIPT.read_text().splitlines()
    if line.startswith("def check_")
]


@functools.cache
def told() -> dict[str, str]:
    return run_checks(SCRIPT)


@pytest.mark.parametrize("check", CHECKS)
def test_looks(check: str) -> None:
    assert told()[check] == ""
