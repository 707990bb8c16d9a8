"""Vendor the browser libraries of the dashboard from their npm packages, with hashes and licences.

    python -m scripts.vendor_assets            fetch the pinned versions with npm and write them
    python -m scripts.vendor_assets --check    compare what is vendored with its manifest; no network

Pages load nothing from another host, so the files live in the repository. `vendored.json` beside them
records for each file its package, version and SHA-256: what was reviewed is what is served.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.system import ROOT, SetupError, say

VENDOR = ROOT / "frontend" / "specscope_frontend" / "static" / "vendor"
MANIFEST = VENDOR / "vendored.json"


@dataclass(frozen=True)
class Package:
    """One npm package: which of its files are taken, and under which name they are served."""

    name: str
    version: str
    licence: str
    files: dict[str, str]


# The cartesian build has bars, lines and heat maps at a third of the full size, and no trace that needs
# `new Function` (WebGL ones do). Its stylesheet is only in the main package; linking it lets a policy
# without inline styles hold: see docs/adr/.
PACKAGES = (
    Package("htmx.org", "4.0.1", "0BSD", {"dist/htmx.min.js": "htmx.min.js", "LICENSE": "htmx.LICENSE.txt"}),
    Package(
        "plotly.js-cartesian-dist-min",
        "4.1.1",
        "MIT",
        {"plotly-cartesian.min.js": "plotly-cartesian.min.js", "LICENSE": "plotly.LICENSE.txt"},
    ),
    Package("plotly.js", "4.1.1", "MIT", {"dist/plotly.css": "plotly.css"}),
)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fetch(package: Package, scratch: Path) -> dict[str, bytes]:
    """Return the wanted files of a package by the name they are served under.

    Raises:
        SetupError: npm is missing, the package cannot be fetched, or lacks a file.
    """
    wanted = f"{package.name}@{package.version}"
    say(f"fetching {wanted}")
    try:
        packed = subprocess.run(
            ["npm", "pack", "--silent", wanted], cwd=scratch, capture_output=True, text=True, check=True
        )
    except FileNotFoundError as error:
        raise SetupError("npm is not installed; it is only needed to vendor assets anew") from error
    except subprocess.CalledProcessError as error:
        raise SetupError(f"npm pack {wanted} failed: {error.stderr.strip()}") from error
    found: dict[str, bytes] = {}
    with tarfile.open(scratch / packed.stdout.strip().splitlines()[-1]) as archive:
        for inside, served in package.files.items():
            try:
                member = archive.extractfile(f"package/{inside}")
            except KeyError:
                member = None
            if member is None:
                raise SetupError(f"{wanted} has no file {inside}")
            found[served] = member.read()
    return found


def vendor() -> None:
    entries: list[dict[str, str]] = []
    VENDOR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for package in PACKAGES:
            for served, data in fetch(package, Path(scratch)).items():
                (VENDOR / served).write_bytes(data)
                entries.append(
                    {
                        "file": served,
                        "package": package.name,
                        "version": package.version,
                        "licence": package.licence,
                        "sha256": sha256(data),
                    }
                )
    MANIFEST.write_text(json.dumps({"files": entries}, indent=2) + "\n", encoding="utf-8")
    say(f"vendored {len(entries)} files into {VENDOR.relative_to(ROOT)}")


def problems() -> list[str]:
    """Say how the vendored files differ from their manifest and the manifest from the pinned versions."""
    entries: list[dict[str, Any]] = json.loads(MANIFEST.read_text(encoding="utf-8"))["files"]
    pinned = {
        served: (package.name, package.version, package.licence)
        for package in PACKAGES
        for served in package.files.values()
    }
    recorded = {e["file"]: (e["package"], e["version"], e["licence"]) for e in entries}
    found = [
        f"{name}: pinned {pinned.get(name)}, recorded {recorded.get(name)}"
        for name in pinned | recorded
        if pinned.get(name) != recorded.get(name)
    ]
    for entry in entries:
        path = VENDOR / entry["file"]
        if not path.is_file():
            found.append(f"{entry['file']}: missing")
        elif sha256(path.read_bytes()) != entry["sha256"]:
            found.append(f"{entry['file']}: differs from its recorded SHA-256")
    extra = {p.name for p in VENDOR.iterdir()} - {e["file"] for e in entries} - {MANIFEST.name}
    return found + [f"{name}: not in the manifest" for name in sorted(extra)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the manifest, fetch nothing")
    if not parser.parse_args(arguments).check:
        try:
            vendor()
        except SetupError as error:
            print(error, file=sys.stderr)
            return 1
    found = problems()
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
