"""``specscope`` as a person starts it: a server in its own process, other commands in this one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import httpx
import typer
from specscope.cli import GROUP, add
from typer.testing import CliRunner, Result

STARTED = re.compile(r"SpecScope listens on (https?://\S+) and stores in (.+)")
GRPC = re.compile(r"OTLP/gRPC (?:listens on (\S+)|is off)")
SPECSCOPE = Path(sys.executable).parent / "specscope"


def environment(**changed: str) -> dict[str, str]:
    """This environment without any setting of ours, changed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SPECSCOPE_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **changed}


@dataclass
class Command:
    """A started server: its process, address, database and what it printed."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list[str])
    url: str = ""
    place: str = ""
    grpc: str = ""
    """``host:port`` of OTLP/gRPC; empty: it is off."""
    reader: threading.Thread | None = None

    def read(self) -> None:
        assert self.process.stdout is not None
        self.lines += self.process.stdout

    def waiting(self) -> int:
        """How many exports wait for their commit."""
        return httpx.get(f"{self.url}/api/v1/status", timeout=60).json()["ingest"]["waiting"]

    def end(self, signal: int) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(signal)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(60)
        if self.reader is not None:
            self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def started(
    *options: str, cwd: Path, env: Mapping[str, str] | None = None, specscope: Path = SPECSCOPE
) -> Generator[Command]:
    """Start a server on a free port, wait until it says where it listens, and end it."""
    process = subprocess.Popen(
        [specscope, "serve", *options],
        cwd=cwd,
        env=environment() if env is None else env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    command = Command(process)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            command.lines.append(line)
            if found := STARTED.search(line):
                command.url, command.place = found.groups()
            if found := GRPC.search(line):
                command.grpc = found[1] or ""
                break
        else:
            raise AssertionError(f"the server ended with {process.wait()}: {''.join(command.lines)}")
        command.reader = threading.Thread(target=command.read)
        command.reader.start()
        yield command
    finally:
        if process.poll() is None:
            process.kill()
        command.wait()


def run(*arguments: str, cwd: Path, input: str | None = None, **env: str) -> Result:
    """Run a command of ours to its end, in this process: loading the server takes seconds of CPU.

    ``input`` is what it reads from standard input.
    """
    whole: dict[str, str | None] = {k: None for k in os.environ if k.startswith("SPECSCOPE_")}
    with chdir(cwd):
        done = CliRunner(env={**whole, **env}).invoke(app(), list(arguments), input=input)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@cache
def app() -> typer.Typer:
    """The ``specscope`` command with the server's parts, as the installed one is put together."""
    found = typer.Typer(rich_markup_mode=None)
    for entry in entry_points(group=GROUP):
        add(found, entry)
    return found
