"""OTLP/gRPC by the specification: each MUST that binds a server; then what a network and a hurry do to it."""

from __future__ import annotations

import gzip
import signal
import sqlite3
import ssl
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from google.rpc import code_pb2  # pyright: ignore[reportMissingTypeStubs]
from google.rpc.error_details_pb2 import BadRequest
from serverkit import exports, otlp
from serverkit.command import started
from serverkit.live import PROTOBUF, Live, serving, status_of
from serverkit.tables import contents
from specscope import convention as c
from specscope_server.ingest import otlp_grpc
from specscope_server.ingest.signals import SIGNALS

MIB = 1 << 20
EVERY = pytest.mark.parametrize("signal", exports.NAMES)
REJECTING = pytest.mark.parametrize("signal", ["traces", "metrics"])
WARNING = pytest.mark.parametrize("signal", ["traces", "logs"])
GZIP = {"compression": grpc.Compression.Gzip}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One server for the module; small limits, and a message must come within half a second."""
    url = f"sqlite:///{tmp_path_factory.mktemp('grpc') / 'store.db'}"
    with serving(url, grpc=True, max_body_mb=1, max_inflated_mb=2, body_seconds=0.5) as found:
        yield found


@pytest.fixture(scope="module")
def to(live: Live) -> Iterator[grpc.Channel]:
    with exports.channel(live.settings.grpc_address) as opened:
        yield opened


def refused(call: Callable[[], Any]) -> tuple[grpc.StatusCode, Any]:
    """The code and the error of a call that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error


@EVERY
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_no_compression_and_gzip_are_supported(to: grpc.Channel, signal: str, compression: Any) -> None:
    """MUST: every server takes uncompressed and gzip."""
    exports.send(to, signal, exports.good(signal), compression=compression)


def test_deflate_is_refused_and_says_so(to: grpc.Channel) -> None:
    """What is not supported fails as gRPC has it, rather than being taken for something else."""
    code, error = refused(
        lambda: exports.send(to, "traces", exports.good("traces"), compression=grpc.Compression.Deflate)
    )
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert "deflate" in error.details()


@pytest.mark.parametrize(
    ("size", "options"),
    [(MIB + 1, {}), (2 * MIB + 1, GZIP), (64 * MIB, GZIP)],
    ids=["plain", "gzip", "bomb"],
)
def test_over_the_limit_is_resource_exhausted_and_not_to_be_retried(
    to: grpc.Channel, size: int, options: dict[str, Any]
) -> None:
    """MUST: size is limited, after decompression too; RESOURCE_EXHAUSTED, without RetryInfo, says so."""
    call = exports.raw_call(to, "traces")
    code, error = refused(lambda: call(bytes(size), timeout=30, **options))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    if "grpc-status-details-bin" in dict(error.trailing_metadata()):
        assert exports.retry_delay_s(exports.status_of(error)) is None
        assert "--max-inflated-mb" in error.details()


@EVERY
def test_success_is_the_signals_message_without_partial_success(to: grpc.Channel, signal: str) -> None:
    """MUST: an Export<signal>ServiceResponse with ``partial_success`` unset. An empty export succeeds too."""
    for message in (exports.good(signal), type(exports.good(signal))()):
        answer = exports.send(to, signal, message)
        assert isinstance(answer, exports.responses(signal))
        assert not answer.HasField("partial_success")


@REJECTING
def test_partial_success_has_the_count_and_the_reason(to: grpc.Channel, signal: str) -> None:
    """MUST: the same message, ``partial_success`` with how much was rejected (and SHOULD: why)."""
    answer = exports.send(to, signal, exports.partly(signal))
    assert exports.rejected(signal, answer) == 2
    assert "(2 times)" in answer.partial_success.error_message


@WARNING
def test_a_warning_rejects_nothing_and_has_words(to: grpc.Channel, signal: str) -> None:
    """MUST: a warning about what was taken has 0 rejected and a message that is not empty."""
    answer = exports.send(to, signal, exports.warned(signal))
    assert answer.HasField("partial_success")
    assert exports.rejected(signal, answer) == 0
    assert answer.partial_success.error_message


def test_the_answer_is_limited_whatever_there_is_to_say(to: grpc.Channel) -> None:
    """MUST: an answer has a size that a client reads (4 MiB); an error fits gRPC's 8 KiB of trailers."""
    bad = [otlp.request_span(n, **{c.REQUEST_VERIFY_STEPS: (1 << 60) + n}) for n in range(800)]
    answer = exports.send(to, "traces", otlp.traces(otlp.request_span(23), *bad))
    assert answer.partial_success.rejected_spans == 800
    assert answer.ByteSize() < 16 << 10
    code, error = refused(lambda: exports.send(to, "traces", otlp.traces(*bad)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == exports.status_of(error).message


@EVERY
def test_what_cannot_be_decoded_is_invalid_argument_and_says_what_is_bad(
    to: grpc.Channel, signal: str
) -> None:
    """RECOMMENDED: INVALID_ARGUMENT, MAY: BadRequest in the details. Nothing of it is retried."""
    for body, options in ((b"\xff" * 9, {}), (b"\x1f\x8bnot gzip", {}), (b"\xff" * 9, GZIP)):
        code, error = refused(lambda b=body, o=options: exports.raw_call(to, signal)(b, timeout=30, **o))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        status = exports.status_of(error)
        assert status.code == code_pb2.INVALID_ARGUMENT
        why = BadRequest()
        assert status.details[0].Unpack(why) and why.field_violations[0].description
        assert exports.retry_delay_s(status) is None


@REJECTING
def test_an_export_that_is_all_bad_is_invalid_argument(live: Live, to: grpc.Channel, signal: str) -> None:
    before = contents(live.settings.db)
    code, _ = refused(lambda: exports.send(to, signal, exports.bad(signal)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert contents(live.settings.db) == before


def test_unknown_fields_are_ignored_and_unknown_methods_are_not(to: grpc.Channel) -> None:
    """MUST: versions interoperate: new fields are passed over; what there is not is UNIMPLEMENTED."""
    body = exports.good("traces").SerializeToString() + b"\xfa\x3f\x03new"
    assert exports.raw_call(to, "traces")(body, timeout=30) == b""
    made: Any = to.unary_unary
    export = made("/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export")
    code, _ = refused(lambda: export(b"", timeout=30))
    assert code is grpc.StatusCode.UNIMPLEMENTED


class Stalled:
    """A client that has called and whose message stays away until it is told to come, or to end."""

    def __init__(self, to: grpc.Channel, message: bytes = b"") -> None:
        self.go = threading.Event()
        self.message = message
        self.call = exports.raw_call(to, "traces", stream=True).future(self._messages(), timeout=60)

    def _messages(self) -> Generator[bytes]:
        self.go.wait(60)
        yield self.message

    def end(self) -> None:
        self.call.cancel()
        self.go.set()


def waiting(live: Live) -> int:
    return live.get("/api/v1/status")["ingest"]["waiting"]


def wait_for(count: int, live: Live) -> None:
    while waiting(live) != count:
        pass


def test_a_message_that_does_not_arrive_is_deadline_exceeded(to: grpc.Channel, live: Live) -> None:
    """What HTTP calls 408: retryable by the specification's table."""
    stalled = Stalled(to)
    code, error = refused(stalled.call.result)
    stalled.end()
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "0.5 s" in error.details()
    wait_for(0, live)


def test_clients_that_send_nothing_do_not_keep_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are read at once stall, with all the time that a body has; a sound export passes by them."""
    monkeypatch.setattr(otlp_grpc, "PATIENCE_S", 0.5)
    with (
        serving(f"sqlite:///{tmp_path / 'store.db'}", grpc=True, body_seconds=600) as live,
        exports.channel(live.settings.grpc_address) as to,
    ):
        stalled = [Stalled(to) for _ in range(otlp_grpc.READERS)]
        while live.get("/api/v1/status")["ingest"]["waiting"] < len(stalled):
            pass
        exports.send(to, "traces", exports.good("traces"))
        refusals = live.get("/api/v1/status")["ingest"]["refused"]
        assert 1 <= refusals["UNAVAILABLE"] <= len(stalled)
        for one in stalled:
            one.end()


def test_both_protocols_share_what_may_wait_and_say_when_to_come_again(tmp_path: Path) -> None:
    """SHOULD: back-pressure is UNAVAILABLE; MAY: with RetryInfo. One admission counts HTTP and gRPC."""
    with (
        serving(f"sqlite:///{tmp_path / 'store.db'}", grpc=True, waiting_exports=1) as live,
        exports.channel(live.settings.grpc_address) as to,
    ):
        with live.connect() as connection:
            head = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\n"
            connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + b"{")
            wait_for(1, live)
            code, error = refused(lambda: exports.send(to, "metrics", exports.good("metrics")))
            assert code is grpc.StatusCode.UNAVAILABLE
            delay = exports.retry_delay_s(exports.status_of(error))
            assert delay is not None and 1 <= delay <= 5
        wait_for(0, live)
        stalled = Stalled(to, exports.good("traces").SerializeToString())
        wait_for(1, live)
        answer = live.export(exports.good("traces", 1))
        assert answer.status_code == 429
        stalled.go.set()
        assert stalled.call.result() == b""
        wait_for(0, live)
        assert live.export(exports.good("traces", 1)).status_code == 200
        assert live.get("/api/v1/status")["ingest"]["refused"] == {"429": 1, "UNAVAILABLE": 1}


@contextmanager
def locked(file: Path) -> Generator[None]:
    """A database that nobody else can write to until the block ends."""
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_a_database_that_is_away_is_unavailable_and_stores_nothing(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with (
        serving(f"sqlite:///{file}", grpc=True) as live,
        exports.channel(live.settings.grpc_address) as to,
    ):
        with locked(file):
            code, error = refused(lambda: exports.send(to, "traces", exports.good("traces")))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "lock" in error.details()
        assert exports.retry_delay_s(exports.status_of(error)) is not None
        assert contents(live.settings.db)["request"] == []
        exports.send(to, "traces", exports.good("traces"))  # the same export, once the lock is gone
        assert len(contents(live.settings.db)["request"]) == 1


def test_an_export_whose_client_has_gone_keeps_its_place_until_it_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with (
        serving(f"sqlite:///{file}", grpc=True) as live,
        exports.channel(live.settings.grpc_address) as to,
    ):
        with locked(file):
            call = exports.STUBS["traces"](to).Export.future(exports.good("traces"), timeout=60)
            wait_for(1, live)
            call.cancel()
            for _ in range(20):
                assert waiting(live) == 1
        wait_for(0, live)
        assert len(contents(live.settings.db)["request"]) == 1


def test_the_token_is_asked_for(tmp_path: Path) -> None:
    token = "0123456789abcdef-secret"
    with (
        serving(f"sqlite:///{tmp_path / 'store.db'}", grpc=True, ingest_token=token) as live,
        exports.channel(live.settings.grpc_address) as to,
    ):
        for given in ((), (("authorization", "Bearer wrong"),), (("authorization", token),)):
            code, error = refused(lambda g=given: exports.send(to, "logs", exports.good("logs"), metadata=g))
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert token not in error.details()
        right = (("authorization", f"Bearer {token}"),)
        exports.send(to, "logs", exports.good("logs"), metadata=right)


def test_tls_is_served_on_both_ports_and_plain_text_is_not(tmp_path: Path) -> None:
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    cert, key, root = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "root.pem"
    made.cert_chain_pems[0].write_to_path(str(cert))
    made.private_key_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(root))
    trust = ssl.create_default_context(cafile=str(root))
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with serving(url, grpc=True, verify=trust, tls_cert=str(cert), tls_key=str(key)) as live:
        assert live.url.startswith("https://")
        assert live.export(exports.good("traces")).status_code == 200
        address = live.settings.grpc_address
        trusted = grpc.ssl_channel_credentials(root.read_bytes())
        with exports.channel(address, trusted) as to:
            exports.send(to, "traces", exports.good("traces", 1))
        with exports.channel(address) as plain:
            code, _ = refused(lambda: exports.send(plain, "traces", exports.good("traces", 2)))
            assert code is grpc.StatusCode.UNAVAILABLE
        assert len(live.get("/api/v1/requests")["items"]) == 2


def test_many_clients_of_both_protocols_lose_and_double_nothing(store_url: str) -> None:
    def everything(number: int) -> Any:
        spans = (otlp.engine_span(), otlp.request_span(number), otlp.steps_span(number))
        return otlp.traces(*spans, otlp.rollup_span(number))

    with serving(store_url, grpc=True) as live, exports.channel(live.settings.grpc_address) as to:

        def over_grpc(number: int) -> None:
            exports.send(to, "traces", everything(number), **GZIP)

        def over_http(number: int) -> None:
            body = gzip.compress(everything(number).SerializeToString())
            headers = {"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
            live.client.post("/v1/traces", content=body, headers=headers).raise_for_status()

        with ThreadPoolExecutor(16) as pool:  # each export by both ways, as if an answer had been missed
            done = [pool.submit(way, n) for n in range(24) for way in (over_grpc, over_http)]
            for one in done:
                one.result()
        assert len(live.get("/api/v1/requests", limit=500)["items"]) == 24
        [engine] = live.get("/api/v1/engines")["items"]
        assert engine["counts"]["verify_steps"] == 24 * 8
        assert engine["counts"]["accepted"] == 24 * 12


def test_exports_under_way_at_the_end_are_finished_and_stored(tmp_path: Path) -> None:
    with (
        started("--port", "0", "--grpc-port", "0", "--db", "run.db", cwd=tmp_path) as server,
        exports.channel(server.grpc) as to,
    ):
        exports.send(to, "traces", exports.good("traces"), wait_for_ready=True)
        with locked(tmp_path / "run.db"):
            call = exports.STUBS["traces"](to).Export.future(exports.good("traces", 1), timeout=60)
            while not server.waiting():
                pass
            server.process.send_signal(signal.SIGTERM)
        call.result()
        assert server.wait() == 0
    stored = sqlite3.connect(tmp_path / "run.db").execute("SELECT count(*) FROM request").fetchall()
    assert stored == [(2,)]


def test_a_mistake_of_ours_is_internal_and_500_with_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MUST: the body of every 5xx is a ``Status``; over gRPC it is INTERNAL."""

    def fails(_: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    path = exports.PATHS["traces"]
    monkeypatch.setitem(SIGNALS, path, replace(SIGNALS[path], read=fails))
    with (
        serving(f"sqlite:///{tmp_path / 'store.db'}", grpc=True) as live,
        exports.channel(live.settings.grpc_address) as to,
    ):
        code, error = refused(lambda: exports.send(to, "traces", exports.good("traces")))
        assert code is grpc.StatusCode.INTERNAL
        assert "secret" not in error.details()
        answer = live.export(exports.good("traces"))
        assert answer.status_code == 500
        assert "secret" not in status_of(answer).message
