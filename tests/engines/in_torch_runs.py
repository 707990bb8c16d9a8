"""Starts a script of checks in SGLang's environment, where torch is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from sglang_engine import sglang_python


def run_checks(script: Path) -> dict[str, str]:
    """Return what :func:`check_report.report` told of the script's checks, by name."""
    done = subprocess.run(
        [sglang_python(), script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
