"""A Docker daemon of the test's own: its data, network and processes go when the test goes.

It publishes ports through Docker's user-space proxy and leaves the machine's packet
filter and routing alone (no iptables, no forwarding), so it runs where those may not
be touched and beside another daemon.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from scripts.system import SetupError, install_packages, say, tail

PACKAGES = {
    "dockerd": "docker.io",
    "docker-compose": "docker-compose",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
}
"""Program -> the Debian package it comes from."""
PATH = f"/usr/sbin:/usr/bin:/sbin:/bin:{os.environ.get('PATH', '')}"
"""Debian's programs first: daemon, client and compose must be of one age."""
BRIDGE = "specscope-test0"
"""The interface of the stack's network; override.yml gives it this name."""
START_SECONDS = 60.0
STOP_SECONDS = 60.0


def forget_settings() -> None:
    """Drop every variable that steers docker, compose or the stack from this process's environment.

    A developer's own settings must not change what is tested.
    """
    steering = ("DOCKER_", "COMPOSE_", "POSTGRES_", "SPECSCOPE_", "DEMO_", "ENGINE_")
    for name in [name for name in os.environ if name.startswith(steering)]:
        del os.environ[name]


def environment(root: Path) -> dict[str, str]:
    """The environment in which docker and docker-compose speak to the daemon below `root`."""
    return {
        **os.environ,
        "PATH": PATH,
        "DOCKER_HOST": f"unix://{root}/docker.sock",
        "DOCKER_BUILDKIT": "1",
        "COMPOSE_DOCKER_CLI_BUILD": "1",
        "BUILDKIT_PROGRESS": "plain",
    }


def require_programs(log: Path) -> None:
    """Install what the test runs and this machine lacks. Raises SetupError when it may not."""
    if os.geteuid() != 0:
        raise SetupError("compose-test starts a Docker daemon and needs root: run it with sudo")
    missing = [package for program, package in PACKAGES.items() if shutil.which(program, path=PATH) is None]
    if missing:
        install_packages(missing, "to run docker-compose.yml for real", log)


@contextmanager
def docker_daemon(root: Path) -> Generator[dict[str, str]]:
    """Run a daemon with everything it keeps below `root`; yield the environment to reach it by.

    `root` is emptied first and removed afterwards, leftovers of a killed run included.

    Raises SetupError: the daemon does not come up; the message has the end of its log.
    """
    clear(root)
    root.mkdir(mode=0o700, parents=True)
    log = root / "dockerd.log"
    say("starting a Docker daemon")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "dockerd",
                "--iptables=false",
                "--ip6tables=false",
                "--ip-masq=false",
                "--ip-forward=false",
                "--bridge=none",
                f"--data-root={root}/data",
                f"--exec-root={root}/exec",
                f"--host=unix://{root}/docker.sock",
                f"--pidfile={root}/docker.pid",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": PATH},
            start_new_session=True,  # Ctrl-C ends the test first, which then stops the stack in order
        )
    try:
        reach = environment(root)
        deadline = time.monotonic() + START_SECONDS
        while (
            subprocess.run(["docker", "version"], env=reach, capture_output=True, check=False).returncode != 0
        ):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SetupError(f"the Docker daemon did not come up; its log ends with\n{tail(log)}")
            time.sleep(0.5)
        yield reach
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        clear(root)


def clear(root: Path) -> None:
    """Stop the daemon that a killed run left below `root`, and remove its mounts, interface and files."""
    _stop_left_over(root)
    for mount in _mounts_below(root):
        subprocess.run(["umount", "--lazy", mount], check=False)
    if Path("/sys/class/net", BRIDGE).exists():
        subprocess.run(["ip", "link", "delete", BRIDGE], env={**os.environ, "PATH": PATH}, check=True)
    left = _mounts_below(root)
    if left:  # removing files through a mount could remove what is not ours
        raise SetupError(f"{root} still has mounts: {', '.join(left)}; unmount them and remove it by hand")
    if root.exists():
        shutil.rmtree(root)


def _stop_left_over(root: Path) -> None:
    """End every process that names a path below `root` on its command line: daemon, containerd, shims.

    After a clean stop there is none. Only such processes are touched.
    """
    for number, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        for pid in _processes_of(root):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + patience
        while _processes_of(root) and time.monotonic() < deadline:
            time.sleep(0.2)


def _processes_of(root: Path) -> list[int]:
    mark = f"{root}/".encode()
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it ended meanwhile
            continue
        program = Path(os.fsdecode(arguments[0])).name
        if program.startswith(("dockerd", "containerd")) and any(mark in argument for argument in arguments):
            found.append(int(folder.name))
    return found


def _mounts_below(root: Path) -> list[str]:
    """Mount points below `root`, the innermost first."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    points = [line.split(" ")[1].replace("\\040", " ") for line in lines]
    return sorted((point for point in points if point.startswith(f"{root}/")), key=len, reverse=True)
