"""``specscope fingerprint`` with torch and transformers: the tiny pair against the training's own loop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from in_torch_runs import run_checks

pytestmark = [pytest.mark.engine]

IN_TORCH = Path(__file__).with_name("reference_in_torch.py")
CHECKS = re.findall(r"^    (\w+),$", IN_TORCH.read_text("utf-8").split("\nCHECKS")[1], re.M)


@pytest.fixture(scope="module")
def in_torch() -> dict[str, str]:
    return run_checks(IN_TORCH)


@pytest.mark.parametrize("name", CHECKS)
def test_with_transformers(name: str, in_torch: dict[str, str]) -> None:
    assert in_torch[name] == ""
