"""Prints the requirements of this project and of the named extras, one a line, from pyproject.toml.

An image build installs these before it copies the code, so that a changed line of
code does not fetch every dependency again. Standard library only.

    python3 docker/dependencies.py server postgres
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(extras: list[str], pyproject: Path = PYPROJECT) -> list[str]:
    """Return the base requirements followed by those of each extra in `extras`.

    Raises SystemExit: an extra that pyproject.toml does not define.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    optional: dict[str, list[str]] = project.get("optional-dependencies", {})
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        if extra not in optional:
            raise SystemExit(f"{pyproject} defines no extra {extra!r}: choose from {', '.join(optional)}")
        found += optional[extra]
    return found


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
