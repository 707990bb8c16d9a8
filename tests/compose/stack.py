"""The compose project under test: build, up, down, and questions to its containers."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.system import ROOT, SetupError, run, say

PROJECT = "specscope-test"
FILES = (ROOT / "docker-compose.yml", ROOT / "tests/compose/override.yml")
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Stack:
    """docker-compose.yml with the test's override, on the daemon that `environment` reaches."""

    environment: Mapping[str, str]
    log: Path

    def _compose(self, *arguments: str, profile: str | None = None) -> list[str]:
        files = [part for file in FILES for part in ("--file", str(file))]
        profiles = ["--profile", profile] if profile else []
        return ["docker-compose", "--project-name", PROJECT, *files, *profiles, *arguments]

    def compose(self, what: str, *arguments: str, profile: str | None = None) -> None:
        """Run docker-compose with `arguments`. Raises SetupError with the end of its output when it fails."""
        run(self._compose(*arguments, profile=profile), what, self.log, self.environment)

    def docker(self, *arguments: str) -> str:
        """What a docker command prints. Raises SetupError when it fails."""
        done = self._try(["docker", *arguments])
        if done.returncode != 0:
            raise SetupError(f"docker {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout.strip()

    def try_in(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run `command` in the container of `service`, whatever its exit status."""
        return self._try(["docker", "exec", self.container(service), *command])

    def _try(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=dict(self.environment), cwd=ROOT, capture_output=True, text=True, check=False
        )

    def containers(self) -> dict[str, str]:
        """Service name -> container id, of the containers that run."""
        service = '{{.ID}} {{.Label "com.docker.compose.service"}}'
        filters = ("--filter", f"label=com.docker.compose.project={PROJECT}")
        lines = self.docker("ps", *filters, "--format", service).splitlines()
        return {name: identity for identity, name in (line.split(" ", 1) for line in lines)}

    def container(self, service: str) -> str:
        """The id of the running container of `service`. Raises SetupError when there is none."""
        running = self.containers()
        if service not in running:
            raise SetupError(f"no container of {service} runs; it said last\n{self.logs(service)}")
        return running[service]

    def inspect(self, service: str) -> dict[str, Any]:
        """What docker knows of the container of `service`."""
        return json.loads(self.docker("inspect", self.container(service)))[0]

    def logs(self, service: str, lines: int = 40) -> str:
        """The last `lines` lines that the container of `service` printed, running or not."""
        chosen = f"label=com.docker.compose.service={service}"
        identities = self.docker("ps", "--all", "--quiet", "--filter", chosen).split()
        if not identities:
            return f"({service} has no container)"
        done = self._try(["docker", "logs", "--tail", str(lines), identities[0]])
        return (done.stdout + done.stderr).strip()

    def wait_healthy(self, service: str, patience: float) -> None:
        """Return when the health check of `service` passes.

        Raises SetupError with the container's last lines when it fails, ends, restarts
        or is not healthy within `patience` seconds.
        """
        say(f"waiting until {service} is healthy")
        deadline = time.monotonic() + patience
        while True:
            state = self.inspect(service)
            health = state["State"].get("Health", {}).get("Status", "without a health check")
            if health == "healthy":
                return
            restarts = int(state["RestartCount"])
            if health != "starting" or restarts or time.monotonic() > deadline:
                raise SetupError(
                    f"{service} is {health} after {restarts} restarts; it says\n{self.logs(service)}"
                )
            time.sleep(POLL_SECONDS)


def ask(url: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, bytes]:
    """GET `url`, or POST `body` to it as `kind`; return status and answer.

    Raises SetupError when nobody answers.
    """
    request = urllib.request.Request(url, data=body, headers={"Content-Type": kind} if body else {})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError as error:
        raise SetupError(f"{url}: {error}") from error
