"""The wheel, built once, and virtual environments outside the checkout with nothing but it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from serverkit.command import environment

ROOT = Path(__file__).parents[2]


def check(*command: str | Path, cwd: Path) -> str:
    """Run a command that must succeed and return what it printed."""
    clean = {k: v for k, v in environment().items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution's wheel, built as for a release."""
    out = tmp_path_factory.mktemp("dist")
    check(sys.executable, "-m", "build", "--wheel", "--outdir", out, ROOT, cwd=out)
    [built] = out.glob("specscope-*.whl")
    return built


def install(wheel: Path, extras: str, place: Path) -> Path:
    """Make an environment that holds the wheel and what it needs; return its ``bin``."""
    # This environment's pip fills it: a pip of its own takes ten seconds and is asked nothing else.
    check(sys.executable, "-m", "venv", "--without-pip", place, cwd=place.parent)
    pip = (sys.executable, "-m", "pip", "--python", place / "bin" / "python", "--disable-pip-version-check")
    options = ("--no-input", "install", "-q", "-c", ROOT / "constraints.txt")
    check(*pip, *options, f"{wheel}{extras}", cwd=place.parent)
    return place / "bin"


@pytest.fixture(scope="session")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an environment with the tracer alone."""
    return install(wheel, "", tmp_path_factory.mktemp("base") / "venv")


@pytest.fixture(scope="session")
def server(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an environment with the server."""
    return install(wheel, "[server]", tmp_path_factory.mktemp("server") / "venv")
