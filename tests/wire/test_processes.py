"""Engine process, exporter process and receiver as real processes, each of them failing in turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from specscope import convention as c
from specscope import helper, identity, recorder
from specscope.settings import Settings
from wirekit import traffic
from wirekit.receiver import Received, Receiver, eventually

TESTS = Path(__file__).parents[1]
Spawn = Callable[..., tuple["subprocess.Popen[str]", dict[str, Any]]]


def alive(pid: int) -> bool:
    """Say whether a process runs; one that waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    started: list[subprocess.Popen[str]] = []
    exporters: list[int] = []

    def run(endpoint: str, *way: str, **environ: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "wirekit.engine", endpoint, *way],
            env=os.environ | {"PYTHONPATH": str(TESTS)} | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        hello = json.loads(process.stdout.readline())
        exporters.append(hello["exporter"])
        return process, hello

    yield run
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    for pid in exporters:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def record_here(endpoint: str, **changes: Any) -> recorder.Recorder:
    settings = Settings(endpoint=endpoint, instance=traffic.INSTANCE, detail="full", **changes)
    return recorder.start(
        settings, role="scheduler", ranks=identity.Ranks(), engine_name="sglang", engine_version="0"
    )


def chunk_ids(received: Received) -> Counter[str]:
    return Counter(span.id for span in received.spans(c.SPAN_STEPS))


def test_a_story_arrives_whole_before_the_engine_has_left(receiver: Receiver, spawn: Spawn) -> None:
    process, hello = spawn(receiver.endpoint, "story")
    assert process.wait(60) == 0
    received = receiver.received
    assert [row.step for row in received.steps(traffic.uid("long"))] == list(range(1, 72))
    last = received.request(traffic.uid("long"))
    assert last is not None
    assert last.attributes[c.REQUEST_STATE] == c.STATE_FINISHED
    assert last.attributes[c.REQUEST_VERIFY_STEPS] == 70
    assert last.resource[c.PROCESS] == hello["process"]
    assert last.resource[c.PROCESS_PID] == hello["pid"]
    assert max(chunk_ids(received).values()) == 1
    (engine,) = received.spans(c.SPAN_ENGINE)
    assert json.loads(engine.attributes[c.ENGINE_CONFIG]) == traffic.CONFIG
    expected = received.points(c.METRIC_EXPECTED)
    observed = received.points(c.METRIC_OBSERVED)
    assert expected[c.TARGET_VERIFY, c.NO_SOURCE] == 71
    assert observed[c.TARGET_VERIFY, c.EAGER, c.NO_SOURCE] == 71
    assert received.points(c.METRIC_SPECULATION) == {(): 1}
    ended = received.points(c.METRIC_ENDED)
    assert abs(ended[()] - time.time()) < 60
    eventually(lambda: not alive(hello["exporter"]), "the exporter ends by itself")
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_an_engine_that_fails_says_goodbye_but_no_end_in_order(receiver: Receiver) -> None:
    found = record_here(receiver.endpoint)
    found.close(in_order=False)
    assert receiver.received.points(c.METRIC_HEARTBEAT)
    assert receiver.received.points(c.METRIC_ENDED) == {}


def test_an_idle_engine_has_a_heartbeat(receiver: Receiver) -> None:
    found = record_here(receiver.endpoint)
    found.ledger.arm(c.DRAFT_FC)
    found.ledger.disarm(c.DRAFT_MAP, "no map")
    beats: set[float] = set()

    def beating() -> bool:
        beats.update(receiver.received.points(c.METRIC_HEARTBEAT).values())
        return len(beats) >= 3

    eventually(beating, "three heartbeats")
    assert abs(max(beats) - time.time()) < 60
    assert receiver.received.points(c.METRIC_ARMED) == {
        (c.DRAFT_FC, c.ARMING_ARMED): 1,
        (c.DRAFT_MAP, c.ARMING_OFF, "no map"): 0,
    }
    found.close()


def test_an_engine_that_is_killed_has_its_last_records_delivered(receiver: Receiver, spawn: Spawn) -> None:
    process, hello = spawn(receiver.endpoint, "serve")
    uid = traffic.uid("served")
    eventually(lambda: len(receiver.received.steps(uid)) > 100, "steps arrive")
    verified = (c.TARGET_VERIFY, c.NO_SOURCE)
    eventually(
        lambda: verified in receiver.received.points(c.METRIC_EXPECTED), "a beat with the ledger arrives"
    )
    process.send_signal(signal.SIGSTOP)  # so that the last beat and the last records are both over
    time.sleep(0.3)
    process.kill()
    process.wait()
    eventually(lambda: not alive(hello["exporter"]), "the exporter ends by itself")
    steps = [row.step for row in receiver.received.steps(uid)]
    assert steps == list(range(1, len(steps) + 1))
    last = receiver.received.request(uid)
    assert last is not None
    assert last.attributes[c.REQUEST_STATE] == c.STATE_RUNNING
    assert last.attributes[c.REQUEST_VERIFY_STEPS] == len(steps)
    beat = receiver.received.points(c.METRIC_EXPECTED)[verified]
    assert beat <= len(steps)  # nothing that the ledger counted before the last beat is missing
    assert receiver.received.points(c.METRIC_ENDED) == {}, "it did not say that it ends"


def test_signals_to_the_engines_group_do_not_reach_the_exporter(receiver: Receiver, spawn: Spawn) -> None:
    process, hello = spawn(receiver.endpoint, "burst", "500")
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(process.pid, number)
    process.wait()
    eventually(lambda: not alive(hello["exporter"]), "the exporter ends by itself")
    assert os.getsid(0) != hello["exporter"]
    steps = [row.step for row in receiver.received.steps(traffic.uid("burst"))]
    assert steps == list(range(1, len(steps) + 1))


def test_an_exporter_that_is_killed_is_started_again_and_the_loss_counted(
    receiver: Receiver, spawn: Spawn
) -> None:
    _, hello = spawn(receiver.endpoint, "serve")
    uid = traffic.uid("served")
    eventually(lambda: len(receiver.received.steps(uid)) > 50, "steps arrive")
    os.kill(hello["exporter"], signal.SIGKILL)
    before = len(receiver.received.metrics)
    eventually(lambda: len(receiver.received.metrics) > before + 2, "a second exporter reports")
    lost = receiver.received.points(c.METRIC_DROPPED)[("exporter_lost",)]
    steps = [row.step for row in receiver.received.steps(uid)]
    missing = set(range(1, max(steps) + 1)) - set(steps)
    assert len(steps) == len(set(steps))
    assert len(missing) <= lost
    assert max(chunk_ids(receiver.received).values()) == 1
    last = receiver.received.spans(c.SPAN_STEPS)[-1].attributes
    assert last[c.GEN_AI_REQUEST_ID] == "served"  # who it is was told again
    assert c.REQUEST_VERIFY_STEPS not in last  # how much it did is not known any more
    engines = receiver.received.spans(c.SPAN_ENGINE)
    assert len(engines) == 2
    assert engines[0].id == engines[1].id


def test_an_exporter_that_cannot_live_is_given_up(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(helper, "_FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    found = record_here(receiver.endpoint)
    emitted = 0

    def dropping() -> dict[str, int]:
        nonlocal emitted
        found.emit(traffic.verify(emitted, 0, ("a",)))
        emitted += 1
        return found.dropped() if "exporter_dead" in found.dropped() else {}

    eventually(dropping, "records are dropped and counted")
    eventually(lambda: sum(found.dropped().values()) == emitted, "every record is accounted for")
    lines = [r.getMessage() for r in caplog.records if "exporter" in r.getMessage()]
    assert len(lines) == 2
    assert "starting it again" in lines[0]
    assert "records are dropped" in lines[1]
    found.close()


def test_a_receiver_that_was_away_gets_everything_once(spawn: Spawn) -> None:
    with Receiver() as first:
        port = first.port
    process, hello = spawn(f"http://127.0.0.1:{port}", "burst", "400")
    time.sleep(3)
    with Receiver(port) as second:
        uid = traffic.uid("burst")
        eventually(lambda: len(second.received.steps(uid)) == 400, "everything arrives")
        assert [row.step for row in second.received.steps(uid)] == list(range(1, 401))
        assert max(chunk_ids(second.received).values()) == 1
        rollups = Counter(s.attributes[c.ROLLUP_SEQ] for s in second.received.spans(c.SPAN_ROLLUP))
        assert max(rollups.values()) == 1
        failures = eventually(
            lambda: second.received.points(c.METRIC_EXPORT_FAILURES).get((), 0), "failures are counted"
        )
        assert failures >= 1
        process.kill()
        eventually(lambda: not alive(hello["exporter"]), "the exporter ends by itself")
    _, stderr = process.communicate()
    lines = stderr.strip().splitlines()
    assert len(lines) == 2
    assert f"receiver unreachable at http://127.0.0.1:{port}" in lines[0]
    assert "reachable again" in lines[1]


def test_a_batch_whose_answer_was_lost_is_sent_again_with_the_same_ids(
    receiver: Receiver, spawn: Spawn
) -> None:
    answers = iter([503, 503])

    def keep_but_fail(path: str, message: Any) -> int:
        if path == "/v1/traces" and (status := next(answers, None)):
            receiver.keep(message)
            return status
        return 200

    receiver.answer = keep_but_fail
    spawn(receiver.endpoint, "burst", "10")
    uid = traffic.uid("burst")
    eventually(lambda: len(receiver.received.steps(uid)) == 10, "steps arrive")
    eventually(lambda: len(receiver.received.spans(c.SPAN_ENGINE)) > 1, "the batch comes again")
    (engine, again, *_) = receiver.received.spans(c.SPAN_ENGINE)
    assert engine == again


def test_a_span_that_is_rejected_does_not_take_its_neighbours_along(receiver: Receiver, spawn: Spawn) -> None:
    def reject_health(path: str, message: Any) -> int:
        return 400 if path == "/v1/traces" and b"health" in message.SerializeToString() else 200

    receiver.answer = reject_health
    process, _ = spawn(receiver.endpoint, "story")
    assert process.wait(60) == 0
    assert len(receiver.received.steps(traffic.uid("long"))) == 71
    assert receiver.received.request(traffic.uid("health")) is None
    assert receiver.received.request(traffic.uid("open")) is not None


def test_spans_that_the_receiver_refuses_are_counted(receiver: Receiver) -> None:
    receiver.refuse_spans = 1
    found = record_here(receiver.endpoint)
    found.emit(traffic.engine())
    eventually(
        lambda: receiver.received.points(c.METRIC_DROPPED).get(("rejected",)), "the refusal is counted"
    )
    found.close()


def test_a_receiver_without_metrics_gets_the_spans(receiver: Receiver, spawn: Spawn) -> None:
    receiver.answer = lambda path, _message: 200 if path == "/v1/traces" else 404
    process, _ = spawn(receiver.endpoint, "story")
    assert process.wait(60) == 0
    assert len(receiver.received.steps(traffic.uid("long"))) == 71


def test_a_full_queue_drops_the_oldest_and_counts_them(receiver: Receiver) -> None:
    found = record_here(receiver.endpoint, queue=100)
    eventually(lambda: found.exporter_pid, "the exporter answers")
    exporter = found.exporter_pid
    assert exporter is not None
    os.kill(exporter, signal.SIGSTOP)
    emitted = 20_000
    for step in range(emitted):
        found.emit(traffic.verify(step, time.monotonic_ns(), ("a",)))
    eventually(lambda: found.dropped().get("queue_full"), "the queue overflows")
    assert len(found.queue) <= 100
    os.kill(exporter, signal.SIGCONT)
    uid = traffic.uid("a")
    eventually(lambda: receiver.received.points(c.METRIC_DROPPED).get(("queue_full",)), "the loss is told")

    def numbers() -> list[int]:
        return [row.step for row in receiver.received.steps(uid)]

    eventually(lambda: numbers()[-1:] == [emitted - 1], "the newest survive")
    found.close()
    steps = numbers()
    dropped = found.dropped()["queue_full"]
    assert steps == sorted(steps)
    assert len(steps) + dropped == emitted


def test_an_engine_that_is_always_faster_than_its_exporter_still_has_heartbeats(receiver: Receiver) -> None:
    found = record_here(receiver.endpoint, queue=5000)
    eventually(lambda: found.exporter_pid, "the exporter answers")
    names = tuple(f"r{i}" for i in range(64))
    told: set[float] = set()

    def heard_while_flooded() -> bool:
        for step in range(3000):
            found.emit(traffic.verify(step, time.monotonic_ns(), names))
        told.update(value for _, value in receiver.received.points(c.METRIC_DROPPED).items())
        return len(told) >= 3

    eventually(heard_while_flooded, "several heartbeats that tell of more and more lost records")
    assert found.dropped()["queue_full"] > 0
    found.close()


def test_a_receiver_that_does_not_answer_costs_bounded_memory(receiver: Receiver) -> None:
    found = record_here(receiver.endpoint, buffer_mb=1)
    pid = eventually(lambda: found.exporter_pid, "the exporter answers")
    found.emit(traffic.engine(time.monotonic_ns()))
    eventually(lambda: receiver.received.spans(), "the engine's span arrives")

    def resident_mib() -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) >> 10

    receiver.delay_s = 600
    at_first = resident_mib()
    names = tuple(f"r{i}" for i in range(64))
    for step in range(1500):  # as many chunks of some 3 KiB
        found.emit(traffic.verify(step, time.monotonic_ns(), names))
    eventually(lambda: not found.queue, "the exporter takes them all")
    assert found.dropped() == {}
    assert resident_mib() - at_first < 32
    receiver.delay_s = 0
    receiver.released.set()
    eventually(lambda: receiver.received.points(c.METRIC_DROPPED).get(("buffer_full",)), "the loss is told")
    found.close()


def test_close_returns_while_the_receiver_is_away() -> None:
    with Receiver() as gone:
        endpoint = gone.endpoint
    found = record_here(endpoint)
    eventually(lambda: found.exporter_pid, "the exporter answers")
    exporter = found.exporter_pid
    assert exporter is not None
    found.emit(traffic.engine())
    found.close()
    found.emit(traffic.engine())
    found.close()
    assert found.queue.maxlen == 20_000
    assert len(found.queue) == 0
    os.kill(exporter, signal.SIGKILL)


def test_a_forked_child_is_a_process_of_its_own(receiver: Receiver, spawn: Spawn) -> None:
    process, parent = spawn(receiver.endpoint, "fork")
    out, _ = process.communicate(timeout=60)
    child = json.loads(out)
    assert child["process"] != parent["process"]
    assert child["exporter"] != parent["exporter"]
    for name, hello in (("parent", parent), ("child", child)):
        assert [row.step for row in receiver.received.steps(traffic.uid(name))] == list(range(1, 21))
        span = receiver.received.request(traffic.uid(name))
        assert span is not None
        assert span.resource[c.PROCESS] == hello["process"]
        assert span.resource[c.PROCESS_PID] == hello["pid"]
    engines = {span.resource[c.PROCESS] for span in receiver.received.spans(c.SPAN_ENGINE)}
    assert engines == {parent["process"], child["process"]}


def test_the_engines_opentelemetry_variables_change_nothing(receiver: Receiver, spawn: Spawn) -> None:
    with Receiver() as engines_own:
        process, _ = spawn(
            receiver.endpoint,
            "story",
            OTEL_EXPORTER_OTLP_ENDPOINT=engines_own.endpoint,
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{engines_own.endpoint}/v1/traces",
            OTEL_EXPORTER_OTLP_HEADERS="authorization=engine",
            OTEL_EXPORTER_OTLP_COMPRESSION="none",
            OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT="3",
            OTEL_SERVICE_NAME="engine",
            OTEL_RESOURCE_ATTRIBUTES="a=b",
            HTTP_PROXY=engines_own.endpoint,
            SPECSCOPE_HEADERS="authorization=ours",
        )
        assert process.wait(60) == 0
        assert not engines_own.attempts
    assert len(receiver.received.steps(traffic.uid("long"))) == 71
    assert {h["authorization"] for h in receiver.received.headers} == {"ours"}
    assert {h["content-encoding"] for h in receiver.received.headers} == {"gzip"}
    (engine, *_) = receiver.received.spans()
    assert engine.resource["service.name"] == "tiny-target"
    assert "a" not in engine.resource


def test_what_is_not_plain_is_dropped_and_counted_alone(receiver: Receiver) -> None:
    found = record_here(receiver.endpoint)
    odd: Any = object()
    found.emit(traffic.verify(1, odd, ("a",)))
    found.emit(traffic.verify(2, time.monotonic_ns(), ("a",)))
    eventually(lambda: receiver.received.steps(traffic.uid("a")), "the good one arrives")
    assert found.dropped() == {"not_plain": 1}
    assert [row.step for row in receiver.received.steps(traffic.uid("a"))] == [2]
    found.close()


def test_hook_errors_disarm_after_three(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    found = record_here(receiver.endpoint)
    verdicts = [found.hook_failed("commit", ValueError("odd")) for _ in range(4)]
    assert verdicts == [False, False, True, True]
    found.add_engine_time(1500)
    assert [r.getMessage() for r in caplog.records] == ["specscope: hook commit failed: ValueError: odd"]
    eventually(lambda: receiver.received.points(c.METRIC_HOOK_ERRORS) == {("commit",): 4}, "errors are told")
    assert receiver.received.points(c.METRIC_ENGINE_THREAD) == {(): 1500}
    found.close()


def test_a_tracer_that_is_off_starts_nothing() -> None:
    found = recorder.start(
        Settings(off="SPECSCOPE_ENDPOINT is not set"),
        role="scheduler",
        ranks=identity.Ranks(),
        engine_name="sglang",
        engine_version="0",
    )
    found.emit(traffic.engine())
    assert found.exporter_pid is None
    assert len(found.queue) == 0
    found.close()
