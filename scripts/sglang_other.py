"""Builds an environment with another SGLang version beside that of the tests, sharing all else with it.

The version the tracer was written for lies in ``.envs/sglang``; the other one takes its torch, its stand-in
for the kernels and the tracer from there, and brings only SGLang itself (60 MB).

    python3 -m scripts.sglang_other 0.5.22        build or find .envs/sglang-0.5.22
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from scripts import sglang_env
from scripts.system import SetupError, ensure_venv, locked, run, say

TRACED = ("0.5.22", "0.5.20")
"""Other versions that start on a CPU here and that the slow tests trace."""


def ensure(version: str) -> Path:
    """Build the environment of `version`, or find it built; return its Python.

    Raises SetupError when the machine cannot run it or the version cannot be installed.
    """
    base = sglang_env.ensure()
    environment = sglang_env.ENVIRONMENT.with_name(f"sglang-{version}")
    log = environment.parent / f"{environment.name}.log"
    with locked(environment.parent / f"{environment.name}.lock"):
        python = ensure_venv(environment, log)
        if _installed(python) != version:
            # Behind our own packages on the path, so that the version installed here comes first.
            shared = f"import site; site.addsitedir({str(_packages(base))!r})\n"
            (_packages(python) / "zz-shared.pth").write_text(shared, encoding="utf-8")
            pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
            what = ["--no-deps", "--ignore-installed", f"sglang=={version}"]
            run([*pip, "--progress-bar", "off", *what], f"installing SGLang {version}", log)
    return python


def _ask(python: Path, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _installed(python: Path) -> str:
    return _ask(python, "import importlib.metadata as m; print(m.version('sglang'))")


def _packages(python: Path) -> Path:
    return Path(_ask(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build an environment with another SGLang version.")
    parser.add_argument("version", help=f"for example {TRACED[0]}")
    options = parser.parse_args(arguments)
    try:
        say(f"SGLang {options.version} is ready: {ensure(options.version)}")
    except SetupError as error:
        print(f"sglang_other: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
