"""`make test`: everything this repository checks of itself, from nothing.

Installs what the tests need from Debian where it may, makes both environments, then
runs ruff, pyright and pytest, and says at the end what failed. Standard library only.

    python3 -m scripts.checks                    without the tests marked slow
    python3 -m scripts.checks --slow             all of them
    python3 -m scripts.checks --only lint        ruff and pyright
    python3 -m scripts.checks -- tests/api -x    the rest goes to pytest
    python3 -m scripts.checks -- -n 0            one test at a time, as a debugger wants it
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts import project_env, sglang_env
from scripts.system import ROOT, SetupError, install_packages, say

EXTRAS = ("server", "postgres", "dev")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
POSTGRES = Path("/usr/lib/postgresql")
"""Where Debian puts `initdb` and `postgres`, outside the search path: `<version>/bin/`."""
LOG = ROOT / ".envs" / "packages.log"
WORKERS = 2
"""Processes that run tests. An engine keeps one core busy and takes 1.9 GB; at `-n 2` two run at a time."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check this repository from nothing.")
    parser.add_argument("--slow", action="store_true", help="also the tests marked slow")
    parser.add_argument("--only", choices=("lint", "tests"), help="a part of it")
    parser.add_argument("pytest", nargs="*", help="goes to pytest as it is (after --)")
    options = parser.parse_args(arguments)
    try:
        return _check(options.only, options.slow, options.pytest)
    except SetupError as error:
        print(f"\nchecks: {error}", file=sys.stderr)
        return 2


def _check(only: str | None, slow: bool, pytest: Sequence[str]) -> int:
    if only != "lint":
        sglang_env.check_platform()  # before anything is downloaded
        packages = missing_packages()
        if packages:
            install_packages(packages, "for the tests (a browser, a PostgreSQL server)", LOG)
    python = project_env.ensure(EXTRAS)
    failed: list[str] = []
    with ThreadPoolExecutor(1) as beside:
        linted = beside.submit(_lint, python.parent) if only != "tests" else None
        if only != "lint":
            sglang_env.ensure()  # one core each
    if linted is not None:
        failed += linted.result()
    if only != "lint":
        marks = () if slow else ("-m", "not slow")
        if not _run(python, "-m", "pytest", "-n", str(WORKERS), *marks, *pytest):
            failed.append("pytest")
    say(f"failed: {', '.join(failed)}" if failed else "everything passed")
    return 1 if failed else 0


def _lint(programs: Path) -> list[str]:
    """Run ruff and pyright; return those that found something."""
    tools = (("ruff", "check"), ("ruff", "format", "--check"), ("pyright",))
    return [" ".join(tool) for tool in tools if not _run(programs / tool[0], *tool[1:])]


def missing_packages() -> list[str]:
    """Debian packages that the tests need and this machine lacks."""
    wanted: list[str] = []
    if not any(shutil.which(browser) for browser in BROWSERS):
        wanted += ["chromium", "fonts-dejavu-core"]  # without a font, pages are pictures of nothing
    if shutil.which("initdb") is None and not any(POSTGRES.glob("*/bin/initdb")):
        wanted.append("postgresql")
    return wanted


def _run(*command: str | Path) -> bool:
    arguments = [str(part) for part in command]
    say(f"$ {' '.join(arguments)}")
    return subprocess.run(arguments, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
