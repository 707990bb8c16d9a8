"""One real engine lives through a receiver that fails in every way, dead exporters and a full disk."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from deployment import Deployment, deployed, eventually
from gate import OPEN, Mood
from specscope import convention as c

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(2400)]

MOODS = (
    Mood("hanging", hangs=True),
    Mood("error 500", 500),
    Mood("busy 429", 429, retry_after="2"),
    Mood("unavailable 503", 503),
    Mood("slow", delay_s=1.5),
    Mood("unauthorised 401", 401),
    Mood("rejecting 400", 400, only_spans=True),
)
BUFFER_MIB = 4
SLACK_MIB = 48.0
"""What an exporter may grow by beyond its buffer: the interpreter's own heap, measured at 2 to 5 MiB."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Generator[Deployment]:
    folder = tmp_path_factory.mktemp("transport")
    with deployed(folder, "no_disk", SPECSCOPE_BUFFER_MB=str(BUFFER_MIB)) as found:
        yield found


@pytest.fixture(scope="module")
def asked() -> list[str]:
    """The requests whose answers were compared so far."""
    return []


def test_it_begins_well(deployment: Deployment, asked: list[str]) -> None:
    asked += deployment.ask("begin")
    told = deployment.receiver.settled(asked)
    assert told.metric(c.METRIC_DROPPED) == 0
    assert all(not reason for reason in told.armed().values())


def test_refusing(deployment: Deployment, asked: list[str]) -> None:
    deployment.gate.refuse()
    _under(deployment, asked, "refusing")


@pytest.mark.parametrize("mood", MOODS, ids=lambda mood: mood.name.replace(" ", "-"))
def test_failing(deployment: Deployment, asked: list[str], mood: Mood) -> None:
    if mood.only_spans:  # what waits from the moods before shall not be rejected
        deployment.gate.be(OPEN)
        deployment.receiver.settled(asked)
    deployment.gate.be(mood)
    _under(deployment, asked, mood.name)
    assert deployment.gate.attempts[mood.name] >= 1, "the exporter did try"


def _under(deployment: Deployment, asked: list[str], mood: str) -> None:
    scheduler, exporter = deployment.scheduler, deployment.exporter
    before = scheduler.resident_mib, exporter.resident_mib
    for number in range(3):
        asked += deployment.ask(f"{mood.replace(' ', '-')}-{number}")
        time.sleep(1)  # a heartbeat and a try or two
    after = scheduler.resident_mib, exporter.resident_mib
    grown = [f"{sooner:.0f} to {later:.0f} MiB" for sooner, later in zip(before, after, strict=True)]
    print(f"{mood}: scheduler {grown[0]}, exporter {grown[1]}")
    assert deployment.exporter.pid == exporter.pid, "the exporter lives on"
    assert after[1] - before[1] < BUFFER_MIB + SLACK_MIB
    assert after[0] - before[0] < SLACK_MIB


def test_what_could_not_be_sent_arrives_or_is_counted(deployment: Deployment, asked: list[str]) -> None:
    rejected = [rid for rid in asked if rid.startswith("rejecting")]
    deployment.gate.be(OPEN)
    told = deployment.receiver.settled([rid for rid in asked if rid not in rejected])
    assert told.metric(c.METRIC_EXPORT_FAILURES) > 10
    # A span of a request that was told as rejected may come again in another: none needs to.
    assert told.metric(c.METRIC_DROPPED, reason="rejected") > 0
    assert told.metric(c.METRIC_DROPPED) == told.metric(c.METRIC_DROPPED, reason="rejected")
    assert told.metric(c.METRIC_REQUESTS, kind="user") == len(asked)
    for rid in asked:
        if rid not in rejected:
            one = told.requests[rid]
            assert one.attributes[c.REQUEST_COMMITTED] == 47, rid
            assert sum(step.committed for step in one.counted) == 47, f"steps of {rid} are missing"


def test_exporters_that_are_killed_are_replaced(deployment: Deployment, asked: list[str]) -> None:
    killed: set[int] = set()
    for number in range(3):
        one = deployment.exporter.pid
        killed.add(one)
        os.kill(one, signal.SIGKILL)
        asked += deployment.ask(f"killed-{number}")
        eventually(lambda: {p.pid for p in deployment.exporters} - killed, "another exporter runs")
    asked += deployment.ask("replaced")
    told = deployment.receiver.settled([rid for rid in asked if rid.startswith("replaced")])
    assert told.metric(c.METRIC_REQUESTS, kind="user") == len(asked)
    assert told.metric(c.METRIC_HOOK_ERRORS) == 0


def test_the_loss_is_shown(deployment: Deployment) -> None:
    def both() -> dict[str, int] | None:
        """What was lost, once the server says the same as the last heartbeat that the receiver got."""
        told = deployment.receiver.wait("a heartbeat", lambda t: t.metric(c.METRIC_DROPPED) > 0)
        lost = {dict(labels)[c.LABEL_REASON]: int(n) for labels, n in told.metrics[c.METRIC_DROPPED].items()}
        (engine,) = deployment.server.get("/api/v1/engines")["items"]
        detail = deployment.server.get(f"/api/v1/engines/{engine['engine_uid']}")
        return lost if detail["processes"][0]["dropped"] == lost else None

    lost: dict[str, int] = eventually(both, "the server has heard the last heartbeat")
    page = deployment.page()
    assert "The tracer dropped records" in page
    assert f"{lost['rejected']:,} (rejected)" in page


def test_nothing_was_written(deployment: Deployment) -> None:
    """The tracer had no byte of disk all the time; the scheduler's own log lines are what it cost."""
    for one in (deployment.scheduler, deployment.exporter):
        limits = Path(f"/proc/{one.pid}/limits").read_text("utf-8")
        (line,) = [line for line in limits.splitlines() if line.startswith("Max file size")]
        assert line.split()[3:5] == ["0", "0"]
    held = {str(place.readlink()) for place in Path(f"/proc/{deployment.exporter.pid}/fd").iterdir()}
    files = {target for target in held if target.startswith("/")}
    assert all(target.startswith("/dev/") or target.endswith("sglang.log") for target in files), files


def test_sigterm_to_the_server_ends_everything(deployment: Deployment) -> None:
    print(f"scheduler {deployment.scheduler.peak_mib:.0f} MiB at most")
    with deployment.busy():
        deployment.end(deployment.engine.pid, signal.SIGTERM)
