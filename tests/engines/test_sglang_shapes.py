"""Algorithms that SGLang does not start without a GPU: the adapter over the shapes that its source gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from sglang_engine import sglang_python

pytestmark = [pytest.mark.engine]

IN_TORCH = Path(__file__).with_name("shapes_in_torch.py")
CHECKS = re.findall(r"^    (\w+),$", IN_TORCH.read_text("utf-8").split("\nCHECKS")[1], re.M)


@pytest.fixture(scope="module")
def in_torch() -> dict[str, str]:
    done = subprocess.run(
        [sglang_python(), IN_TORCH],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CHECKS)
def test_over_recorded_shapes(name: str, in_torch: dict[str, str]) -> None:
    assert in_torch[name] == ""
