"""Some of the cases over a real socket to a real server: what uvicorn makes of them, and its memory."""

from __future__ import annotations

import random
import socket
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from serverkit.command import started

from fuzz import mutate
from fuzz.case import Case, parse

MEMORY_MIB = 1024
"""What the server may take at most: 30 times its largest export at a time, and as much again to spare."""
ANSWER_S = 60.0


@dataclass
class Result:
    """How requests were answered, which of them badly, and the server's peak of resident memory."""

    answers: Counter[str] = field(default_factory=Counter[str])
    bad: list[bytes] = field(default_factory=list[bytes])
    peak_mib: float = 0.0


def sample(cases: list[bytes], count: int, seed: int) -> Result:
    """Send ``count`` mutations of ``cases``, each on a connection of its own, to ``specscope serve``."""
    dice, result = random.Random(seed), Result()
    with tempfile.TemporaryDirectory(prefix="specscope-fuzz-") as place:
        folder = Path(place)
        with started("--db", "store.db", "--port", "0", cwd=folder) as server:
            port = int(server.url.rpartition(":")[2])
            for _ in range(count):
                data = mutate.case(dice.choice(cases), dice)
                status = _send(port, parse(data), dice)
                result.answers[status] += 1
                if status.startswith("5"):
                    result.bad.append(data)
            text = Path(f"/proc/{server.process.pid}/status").read_text("utf-8")
            result.peak_mib = int(text.partition("VmHWM:")[2].split()[0]) / 1024
    return result


def _send(port: int, case: Case, dice: random.Random) -> str:
    """Send a request as its bytes, sometimes cut short; return its status, or what came instead."""
    head = [f"{case.method} {case.path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    head += [f"{name}: {value}" for name, value in case.headers]
    if not case.header("content-length"):
        head.append(f"Content-Length: {len(case.body)}")
    sent = "\r\n".join(head).encode("utf-8", "replace") + b"\r\n\r\n" + case.body
    if dice.random() < 0.03:
        sent = sent[: dice.randrange(len(sent) + 1)]
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
        with suppress(OSError):  # a server may answer and hang up before it has read everything
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(ConnectionError):
            while len(answer) < 64 and (part := connection.recv(4096)):
                answer += part
    line = answer.partition(b"\r\n")[0].split()
    return line[1].decode() if len(line) > 1 and line[0].startswith(b"HTTP/") else "hung up"
