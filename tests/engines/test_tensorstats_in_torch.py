"""The reduction of hidden states, by every way it is done, and its kernels as an H200 would get them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from in_torch_runs import run_checks

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
IN_TORCH = HERE / "tensorstats_in_torch.py"
COMPILED = HERE / "tensorstats_compiled.py"


def checks(script: Path) -> list[str]:
    listed = script.read_text().split("CHECKS = [")[1].split("]")[0]
    return re.findall(r"\w+", listed)


@pytest.fixture(scope="module")
def in_torch() -> dict[str, str]:
    return run_checks(IN_TORCH)


@pytest.mark.parametrize("name", checks(IN_TORCH))
def test_in_torch(name: str, in_torch: dict[str, str]) -> None:
    assert in_torch[name] == ""


@pytest.fixture(scope="module")
def compiled() -> dict[str, str]:
    return run_checks(COMPILED)


@pytest.mark.parametrize("name", checks(COMPILED))
def test_compiled(name: str, compiled: dict[str, str]) -> None:
    assert compiled[name] == ""
