"""Makes `.venv`: this project, editable, with the extras asked for, at the versions in constraints.txt.

Standard library only. Runs again cheaply: the environment carries a stamp of what it
was made from, and a later call with more extras adds them.

    python3 -m scripts.project_env server postgres dev
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scripts.system import ROOT, SetupError, ensure_venv, locked, require_python, run, say

ENVIRONMENT = ROOT / ".venv"
LOG = ROOT / ".envs" / "project.log"
CONSTRAINTS = ROOT / "constraints.txt"
STAMP = "specscope-extras.json"


def ensure(extras: Iterable[str]) -> Path:
    """Create or complete `.venv` so that it has at least `extras`; return its Python.

    Raises SetupError when Python is too old or a step fails.
    """
    require_python()
    with locked(ROOT / ".envs" / "project.lock"):
        python = ensure_venv(ENVIRONMENT, LOG)
        made_from = hashlib.sha256(
            (ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()
        ).hexdigest()
        stamp = _read_stamp(ENVIRONMENT / STAMP)
        had = set(stamp.get("extras", []))
        if stamp.get("made_from") != made_from or not had.issuperset(extras):
            wanted = sorted(had.union(extras))
            pip = [
                python,
                "-m",
                "pip",
                "--disable-pip-version-check",
                "--no-input",
                "install",
                "--progress-bar",
                "off",
            ]
            project = f"{ROOT}[{','.join(wanted)}]"
            run([*pip, "-c", CONSTRAINTS, "-e", project], f"installing SpecScope ({', '.join(wanted)})", LOG)
            text = json.dumps({"made_from": made_from, "extras": wanted}, indent=2)
            (ENVIRONMENT / STAMP).write_text(text + "\n", encoding="utf-8")
    return python


def _read_stamp(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # none yet, or cut off by a power loss: install again
        return {}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the project's own environment, .venv.")
    parser.add_argument("extras", nargs="*", default=["server"], help="extras of pyproject.toml")
    options = parser.parse_args(arguments)
    try:
        say(f"SpecScope is installed: {ensure(options.extras)}")
    except SetupError as error:
        print(f"project_env: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
