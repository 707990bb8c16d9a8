"""Environments with other versions of the OpenTelemetry SDK, kept in the checkout's ignored ``.envs``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python_with_sdk(version: str) -> str:
    """Return the interpreter of an environment with that SDK and what the tracer needs beside it.

    The tracer itself comes from the checkout, through ``PYTHONPATH``.

    Raises:
        RuntimeError: pip could not install it; the message has pip's words.
    """
    home = ROOT / ".envs" / f"otel-{version}"
    python = home / "bin" / "python"
    if (home / "complete").exists():
        return str(python)
    home.parent.mkdir(exist_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=False)
    wanted = [
        f"opentelemetry-sdk=={version}",
        f"opentelemetry-exporter-otlp-proto-http=={version}",
        "numpy>=1.26",
    ]
    pip = [sys.executable, "-m", "pip", "--python", python]
    # A temporary directory as working directory: nothing of the checkout is picked up by accident.
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [*pip, "--disable-pip-version-check", "install", "--quiet", *wanted],
            cwd=elsewhere,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"pip install {' '.join(wanted)} failed under {sys.version}:\n{done.stderr}")
    (home / "complete").touch()
    return str(python)
