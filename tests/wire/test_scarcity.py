"""A machine that has run out: of file descriptors, processes, disk, or patience."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from specscope import convention as c
from specscope import helper, identity, recorder
from specscope.settings import Settings
from wirekit import traffic
from wirekit.receiver import Receiver, eventually

ROOT = Path(__file__).parents[2]

SERVES = '''
"""An engine that tells steps while something has run out, says what it counted, and then gets it back."""
import json, os, resource, sys, time
from specscope import helper, recorder
from wirekit import engine, traffic

endpoint, what = sys.argv[1:]
helper.GIVEN_UP_S = 1.0
helper._FIRST_BACKOFF_S = 0.02
taken = []
if what == "descriptors":
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
elif what == "processes":
    become_limited()
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (own_processes() + 1, hard))  # one: the thread of the pump
elif what == "threads":
    become_limited()
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (own_processes(), hard))
found = engine.start(endpoint)
found.emit(engine.now(traffic.engine()))
for step in range(200):
    found.emit(engine.now(traffic.verify(step, 0, ("scarce",))))
    time.sleep(0.01)
dropped, closed = found.dropped(), found.closed
for one in taken:
    os.close(one)
if what == "processes":
    resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
step = 1000
while found.exporter_pid is None and not closed:
    found.emit(engine.now(traffic.verify(step, 0, ("later",))))
    step += 1
    time.sleep(0.01)
print(json.dumps({"dropped": dropped, "closed": closed, "exporter": found.exporter_pid}), flush=True)
found.close()
'''

COUNTS = '''
import ctypes

def become_limited():
    """The kernel limits no process of root: be another user by real id, without root's privileges."""
    if os.getuid() == 0:
        os.setresuid(65534, 0, 0)
        version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
        nothing = (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(version_3, nothing) == 0

def own_processes():
    """Processes and threads of this user, as the kernel counts them against RLIMIT_NPROC."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status") as status:
                user = next(line.split()[1] for line in status if line.startswith("Uid:"))
            if int(user) == os.getuid():
                count += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            pass
    return count
'''


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


def serve(receiver: Receiver, what: str) -> subprocess.CompletedProcess[str]:
    script = SERVES.replace("endpoint, what", COUNTS + "\nendpoint, what", 1)
    return subprocess.run(
        [sys.executable, "-c", script, receiver.endpoint, what],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests"), "SPECSCOPE_INSTANCE": traffic.INSTANCE},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_no_descriptors_for_a_while(receiver: Receiver) -> None:
    done = serve(receiver, "descriptors")
    assert '"closed": false' in done.stdout
    uid = traffic.uid("later")
    eventually(lambda: receiver.received.steps(uid), "what was told later arrives")
    dropped = receiver.received.points(c.METRIC_DROPPED)
    assert dropped[("exporter_dead",)] > 0
    assert len(receiver.received.steps(traffic.uid("scarce"))) + dropped[("exporter_dead",)] >= 200
    assert done.stderr.count("specscope:") == 2, done.stderr


def test_no_process_for_a_while(receiver: Receiver) -> None:
    done = serve(receiver, "processes")
    assert '"closed": false' in done.stdout
    eventually(lambda: receiver.received.steps(traffic.uid("later")), "what was told later arrives")
    assert receiver.received.points(c.METRIC_DROPPED)[("exporter_dead",)] > 0
    assert "Resource temporarily unavailable" in done.stderr


def test_no_thread_at_all(receiver: Receiver) -> None:
    done = serve(receiver, "threads")
    assert '"closed": true' in done.stdout
    assert "specscope: tracing is off: RuntimeError: can't start new thread" in done.stderr
    assert not receiver.attempts


def test_no_disk(receiver: Receiver) -> None:
    """Neither process may write one byte to any file, and nothing is missing."""

    def forbid() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = subprocess.run(
        [sys.executable, "-m", "wirekit.engine", receiver.endpoint, "story"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        preexec_fn=forbid,
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == b""
    assert [row.step for row in receiver.received.steps(traffic.uid("long"))] == list(range(1, 72))


def test_a_log_on_a_full_disk() -> None:
    """The lines of both processes go nowhere; what they are about goes on."""
    with Receiver() as first:
        port = first.port
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "wirekit.engine", f"http://127.0.0.1:{port}", "burst", "50"],
            env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
            stdout=subprocess.PIPE,
            stderr=full,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(2)  # it says that the receiver is away, to nobody
        with Receiver(port) as second:
            eventually(lambda: len(second.received.steps(traffic.uid("burst"))) == 50, "everything arrives")
            process.kill()
            process.communicate()


def test_a_line_at_start_that_cannot_be_written() -> None:
    script = "from specscope.engines.sglang.plugin import register\nregister()\nprint('on')"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"SPECSCOPE_ENDPOINT": "http://127.0.0.1:9", "SPECSCOPE_DETAIL": "nonsense"},
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )
    assert done.stdout == b"on\n"


def test_an_exporter_that_never_starts_is_not_waited_for(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = tmp_path / "python"
    stuck.write_text("#!/bin/sh\nexec sleep 600\n")
    stuck.chmod(0o755)
    monkeypatch.setattr(helper, "START_S", 0.2)
    monkeypatch.setattr(helper, "_FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(sys, "executable", str(stuck))
    found = recorder.start(
        Settings(endpoint=receiver.endpoint, instance=traffic.INSTANCE),
        role="scheduler",
        ranks=identity.Ranks(),
        engine_name="sglang",
        engine_version="0",
    )

    def dropping() -> bool:
        found.emit(traffic.verify(1, 0, ("a",)))
        return "exporter_dead" in found.dropped()

    eventually(dropping, "records are dropped and counted")
    assert any("did not start" in record.getMessage() for record in caplog.records)
    found.close()
