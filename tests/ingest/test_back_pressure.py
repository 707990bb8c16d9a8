"""A database that stands still while both protocols go on sending: senders are put off, memory stays."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
from serverkit import exports, otlp
from serverkit.command import started
from serverkit.live import PROTOBUF

MIB = 1 << 20
BODY_MIB = 8
SENDERS = 80
"""640 MiB at one time, against 64 MiB that may wait."""
MOST_GROWN_MIB = 450
"""What waits, 8 messages that gRPC reads, what is being decoded, what the allocator keeps: 349 measured."""


def memory_mib(pid: int, what: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(what))


def large(number: int) -> bytes:
    """A valid export of nearly 8 MiB."""
    span = otlp.request_span(number, note="x" * (BODY_MIB * MIB - 4096))
    return otlp.traces(span, scope="another.tool").SerializeToString()


def test_what_waits_is_bounded_and_the_rest_may_come_again(tmp_path: Path) -> None:
    limits = ("--max-body-mb", str(BODY_MIB), "--max-inflated-mb", str(BODY_MIB))
    body = large(1)
    with (
        started("--port", "0", "--grpc-port", "0", "--db", "run.db", *limits, cwd=tmp_path) as server,
        exports.channel(server.grpc) as to,
        httpx.Client(base_url=server.url, timeout=120) as client,
        ThreadPoolExecutor(SENDERS) as pool,
    ):
        exports.send(to, "traces", exports.good("traces"), wait_for_ready=True)

        def over_http(_: int) -> Any:
            answer = client.post("/v1/traces", content=body, headers={"Content-Type": PROTOBUF})
            return answer.status_code, int(answer.headers.get("retry-after", 0))

        def over_grpc(_: int) -> Any:
            try:
                exports.raw_call(to, "traces")(body, timeout=120)
            except grpc.RpcError as error:
                code: Any = error
                return code.code(), exports.retry_delay_s(exports.status_of(error))
            return 200, 0

        def by_turns(number: int) -> Any:
            return over_http(number) if number % 2 else over_grpc(number)

        before = memory_mib(server.process.pid, "VmRSS")
        lock = sqlite3.connect(tmp_path / "run.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        answers = list(pool.map(by_turns, range(SENDERS)))
        lock.execute("ROLLBACK")
        lock.close()
        grown = memory_mib(server.process.pid, "VmHWM") - before
        assert server.waiting() == 0
        assert over_http(0) == (200, 0) and over_grpc(0) == (200, 0)
    codes = [code for code, _ in answers]
    assert {*codes} <= {429, 503, grpc.StatusCode.UNAVAILABLE}  # locked for good: nothing was stored
    assert 429 in codes and grpc.StatusCode.UNAVAILABLE in codes
    assert all(1 <= wait <= 5 for _, wait in answers)
    assert grown < MOST_GROWN_MIB
