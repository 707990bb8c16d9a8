"""Commands say what went wrong, and nothing a script starts outlives it."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import checks
from scripts.demo import choose_port
from scripts.services import Service, free_port, port_is_free
from scripts.system import ROOT, SetupError, end_group, install_packages, locked, run

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); print('up', flush=True); time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""  # noqa: E501


def test_a_failing_command_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('cannot find the moon'); raise SystemExit(3)"]
    with pytest.raises(SetupError, match=r"(?s)looking up: failed with exit code 3.*cannot find the moon"):
        run(command, "looking up", tmp_path / "log")


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot run no-such-program"):
        run(["no-such-program"], "trying", tmp_path / "log")


def test_a_command_gets_no_input(tmp_path: Path) -> None:
    run(
        [sys.executable, "-c", "import sys; print('read', repr(sys.stdin.read()))"],
        "reading",
        tmp_path / "log",
    )
    assert "read ''" in (tmp_path / "log").read_text(encoding="utf-8")


def test_children_that_ignore_being_told_end_as_well() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as output:
        lines = {output.readline().strip(), output.readline().strip()}
    child = int(next(line for line in lines if line.isdigit()))
    end_group(process, patience=0.2)
    assert process.returncode == -signal.SIGKILL
    assert not _runs(child)


def _runs(pid: int) -> bool:
    """Whether `pid` executes anything; a zombie that its new parent has not fetched yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_a_second_run_is_told_to_wait_its_turn(tmp_path: Path) -> None:
    with (
        (tmp_path / "lock").open("w") as other,
        pytest.raises(SetupError, match="somebody else"),
    ):
        fcntl.flock(other, fcntl.LOCK_EX)
        with locked(tmp_path / "lock", busy="somebody else is at it"):
            pass
    with locked(tmp_path / "lock", busy="never"):
        pass


def test_a_server_that_ends_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no model at this path')"]
    with (
        Service("the engine", command, tmp_path / "log") as service,
        pytest.raises(SetupError, match=r"(?s)the engine ended with exit code 1.*no model at this path"),
    ):
        service.wait_for(f"http://127.0.0.1:{free_port()}/", limit=60)


def test_a_server_that_never_answers_is_told_after_its_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; print('thinking', flush=True); time.sleep(600)"]
    with (
        Service("the engine", command, tmp_path / "log") as service,
        pytest.raises(SetupError, match=r"the engine gave no answer at .* within 1 s"),
    ):
        service.wait_for(f"http://127.0.0.1:{free_port()}/", limit=1)
    assert not service.alive


def test_a_server_is_found_when_it_answers_and_hears_nothing_of_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECSCOPE_OFF", "1")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    port = free_port()
    code = (
        "import os, http.server;"
        "print(sorted(n for n in os.environ if n[:5] in ('SPECS', 'OTEL_')), flush=True);"
        f"http.server.test(http.server.SimpleHTTPRequestHandler, port={port}, bind='127.0.0.1')"
    )
    wanted = {"SPECSCOPE_NAME": "x"}
    with Service("a server", [sys.executable, "-c", code], tmp_path / "log", wanted) as service:
        service.wait_for(f"http://127.0.0.1:{port}/LICENSE", limit=60)
        assert not port_is_free(port)
    assert port_is_free(port)
    assert (tmp_path / "log").read_text(encoding="utf-8").startswith("['SPECSCOPE_NAME']")


def test_a_taken_port_is_named_with_the_option_and_in_a_check_avoided() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=rf"port {port} is taken.*make demo PORT={port + 100}"):
            choose_port(port, check=False)
        with pytest.raises(SetupError, match=f"port {port} is taken"):
            choose_port(port, check=True)  # a port that was asked for is never exchanged silently
    assert choose_port(port, check=False) == port


def test_packages_are_named_where_they_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # a machine without apt-get
    with pytest.raises(SetupError, match="needed for the tests: chromium postgresql"):
        install_packages(["chromium", "postgresql"], "for the tests", tmp_path / "log")


def test_a_missing_browser_and_database_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(checks, "POSTGRES", tmp_path)
    assert checks.missing_packages() == ["chromium", "fonts-dejavu-core", "postgresql"]
    for name in ("chromium", "initdb"):
        (tmp_path / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    assert checks.missing_packages() == []


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["demo"], "-m scripts.demo"),
        (["demo", "CHECK=1", "PORT=4400"], "-m scripts.demo --port 4400 --check"),
        (["demo", "CHECK=0"], "-m scripts.demo"),
        (["test", "ARGS=tests/api -x"], "-m scripts.checks -- tests/api -x"),
        (["lint"], "-m scripts.checks --only lint"),
    ],
)
def test_the_makefile_passes_its_variables_on(arguments: list[str], command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", "PYTHON=py", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["py", *command.split()]
