"""What is shown: the default stack keeps a request over a restart; the demo's engine answers and is seen."""

from __future__ import annotations

import json
import re
import socket
import time
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from scripts.system import ROOT, SetupError, say
from tests.compose.stack import Stack, ask
from tests.compose.trace import ACCEPTED, VERIFY_STEPS, finished_request

DEFAULT_SERVICES = {"postgres", "specscope"}
DEMO_SERVICES = {*DEFAULT_SERVICES, "engine", "load"}
HEALTHY_SECONDS = 300.0
"""Ten seconds on an idle machine; as long as this where two cores carry a load of 12."""
ENGINE_SECONDS = 900.0
"""Eighty seconds on two cores with little else to do."""
SEEN_SECONDS = 180.0
PROTOBUF = "application/x-protobuf"
ANSWER_TOKENS = 48


@dataclass
class Checks:
    """Counts the checks that passed; the first that does not ends the story."""

    passed: int = 0

    def expect(self, what: str, met: bool, found: object) -> None:
        """Count `what` as passed. Raises SetupError with what was `found` when it is not `met`."""
        if not met:
            raise SetupError(f"FAILED: {what}; found: {found}")
        self.passed += 1
        say(f"ok: {what}")


def tell(stack: Stack, checks: Checks, demo: bool) -> None:
    """Build, start, use, restart and remove the stack; with `demo` the demo profile too.

    Raises SetupError at the first thing that is not as it should be; the log then has
    what every container said. The stack is down when this returns or raises.
    """
    port, engine_port = _free_port(), _free_port()
    ports = {
        "SPECSCOPE_PORT": str(port),
        "SPECSCOPE_GRPC_PORT": str(_free_port()),
        "ENGINE_PORT": str(engine_port),
    }
    stack = replace(stack, environment={**stack.environment, **ports})
    server = f"http://127.0.0.1:{port}"
    try:
        _default_stack(stack, checks, server)
        if demo:
            _demo(stack, checks, server, f"http://127.0.0.1:{engine_port}")
    except SetupError:
        with stack.log.open("a", encoding="utf-8") as log:
            for service in sorted(DEMO_SERVICES):
                log.write(f"\n--- the last lines of {service}\n{stack.logs(service, 200)}\n")
        raise
    finally:
        stack.compose("removing the stack", "down", "--volumes", "--remove-orphans", profile="demo")
    left = stack.docker("ps", "--all", "--quiet") + stack.docker("volume", "ls", "--quiet")
    checks.expect("no container and no volume is left", not left, left)


def _default_stack(stack: Stack, checks: Checks, server: str) -> None:
    stack.compose("checking docker-compose.yml", "config", "--quiet")
    stack.compose("checking docker-compose.yml with the demo", "config", "--quiet", profile="demo")
    stack.compose("building the server's image (about 2 minutes)", "build", "specscope")
    stack.compose("starting PostgreSQL and the server", "up", "--detach", "--no-build")
    _wait_for_server(stack, checks, "is healthy after the first start")
    running = set(stack.containers())
    checks.expect("the default stack is PostgreSQL and the server", running == DEFAULT_SERVICES, running)
    _check_confinement(stack, checks)
    _check_pages(checks, server)

    sent = finished_request()
    status, answer = ask(f"{server}/v1/traces", sent.body, PROTOBUF)
    checks.expect("an OTLP trace export is taken", status == 200, (status, answer))
    before = _request(server, sent.uid)
    told = (before["rid"], before["totals"]["verify_steps"], before["totals"]["accepted"])
    checks.expect("the API tells of the request", told == (sent.rid, VERIFY_STEPS, ACCEPTED), before)

    stack.compose("removing the containers, keeping the data", "down")
    stack.compose("starting the stack again", "up", "--detach", "--no-build")
    _wait_for_server(stack, checks, "is healthy after the restart")
    after = _request(server, sent.uid)
    checks.expect("the request is there after the restart, unchanged", after == before, after)


def _wait_for_server(stack: Stack, checks: Checks, what: str) -> None:
    stack.wait_healthy("specscope", HEALTHY_SECONDS)
    # The server waits for PostgreSQL's health check: without that it would have ended and been restarted.
    restarts = int(stack.inspect("specscope")["RestartCount"])
    checks.expect(f"the server {what}, started once", restarts == 0, f"{restarts} restarts")


def _check_confinement(stack: Stack, checks: Checks) -> None:
    status = stack.try_in("specscope", "cat", "/proc/1/status").stdout
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    user, capabilities = facts["Uid"].split()[0], int(facts["CapEff"], 16)
    checks.expect("the server does not run as root", user != "0", user)
    checks.expect("the server has no capabilities", capabilities == 0, facts["CapEff"])
    wrote = stack.try_in("specscope", "touch", "/opt/specscope/written")
    checks.expect("the server's file system is read-only", "Read-only" in wrote.stderr, wrote)
    published = [
        (service, inside, binding["HostIp"])
        for service in DEFAULT_SERVICES
        for inside, bindings in stack.inspect(service)["NetworkSettings"]["Ports"].items()
        for binding in bindings or ()
    ]
    expected = [("specscope", f"{port}/tcp", "127.0.0.1") for port in (4317, 4318)]
    checks.expect("OTLP's ports are published, on loopback only", sorted(published) == expected, published)


def _check_pages(checks: Checks, server: str) -> None:
    status, page = ask(f"{server}/")
    text = page.decode("utf-8", "replace")
    checks.expect("the first page is served", status == 200 and "SpecScope" in text, (status, text[:300]))
    assets = sorted(set(re.findall(r'(?:src|href)="(/static/[^"]+)"', text)))
    statuses = {asset: ask(f"{server}{asset}")[0] for asset in assets}
    served = bool(assets) and set(statuses.values()) == {200}
    checks.expect("the page's own scripts and styles are in the image", served, statuses)


def _demo(stack: Stack, checks: Checks, server: str, engine: str) -> None:
    what = "building the engine's and the load's images (about 5 minutes, 3 GB)"
    stack.compose(what, "build", "engine", "load", profile="demo")
    stack.compose("starting the demo", "up", "--detach", "--no-build", profile="demo")
    stack.wait_healthy("engine", ENGINE_SECONDS)
    for entry in _first_of_each_domain():
        body = {
            "rid": f"compose-test-known-{entry['id']}",
            "input_ids": entry["prompt"],
            "sampling_params": {"temperature": 0, "max_new_tokens": ANSWER_TOKENS, "ignore_eos": True},
        }
        status, answer = ask(f"{engine}/generate", json.dumps(body).encode())
        tokens = json.loads(answer).get("output_ids") if status == 200 else answer
        checks.expect(f"the engine answers {entry['id']} as known", tokens == entry["reference"], tokens)
    _wait_for_requests(checks, server, "compose-test-known-", 3)
    _wait_for_requests(checks, server, "load-", 3)
    running = set(stack.containers())
    checks.expect("the demo is the default stack, engine and load", running == DEMO_SERVICES, running)


def _first_of_each_domain() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((ROOT / "models/tiny/prompts.json").read_text("utf-8"))
    return list({entry["domain"]: entry for entry in reversed(entries)}.values())


def _wait_for_requests(checks: Checks, server: str, rid: str, wanted: int) -> None:
    """Wait until the API tells of `wanted` finished requests whose rid starts with `rid`."""
    deadline = time.monotonic() + SEEN_SECONDS
    while True:
        found = _get(f"{server}/api/v1/requests?text={quote(rid)}&state=finished")["items"]
        if len(found) >= wanted or time.monotonic() > deadline:
            break
        time.sleep(2.0)
    accepted = sum(request["totals"]["accepted"] for request in found)
    what = f"SpecScope tells of the {rid}* requests, with accepted drafts"
    checks.expect(what, len(found) >= wanted and accepted > 0, found)


def _request(server: str, uid: str) -> dict[str, Any]:
    return _get(f"{server}/api/v1/requests/{quote(uid)}")["request"]


def _get(url: str) -> dict[str, Any]:
    status, answer = ask(url)
    if status != 200:
        raise SetupError(f"FAILED: {url} answers {status}: {answer[:500]!r}")
    return json.loads(answer)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
