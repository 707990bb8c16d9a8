"""`make gpu-check`: our own CUDA parts (kernels, ring, buffers inside graphs) on a device, without an engine.

Takes the first interpreter whose torch sees a device: GPU_PYTHON where it is set, `python3`, and that of the
engine's environment. It needs torch, Triton and numpy, nothing of this project. Where none sees a device this
says *skipped* with the reason and ends with 0. Standard library only.

    python3 -m scripts.gpu_check
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.sglang_env import ENVIRONMENT
from scripts.system import ROOT

CHECKS = ROOT / "tests" / "gpu" / "on_device.py"
MINUTES = 5
SEES = "import numpy, torch, triton; print(torch.cuda.is_available())"


def interpreters() -> list[Path]:
    """Return what may have torch, in the order in which it is asked; only GPU_PYTHON where that is set."""
    given = os.environ.get("GPU_PYTHON")
    if given:
        return [Path(given)]
    found = [shutil.which("python3"), str(ENVIRONMENT / "bin" / "python")]
    return [Path(path) for path in dict.fromkeys(found) if path and Path(path).is_file()]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "tracer"), "OMP_NUM_THREADS": "4"}


def why_not(python: Path) -> str:
    """Return why the checks cannot run under ``python``; nothing where they can."""
    try:
        asked = subprocess.run(
            [python, "-c", SEES], env=environment(), capture_output=True, text=True, check=False
        )
    except OSError as error:
        return f"{python}: {error.strerror}"
    if asked.returncode:
        return f"{python}: {asked.stderr.strip().splitlines()[-1]}"
    return "" if asked.stdout.strip() == "True" else f"{python}: torch sees no CUDA device"


def main() -> int:
    reasons: list[str] = []
    for python in interpreters():
        reason = why_not(python)
        if reason:
            reasons.append(reason)
            continue
        print(f"gpu-check: {python} {CHECKS.relative_to(ROOT)}", flush=True)
        try:
            return subprocess.run(
                [python, CHECKS], env=environment(), check=False, timeout=60 * MINUTES
            ).returncode
        except subprocess.TimeoutExpired:
            print(f"gpu-check: not done after {MINUTES} minutes", file=sys.stderr)
            return 1
    print(f"gpu-check: skipped: no CUDA device ({'; '.join(reasons) or 'no Python with torch'})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
