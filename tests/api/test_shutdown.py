"""SIGTERM to a real server under load: what it acknowledged is stored, and another may evaluate at once."""

from __future__ import annotations

import itertools
import signal
import threading
from contextlib import closing
from pathlib import Path

import httpx
from serverkit import otlp
from serverkit.command import started
from serverkit.live import PROTOBUF
from specscope_server.alerts.evaluator import LEASE
from specscope_server.store import open_store
from specscope_server.store.model import RequestFilter

SENDERS = 4
ENOUGH = 40


def test_what_was_acknowledged_is_stored(tmp_path: Path) -> None:
    numbers = itertools.count()
    acknowledged: set[str] = set()
    unanswered: set[str] = set()
    refused: set[int] = set()
    enough = threading.Event()

    def send(url: str) -> None:
        with httpx.Client(base_url=url, timeout=30) as client:
            while True:
                number = next(numbers)
                body = otlp.traces(otlp.request_span(number)).SerializeToString()
                try:
                    answer = client.post("/v1/traces", content=body, headers={"Content-Type": PROTOBUF})
                except httpx.TransportError:
                    unanswered.add(otlp.request_uid(number))
                    return
                if answer.status_code != 200:
                    refused.add(answer.status_code)
                    return
                acknowledged.add(otlp.request_uid(number))
                if len(acknowledged) >= ENOUGH:
                    enough.set()

    options = ("--port", "0", "--grpc-port", "off", "--db", "run.db")
    with (
        started(*options, cwd=tmp_path) as server,
        closing(open_store(str(tmp_path / "run.db"))) as other,
    ):
        threads = [threading.Thread(target=send, args=(server.url,)) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        lease = other.lease(LEASE)
        assert not lease.hold(), "the running server evaluates"
        assert server.end(signal.SIGTERM) == 0
        for thread in threads:
            thread.join(60)
        assert lease.hold(), "nobody does any more"
        lease.release()
        stored = {row.uid for row in other.requests(RequestFilter(), 100_000).items}
    assert refused <= {503}
    assert acknowledged <= stored <= acknowledged | unanswered


def test_a_killed_server_leaves_its_lease(tmp_path: Path) -> None:
    with (
        started("--port", "0", "--grpc-port", "off", "--db", "run.db", cwd=tmp_path) as server,
        closing(open_store(str(tmp_path / "run.db"))) as other,
    ):
        assert httpx.get(f"{server.url}/healthz", timeout=30).status_code == 200
        server.end(signal.SIGKILL)
        lease = other.lease(LEASE)
        assert lease.hold()
        lease.release()
