"""Algorithms that SGLang does not start without a GPU: the adapter over the shapes that its source gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from in_torch_runs import run_checks

pytestmark = [pytest.mark.engine]

IN_TORCH = Path(__file__).with_name("shapes_in_torch.py")
CHECKS = re.findall(r"^    (\w+),$", IN_TORCH.read_text("utf-8").split("\nCHECKS")[1], re.M)


@pytest.fixture(scope="module")
def in_torch() -> dict[str, str]:
    return run_checks(IN_TORCH)


@pytest.mark.parametrize("name", CHECKS)
def test_over_recorded_shapes(name: str, in_torch: dict[str, str]) -> None:
    assert in_torch[name] == ""
