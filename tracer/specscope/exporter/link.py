"""The connection to the receiver: the SDK's OTLP/HTTP exporters, one attempt a call.

The SDK's exporters retry by themselves, each version in its own way and for up to 63 s, with log lines
that would flood the engine's output. Here every attempt ends in an answer of ours, raised from the HTTP
session as an error that all versions (1.27 lets it through, later ones take it as final) pass back at
once; the one retry loop is :mod:`.sender`.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import ReadableSpan

from specscope.settings import Settings, without_userinfo

CONNECT_S: Final = 3.0
READ_S: Final = 10.0
"""Seconds between two bytes of an answer; a receiver that commits to disk answers in milliseconds."""

ANSWER_S: Final = 30.0
ANSWER_BYTES: Final = 64 << 10
"""An answer is read for so long and so far: one that trickles or does not end must not hold the thread."""
RETRY_AFTER_S: Final = 30.0
"""Longest wait that a receiver may ask for: heartbeats must go on, and our buffer is small."""

_TOO_LARGE: Final = 413
# What a repetition of the same bytes cannot mend (OTLP/HTTP: 400; 413 and 422 by proxies and servers).
_REJECTED: Final = frozenset({400, _TOO_LARGE, 422})


@dataclass(frozen=True, slots=True)
class Answer:
    """How one attempt ended. ``why`` says it for a log line, empty when it was taken."""

    why: str = ""
    answered: bool = True
    """There is a receiver, whatever it said."""
    rejected: bool = False
    """The receiver will never take these bytes."""
    slow: bool = False
    """It may answer, and took longer than we wait: fewer bytes may do."""
    too_large: bool = False
    """It would take fewer of them."""
    retry_after_s: float = 0.0
    """Seconds that it asks us to wait (``Retry-After``), at most :data:`RETRY_AFTER_S`."""
    refused_spans: int = 0
    """Spans that it did not take although it took the request (OTLP partial success)."""

    @property
    def taken(self) -> bool:
        """Say whether the receiver has the data."""
        return not self.why


class _NotTaken(requests.exceptions.RequestException):
    """Carries the end of an attempt through the SDK's exporter."""


class _Session(requests.Session):
    """Keeps how the last attempt ended, and bounds its time."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = Answer()
        self.deadline: float | None = None

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        read = READ_S
        if self.deadline is not None:
            read = min(READ_S, max(0.1, self.deadline - time.monotonic()))
        kwargs |= {"timeout": (min(CONNECT_S, read), read), "allow_redirects": False, "stream": True}
        try:
            response = super().request(*args, **kwargs)
            _read(response)
        except requests.exceptions.RequestException as error:
            slow = isinstance(error, requests.exceptions.ReadTimeout)
            self.answer = Answer(type(error).__name__, answered=False, slow=slow)
            raise _NotTaken(str(error)) from error
        if not 200 <= response.status_code < 300:
            why = f"HTTP {response.status_code} {response.reason or ''}".strip()
            self.answer = Answer(
                why,
                rejected=response.status_code in _REJECTED,
                too_large=response.status_code == _TOO_LARGE,
                retry_after_s=retry_after(response.headers.get("Retry-After", "")),
            )
            raise _NotTaken(why)
        self.answer = Answer(refused_spans=_refused(response.content))
        return response


def _read(response: requests.Response) -> None:
    """Read the answer, as far as it may go; the SDK's exporter then finds it in place."""
    body = bytearray()
    deadline = time.monotonic() + ANSWER_S
    for part in response.iter_content(4096):
        body += part
        if len(body) > ANSWER_BYTES or time.monotonic() > deadline:
            response.close()  # the rest of it is nothing that we know
            break
    response._content = bytes(body)  # pyright: ignore[reportPrivateUsage] - requests has no other way


def retry_after(text: str) -> float:
    """Return the seconds that a ``Retry-After`` header asks for, as a number or a date; 0.0: it does not."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return min(seconds, RETRY_AFTER_S) if seconds > 0 else 0.0  # NaN is not above 0 either


def _refused(body: bytes) -> int:
    try:
        return ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans
    except DecodeError:  # an answer in JSON, or none that we know
        return 0


def _loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Link:
    """Sends spans and metrics to the receiver of ``settings``."""

    def __init__(self, settings: Settings) -> None:
        """Connect nothing yet."""
        self.place = without_userinfo(settings.endpoint)
        """Where it sends to, for log lines."""
        self._session = _Session()
        # A proxy set for downloads must not catch what goes to this very machine.
        self._session.trust_env = not _loopback(settings.endpoint)
        common: dict[str, Any] = {
            "headers": dict(settings.headers),
            "compression": Compression.Gzip,
            "session": self._session,
            "timeout": READ_S,
        }
        self._spans = OTLPSpanExporter(endpoint=f"{settings.endpoint}/v1/traces", **common)
        self._metrics = OTLPMetricExporter(endpoint=f"{settings.endpoint}/v1/metrics", **common)

    def until(self, deadline: float) -> None:
        """Let no attempt last beyond ``deadline`` (``time.monotonic``)."""
        self._session.deadline = deadline

    def send_spans(self, spans: Sequence[ReadableSpan]) -> Answer:
        """Send spans once; never raises."""
        return self._attempt(lambda: self._spans.export(spans))

    def send_metrics(self, data: MetricsData) -> Answer:
        """Send metrics once; never raises."""
        return self._attempt(lambda: self._metrics.export(data))  # pyright: ignore[reportUnknownMemberType]

    def _attempt(self, call: Callable[[], object]) -> Answer:
        self._session.answer = Answer("nothing was sent", rejected=True)
        try:
            call()
        except _NotTaken:
            pass
        except Exception as error:  # noqa: BLE001 - e.g. a span that this SDK cannot encode
            return Answer(f"{type(error).__name__}: {error}", rejected=True)
        return self._session.answer
