"""Builds the environment in which unmodified SGLang serves the tiny models on a CPU.

The recipe lies in ``engines/sglang-cpu/``. The environment is for the demo and the
tests only: its stand-in for SGLang's kernels must never reach a GPU machine.
Standard library only. Runs again cheaply: finished steps are stamped with a hash of
what they were made from.

    python3 -m scripts.sglang_env              build or complete .envs/sglang
    python3 -m scripts.sglang_env --check      only say whether it can run here
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scripts.system import ROOT, SetupError, ensure_venv, locked, run, say, shown, tail

ENVIRONMENT = ROOT / ".envs" / "sglang"
RECIPE = ROOT / "engines" / "sglang-cpu"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds, asked only when the default index has none."""

PYTHON_VERSIONS = ((3, 11), (3, 12), (3, 13))
"""Versions for which every pin of the recipe has a ready-made wheel."""
MINIMUM_GLIBC = (2, 34)
"""Older C libraries cannot load the wheels of SGLang 0.5.23."""
FREE_BYTES = 5 * 10**9
"""The environment takes 2.8 GB; pip unpacks its downloads beside it meanwhile."""

ELSEWHERE = (
    "Everything else works here: `specscope serve`, and tracing an SGLang on a GPU machine (see README.md)."
)


@dataclass(frozen=True)
class Machine:
    """The facts that decide whether SGLang's CPU path runs."""

    system: str
    """As `platform.system()` gives it, e.g. ``Linux``."""
    architecture: str
    """As `platform.machine()` gives it, e.g. ``x86_64``."""
    glibc: tuple[int, int] | None
    """None where the C library is another one."""
    python: tuple[int, int]
    free_bytes: int | None
    """Room left for the environment; None once it is built."""


def this_machine(environment: Path) -> Machine:
    """Look at the machine this runs on. No side effects."""
    place = environment
    while not place.exists():
        place = place.parent
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        glibc=_glibc(),
        python=sys.version_info[:2],
        free_bytes=None if (environment / STAMP).is_file() else shutil.disk_usage(place).free,
    )


def _glibc() -> tuple[int, int] | None:
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError):  # musl has no such name, macOS no such call
        return None
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) if name == "glibc" else None


def problems(machine: Machine) -> list[str]:
    """Why SGLang's CPU path cannot run on `machine`, each with what to do; empty when it can."""
    found: list[str] = []
    if machine.system != "Linux":
        found.append(f"SGLang's CPU path runs on Linux and this is {machine.system}: use a Linux machine.")
    if machine.architecture not in ("x86_64", "amd64", "AMD64"):
        found.append(
            f"SGLang's CPU path needs an x86-64 processor and this one is {machine.architecture}: "
            "use an x86-64 machine."
        )
    if machine.system == "Linux" and machine.glibc is None:
        found.append("The C library is not glibc (Alpine's is musl): use Debian 12 or another glibc system.")
    elif machine.glibc is not None and machine.glibc < MINIMUM_GLIBC:
        found.append(
            f"glibc is {_dotted(machine.glibc)} and SGLang needs {_dotted(MINIMUM_GLIBC)} or newer: "
            "use Debian 12, Ubuntu 22.04 or newer."
        )
    if machine.python not in PYTHON_VERSIONS:
        known = ", ".join(_dotted(version) for version in PYTHON_VERSIONS)
        found.append(
            f"Python is {_dotted(machine.python)} and the recipe's packages exist for {known}: install one "
            f"of these and name it, for example `make demo PYTHON=python{_dotted(PYTHON_VERSIONS[0])}`."
        )
    if machine.free_bytes is not None and machine.free_bytes < FREE_BYTES:
        found.append(
            f"{machine.free_bytes / 1e9:.1f} GB are free, the environment needs {FREE_BYTES / 1e9:.0f} GB: "
            "make room and try again."
        )
    return found


def _dotted(version: Iterable[int]) -> str:
    return ".".join(str(part) for part in version)


def check_platform(environment: Path = ENVIRONMENT) -> None:
    """Raise SetupError with every reason why SGLang's CPU path cannot run here."""
    found = problems(this_machine(environment))
    if found:
        reasons = "\n".join(f"  - {reason}" for reason in found)
        raise SetupError(f"the SGLang-CPU environment cannot run on this machine:\n{reasons}\n{ELSEWHERE}")


STAMP = "specscope-steps.json"
"""In the environment: step name -> hash of what the step was made from."""


def ensure(environment: Path = ENVIRONMENT) -> Path:
    """Build `environment`, or complete it, or find it complete; return its Python.

    Raises SetupError when the machine cannot run it or a step fails. A failed or
    interrupted build goes on where it stopped; a changed recipe starts from nothing.
    """
    check_platform(environment)
    log = environment.parent / f"{environment.name}.log"
    with locked(environment.parent / f"{environment.name}.lock"):
        recipe, package = fingerprint(RECIPE), fingerprint(ROOT / "pyproject.toml")
        done = _read_stamp(environment)
        if any(value != recipe for step, value in done.items() if step != "specscope"):
            say(f"the recipe in {shown(RECIPE)} changed: building {shown(environment)} anew")
            shutil.rmtree(environment)
            done = {}
        if done.get("shim") != recipe:
            say(f"building {shown(environment)} (about 2 minutes and 2.8 GB; the log is {shown(log)})")
        python = ensure_venv(environment, log)
        for step, made_from, action in (
            ("torch", recipe, _install_torch),
            ("packages", recipe, _install_packages),
            ("sglang", recipe, _install_sglang),
            ("shim", recipe, _install_shim),
            ("specscope", package, _install_specscope),
        ):
            if done.get(step) != made_from:
                action(_Pip(python, log))
                done[step] = made_from
                (environment / STAMP).write_text(json.dumps(done, indent=2) + "\n", encoding="utf-8")
    return python


@dataclass(frozen=True)
class _Pip:
    python: Path
    log: Path

    def install(self, what: str, *arguments: str | Path) -> None:
        pip = [self.python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        run([*pip, "--progress-bar", "off", *arguments], what, self.log)


def _install_torch(pip: _Pip) -> None:
    pins = RECIPE / "requirements-torch.txt"
    try:
        pip.install("installing torch (CPU build, about 200 MB)", "-r", pins)
    except SetupError:
        # Only a build that is not there is a reason to look elsewhere; a full disk or
        # a broken network would fail a second time with a less clear message.
        if "No matching distribution found" not in tail(pip.log):
            raise
        pip.install(
            "installing torch from PyTorch's own CPU index", "--extra-index-url", TORCH_CPU_INDEX, "-r", pins
        )


def _install_packages(pip: _Pip) -> None:
    pins = ("-r", RECIPE / "requirements-torch.txt", "-r", RECIPE / "requirements.txt")
    pip.install("installing what SGLang imports", *pins, "setuptools", "wheel")


def _install_sglang(pip: _Pip) -> None:
    pip.install("installing SGLang", "--no-deps", "-r", RECIPE / "requirements-no-deps.txt")


def _install_shim(pip: _Pip) -> None:
    copy = pip.python.parent.parent / "shim-build"  # setuptools builds inside the source folder
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(RECIPE / "shim", copy)
    try:
        pip.install("installing the CPU stand-in for sgl_kernel", "--no-deps", "--no-build-isolation", copy)
    finally:
        shutil.rmtree(copy)


def _install_specscope(pip: _Pip) -> None:
    # Editable: the tracer that runs is the one in the checkout. The constraints keep SGLang's pins.
    frozen = subprocess.run(
        [pip.python, "-m", "pip", "--disable-pip-version-check", "freeze", "--all", "--exclude-editable"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    pins = pip.python.parent.parent / "installed.txt"
    lines = [line for line in frozen.splitlines() if "==" in line and not line.startswith("specscope=")]
    pins.write_text("\n".join(lines) + "\n", encoding="utf-8")
    pip.install("installing the SpecScope tracer beside it", "-c", pins, "-e", ROOT)


def fingerprint(source: Path) -> str:
    """Hash of the names and contents of `source`, a file or a folder; notes (``.md``) do not count."""
    digest = hashlib.sha256()
    for file in sorted([source] if source.is_file() else source.rglob("*")):
        if not file.is_file() or file.suffix == ".md" or "__pycache__" in file.parts:
            continue
        digest.update(f"{file.relative_to(source)}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read_stamp(environment: Path) -> dict[str, str]:
    try:
        return dict(json.loads((environment / STAMP).read_text(encoding="utf-8")))
    except (OSError, ValueError):  # none yet, or cut off by a power loss: build anew
        return {}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Build the SGLang-CPU environment of the demo and the tests."
    )
    parser.add_argument(
        "--environment", type=Path, default=ENVIRONMENT, help="folder (default: .envs/sglang)"
    )
    parser.add_argument("--check", action="store_true", help="only say whether it can run on this machine")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            check_platform(options.environment)
            print("SGLang's CPU path can run on this machine.")
        else:
            say(f"SGLang is ready: {ensure(options.environment)}")
    except SetupError as error:
        print(f"sglang_env: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
