"""The two kinds of senders: an engine process with the tracer's exporter, and an SDK exporter in a thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags
from serverkit.command import environment
from specscope import identity
from specscope.clock import Anchor
from specscope.exporter.pipeline import Pipeline
from specscope.frames import Hello
from specscope.settings import Settings

from crash.load import Load
from crash.story import STEP_NS, Story

TESTS = Path(__file__).parents[1]
END_S = 120.0
"""Seconds that a sender gets to deliver the rest, once nothing is killed any more."""
ATTEMPT_S = 5.0
GATHER_S = 0.15


class Engine:
    """An engine process and its exporter process, which send to ``endpoint``."""

    def __init__(self, endpoint: str, seed: int, instance: str) -> None:
        self.instance = instance
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crash.engine", endpoint, str(seed), instance],
            cwd=TESTS,
            env=environment(PYTHONPATH=str(TESTS)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._exporter = int(self._process.stdout.readline())

    def end(self) -> dict[str, dict[str, int]]:
        """End the story and wait until all is delivered; return the truth by request.

        Raises:
            RuntimeError: the tracer dropped records or could not deliver them in time.
        """
        output, _ = self._process.communicate(timeout=END_S)
        told = json.loads(output)
        deadline = time.monotonic() + END_S
        while Path(f"/proc/{self._exporter}").exists():
            if time.monotonic() > deadline:
                raise RuntimeError("the tracer's exporter could not deliver everything")
            time.sleep(0.1)
        if told["dropped"]:
            raise RuntimeError(f"the tracer dropped records: {told['dropped']}")
        return told["truth"]

    def kill(self) -> None:
        """End both processes at once."""
        self._process.kill()
        self._process.communicate()
        with suppress(ProcessLookupError):
            os.kill(self._exporter, 9)


def http_exporter(port: int) -> SpanExporter:
    """The SDK's OTLP/HTTP exporter, with gzip."""
    url = f"http://127.0.0.1:{port}/v1/traces"
    return HttpExporter(url, compression=Compression.Gzip, timeout=ATTEMPT_S)


def grpc_exporter(port: int) -> SpanExporter:
    """The SDK's OTLP/gRPC exporter."""
    return GrpcExporter(f"http://127.0.0.1:{port}", insecure=True, timeout=ATTEMPT_S)


def pipeline(instance: str, pid: int, out: Callable[[ReadableSpan], None]) -> Pipeline:
    """The tracer's way from records to spans, for a process that only this one knows."""
    start, ranks = time.time_ns(), identity.Ranks()
    hello = Hello(
        settings=Settings(instance=instance, name="sdk"),
        instance=instance,
        process=identity.process_uid(instance, "scheduler", ranks, pid, start),
        pid=pid,
        start_ns=start,
        role="scheduler",
        ranks=ranks,
        engine_name="sglang",
        engine_version="0.5.23",
        anchor=Anchor.now(),
    )
    return Pipeline(hello, out)


class Sdk:
    """A story told as the tracer's spans through an exporter of the SDK, each batch until it is taken."""

    def __init__(self, make: Callable[[], SpanExporter], seed: int, instance: str, load: Load) -> None:
        self.instance = instance
        self._story = Story(seed, instance)
        self._make, self._load = make, load
        self._spans: list[ReadableSpan] = []
        self._pipeline = pipeline(instance, seed, self._spans.append)
        self._stop = threading.Event()
        self._give_up = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"sdk-{instance}")
        self._thread.start()

    def end(self) -> dict[str, dict[str, int]]:
        """End the story and wait until all is delivered; return the truth by request.

        Raises:
            RuntimeError: it could not be delivered in time, or the sender failed.
        """
        self._stop.set()
        self._thread.join(END_S)
        if self._thread.is_alive() or self.error is not None:
            raise RuntimeError(f"sender {self.instance}: {self.error or 'not delivered in time'}")
        return self._story.told()

    def kill(self) -> None:
        """Deliver nothing more."""
        self._give_up.set()
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        exporter = self._make()
        try:
            now = time.monotonic_ns()
            self._pipeline.take(self._story.engine(now), now)
            last = now
            while not self._stop.is_set():
                time.sleep(GATHER_S)
                now = time.monotonic_ns()
                while last < now:
                    last += STEP_NS
                    for record in self._story.step(last, time.time_ns() - now + last):
                        self._pipeline.take(record, last)
                self._send(exporter, last=False)
            for record in self._story.end(time.monotonic_ns()):
                self._pipeline.take(record, time.monotonic_ns())
            self._send(exporter, last=True)
        except Exception as error:
            self.error = error
        finally:
            exporter.shutdown()

    def _send(self, exporter: SpanExporter, *, last: bool) -> None:
        self._pipeline.tick(time.monotonic_ns(), last=last)
        spans = [*self._spans]
        self._spans.clear()
        if not spans:
            return
        spans.append(other_tools_span(spans[0]))
        message = encode_spans(spans)
        while not self._give_up.is_set():
            with self._load.export(message) as acknowledge:
                if exporter.export(spans) is SpanExportResult.SUCCESS:
                    acknowledge(0)
                    return
            time.sleep(0.05)


def other_tools_span(span: ReadableSpan) -> ReadableSpan:
    """A span of another tool in the trace of ``span``."""
    assert span.context is not None
    context = SpanContext(
        span.context.trace_id, time.monotonic_ns(), is_remote=False, trace_flags=TraceFlags(1)
    )
    values: dict[str, Any] = {"gen_ai.operation.name": "chat"}
    return ReadableSpan(
        name="chat tiny-target",
        context=context,
        resource=Resource({"service.name": "caller"}),
        attributes=values,
        start_time=time.time_ns(),
        end_time=time.time_ns() + 1000,
        instrumentation_scope=InstrumentationScope("caller"),
    )


Sender = Engine | Sdk


def end_all(senders: Sequence[Sender]) -> dict[str, dict[str, dict[str, int]]]:
    """End every sender's story; return the truth by instance and request."""
    return {sender.instance: sender.end() for sender in senders}
