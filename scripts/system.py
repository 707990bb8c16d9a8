"""What the scripts need from the machine: progress, commands, virtual environments, system packages.

Standard library only. Nothing here asks a question: commands get no standard input.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""

STARTED = time.monotonic()
MINIMUM_PYTHON = (3, 11)
HEARTBEAT_SECONDS = 15.0
"""A command that runs longer than this says so, with its last line of output."""
TAIL_LINES = 25
"""Lines of a log shown when its command fails: a Python traceback and its cause fit."""
LINE_CHARACTERS = 400
"""Of each: SGLang prints all its arguments, 19,000 characters, in one."""


class SetupError(Exception):
    """Something the machine lacks or refuses; the message says what, where and what to do."""


def say(message: str) -> None:
    """Print one line of progress with the seconds since the start."""
    print(f"[{time.monotonic() - STARTED:5.0f} s] {message}", flush=True)


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last `lines` lines of a log; of a log that was never written, a sentence saying so."""
    if not log.is_file():
        return f"(nothing was written to {log})"
    last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join(line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]} …" for line in last)


def run(
    command: Sequence[str | Path], what: str, log: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Run `command` with its output in `log`, showing that it is alive.

    Raises SetupError with the end of the log when the command fails or is not there.
    The command and its children end with this call, whatever ends it.
    """
    say(what)
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = [str(part) for part in command]
    with log.open("ab") as output:
        output.write(f"\n$ {' '.join(arguments)}\n".encode())
        output.flush()
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise SetupError(f"{what}: cannot run {arguments[0]}: {error}") from error
        try:
            _wait_with_heartbeat(process, what, log)
        finally:
            end_group(process)
    if process.returncode != 0:
        raise SetupError(f"{what}: failed with exit code {process.returncode}; {log} ends with\n{tail(log)}")


def _wait_with_heartbeat(process: subprocess.Popen[bytes], what: str, log: Path) -> None:
    while True:
        try:
            process.wait(HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"  still at it: {tail(log, 1).strip()[:100] or what}")
        else:
            return


def end_group(process: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """End a process started with `start_new_session`, and all its children.

    The process itself is asked first, so that it can end its children in its own order;
    what is left of the group after `patience` seconds is told, then killed.
    """
    for number, whole in ((signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGKILL, True)):
        if not _group_lives(process):
            break
        with suppress(ProcessLookupError):
            if whole:
                os.killpg(process.pid, number)
            elif process.poll() is None:
                process.send_signal(number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and _group_lives(process):
            time.sleep(0.05)
    process.wait()


def _group_lives(process: subprocess.Popen[bytes]) -> bool:
    process.poll()  # reaps the leader, which otherwise would count as alive
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def locked(path: Path, busy: str | None = None) -> Generator[None]:
    """Hold the lock file `path`: wait for another holder, or raise SetupError(`busy`) when given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if busy is not None:
                raise SetupError(busy) from None
            say(f"waiting for another run that holds {path}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def require_python() -> None:
    """Raise SetupError when this Python is older than the project's."""
    if sys.version_info < MINIMUM_PYTHON:
        wanted, here = (".".join(map(str, version[:2])) for version in (MINIMUM_PYTHON, sys.version_info))
        raise SetupError(
            f"Python {wanted} or newer is needed and {sys.executable} is {here}: install a newer one "
            f"and name it, for example `make demo PYTHON=python{wanted}`"
        )


def ensure_venv(path: Path, log: Path) -> Path:
    """Create the virtual environment `path` when it is not there; return its Python.

    Debian ships Python without the parts that make environments; they are installed
    when this may be done, and named otherwise.
    """
    python = path / "bin" / "python"
    if python.exists() and (path / "bin" / "pip").exists():
        return python
    if not _has_module("ensurepip"):
        major, minor = sys.version_info[:2]
        install_packages([f"python{major}.{minor}-venv"], "to create Python environments", log)
    shutil.rmtree(path, ignore_errors=True)
    run([sys.executable, "-m", "venv", path], f"creating the Python environment {shown(path)}", log)
    return python


def _has_module(name: str) -> bool:
    # In a process of its own: an import that failed once stays failed in this one.
    return (
        subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode
        == 0
    )


def install_packages(packages: Sequence[str], why: str, log: Path) -> None:
    """Install Debian packages, as root or through a sudo that asks for no password.

    Raises SetupError naming the command to type when neither is possible, and the
    packages when this is no Debian.
    """
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise SetupError(f"needed {why}: {names} (Debian's names; install what your system calls them)")
    prefix = _root_prefix()
    if prefix is None:
        raise SetupError(
            f"needed {why}: {names}. Run this, then try again:\n    sudo apt-get install -y {names}"
        )
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    run([*apt, "update"], f"refreshing the package lists ({why})", log, quiet)
    run(
        [*apt, "install", "-y", "--no-install-recommends", *packages], f"installing {names} {why}", log, quiet
    )


def _root_prefix() -> list[str] | None:
    if os.geteuid() == 0:
        return []
    if (
        shutil.which("sudo")
        and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    ):
        return ["sudo", "-n"]
    return None


def shown(path: Path) -> str:
    """`path` as a person at the checkout would type it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
