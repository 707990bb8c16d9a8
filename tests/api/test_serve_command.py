"""``specscope serve`` as a person starts it: where it stores, how it ends, and how it refuses to start."""

from __future__ import annotations

import signal
import socket
import sqlite3
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from serverkit import exports, otlp
from serverkit.command import app, environment, run, started
from serverkit.live import PROTOBUF
from specscope import cli
from specscope_server import settings as s
from specscope_server.listening import ListenError, parse_grpc_port, parse_port, reserve
from specscope_server.settings import (
    ServerSettings,
    SettingsError,
    default_database,
    is_loopback,
    read_token,
)

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_the_default_database_until_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    env = environment(XDG_DATA_HOME=str(tmp_path / "data"), SPECSCOPE_PORT="0")
    with started(cwd=tmp_path, env=env) as server:
        database = tmp_path / "data" / "specscope" / "specscope.db"
        assert str(database) in server.place
        assert database.exists()
        assert httpx.get(f"{server.url}/healthz", timeout=60).json()["status"] == "ok"
        assert server.url.startswith("http://127.0.0.1:")
        assert server.end(number) == 0
    assert "Traceback" not in "".join(server.lines)
    assert not [p for p in tmp_path.iterdir() if p.name != "data"]  # nothing in the working directory


def test_what_is_under_way_at_the_end_is_finished_and_stored(tmp_path: Path) -> None:
    body = otlp.traces(otlp.request_span(1)).SerializeToString()
    with started("--port", "0", "--db", "run.db", cwd=tmp_path) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
        with socket.create_connection(address, timeout=60) as connection:
            head = (
                "POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                f"Content-Type: {PROTOBUF}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            connection.sendall(head.encode() + body[:10])
            # The server has read this far once another request sees the export waiting.
            while not httpx.get(f"{server.url}/api/v1/status", timeout=60).json()["ingest"]["waiting"]:
                pass
            server.process.send_signal(signal.SIGTERM)
            connection.sendall(body[10:])
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        assert server.wait() == 0
    stored = sqlite3.connect(tmp_path / "run.db").execute("SELECT rid FROM request").fetchall()
    assert stored == [("rid-1",)]


def test_port_taken_says_which_option_changes_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--port", port, cwd=tmp_path)
    assert done.exit_code == 1
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr
    assert "--port" in done.stderr and "SPECSCOPE_PORT" in done.stderr


def test_grpc_port_that_was_asked_for_must_be_free(tmp_path: Path) -> None:
    with reserve("127.0.0.1", 0) as taken:  # shared with nobody who does not ask for it first
        port = str(taken.getsockname()[1])
        done = run("serve", "--port", "0", "--grpc-port", port, "--db", "run.db", cwd=tmp_path)
    assert done.exit_code == 1
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr
    assert "--grpc-port" in done.stderr and "SPECSCOPE_GRPC_PORT" in done.stderr
    assert not (tmp_path / "run.db").exists()


def test_grpc_default_port_is_given_up_if_another_has_it_and_that_is_said(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with suppress(ListenError):  # another program has it already
            stack.enter_context(reserve("127.0.0.1", s.DEFAULT_GRPC_PORT))
        server = stack.enter_context(started("--port", "0", "--db", "run.db", cwd=tmp_path))
        assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
        assert server.end(signal.SIGTERM) == 0
    assert server.grpc == ""
    assert any("OTLP/gRPC is off: port 4317" in line and "--grpc-port" in line for line in server.lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [("short", "16"), ("two words of a token", "space"), ("", "16"), ("\u00e4" * 20, "ASCII")],
)
def test_token_file_that_holds_no_token(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(SettingsError, match="token") as caught:
        read_token(str(tmp_path / "token"))
    assert says in str(caught.value)
    assert not text or text not in str(caught.value)


def test_token_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  0123456789abcdef\n")
    assert read_token(str(tmp_path / "token")) == "0123456789abcdef"
    assert read_token("") == ""


def test_workers_share_both_ports_and_drain_together(tmp_path: Path) -> None:
    options = ("--port", "0", "--grpc-port", "0", "--db", "run.db", "--workers", "2")
    with started(*options, cwd=tmp_path) as server:
        for number in range(8):  # each on a connection of its own, so that the kernel deals them out
            with exports.channel(server.grpc, options=(("grpc.use_local_subchannel_pool", 1),)) as to:
                exports.send(to, "traces", exports.good("traces", number), wait_for_ready=True)
            body = exports.good("traces", number + 8).SerializeToString()
            answer = httpx.post(
                f"{server.url}/v1/traces", content=body, headers={"Content-Type": PROTOBUF}, timeout=300
            )
            assert answer.status_code == 200
        status = httpx.get(f"{server.url}/api/v1/status", timeout=300).json()
        assert status["ingest"]["traces"]["exports"] == 16  # of both workers
        workers = children(server.process.pid)
        assert server.end(signal.SIGTERM) == 0
        while any(map(is_running, workers)):  # Python's own helper of theirs notices a little later
            pass
    assert "Traceback" not in "".join(server.lines)
    stored = sqlite3.connect(tmp_path / "run.db").execute("SELECT count(*) FROM request").fetchall()
    assert stored == [(16,)]


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    options = ("--port", "0", "--grpc-port", "off", "--db", "run.db", "--workers", "2")
    with started(*options, cwd=tmp_path) as server:
        assert httpx.get(f"{server.url}/healthz", timeout=300).status_code == 200
        workers = children(server.process.pid)
        server.process.kill()
        while any(map(is_running, workers)):
            pass
    assert len(workers) >= 2


def children(pid: int) -> list[int]:
    """Processes that a process started, as Linux tells them."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Whether there is such a process; one that has ended and is not yet waited for is none."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_open_address_is_refused_unless_asked_for(tmp_path: Path, host: str) -> None:
    done = run("serve", "--host", host, "--port", "0", "--db", "run.db", cwd=tmp_path)
    assert done.exit_code == 2
    assert "--allow-unauthenticated" in done.stderr
    assert not (tmp_path / "run.db").exists()


def test_open_address_is_served_when_asked_for(tmp_path: Path) -> None:
    env = environment(  # as docker-compose.yml sets it
        SPECSCOPE_ALLOW_UNAUTHENTICATED="1",
        SPECSCOPE_HOST="0.0.0.0",
        SPECSCOPE_DB="run.db",
        SPECSCOPE_NOTIFY="",
        SPECSCOPE_SERVER_TRUSTED_HOSTS="specscope ",
    )
    with started("--port", "0", cwd=tmp_path, env=env) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        for host, status in (("specscope:4318", 200), ("127.0.0.1", 200), ("evil.example", 400)):
            assert httpx.get(f"{url}/healthz", headers={"Host": host}, timeout=60).status_code == status
        assert httpx.get(f"{url}/api/v1/status", timeout=60).json()["notify_targets"] == 0
    assert (tmp_path / "run.db").exists()


def _content(path: Path) -> object:
    """What the file holds: its tables, or its bytes where it is no database."""
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    except sqlite3.DatabaseError:
        return path.read_bytes()
    finally:
        connection.close()


def _junk(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be one" * 100)


def _newer(path: Path) -> None:
    run("db", "upgrade", "--db", str(path), cwd=path.parent)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE specscope_version SET version_num = '9999_future'")
    connection.commit()
    connection.close()


def _strange(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE request (id)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [(_junk, "not a"), (_newer, "newer SpecScope"), (_strange, "not SpecScope's")],
    ids=["not a database", "newer than the code", "another program's"],
)
def test_database_that_cannot_serve(tmp_path: Path, make: object, says: str) -> None:
    path = tmp_path / "run.db"
    assert callable(make)
    make(path)
    before = _content(path)
    for command in (["serve", "--port", "0"], ["db", "check"]):
        done = run(*command, "--db", "run.db", cwd=tmp_path)
        assert done.exit_code == 1
        assert says in done.stderr and "run.db" in done.stderr
        assert _content(path) == before


def test_missing_directory(tmp_path: Path) -> None:
    done = run("serve", "--port", "0", "--db", "sqlite:///nowhere/run.db", cwd=tmp_path)
    assert done.exit_code == 1
    assert "nowhere does not exist" in done.stderr
    assert not (tmp_path / "nowhere").exists()


def test_locked_database(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    done = run("serve", "--port", "0", "--db", "run.db", cwd=tmp_path)
    connection.close()
    assert done.exit_code == 1
    assert "lock" in done.stderr and "run.db" in done.stderr


def test_database_url_with_a_password_is_never_printed(tmp_path: Path) -> None:
    url = "postgresql://user:s3cret@127.0.0.1:1/name"
    for command in (["serve", "--port", "0"], ["db", "check"], ["db", "upgrade"]):
        done = run(*command, "--db", url, cwd=tmp_path)
        assert done.exit_code == 1
        assert "s3cret" not in done.stdout + done.stderr
        assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--port", "http"], "--port"),
        (["--port", "70000"], "--port"),
        (["--max-body-mb", "0"], "--max-body-mb"),
        (["--max-inflated-mb", "many"], "--max-inflated-mb"),
        (["--grpc-port", "http"], "--grpc-port"),
        (["--grpc-port", "70000"], "--grpc-port"),
        (["--url", "nonsense"], "--url"),
        (["--url", "ftp://specscope.example"], "--url"),
        (["--url", "http://"], "--url"),
        (["--url", "http://host:port"], "--url"),
        (["--workers", "0"], "--workers"),
        (["--tls-cert", "cert.pem"], "--tls-key"),
        (["--tls-cert", "no.pem", "--tls-key", "no.pem"], "--tls-cert"),
        (["--ingest-token-file", "no.txt"], "--ingest-token-file"),
        (["--notify", "https://hooks.example/s3cret"], "webhook+https"),
        (["--notify", "nosuchservice://s3cret"], "apprise"),
        (["--host", "no.such.host.invalid", "--allow-unauthenticated"], "--host"),
    ],
)
def test_option_that_makes_no_sense(tmp_path: Path, options: list[str], says: str) -> None:
    done = run("serve", "--port", "0", "--db", "run.db", *options, cwd=tmp_path)
    assert done.exit_code in (1, 2)
    assert says in done.stderr
    assert "s3cret" not in done.stderr
    assert not (tmp_path / "run.db").exists()


def test_db_commands(tmp_path: Path) -> None:
    empty = run("db", "check", "--db", "run.db", cwd=tmp_path)
    assert empty.exit_code == 1
    assert "specscope db upgrade" in empty.stderr
    assert run("db", "upgrade", "--db", "run.db", cwd=tmp_path).exit_code == 0
    sound = run("db", "check", "--db", "run.db", cwd=tmp_path)
    assert (sound.exit_code, sound.stderr) == (0, "")
    assert "sound" in sound.stdout


def test_every_option_and_variable_is_in_help_and_documentation(tmp_path: Path) -> None:
    told = run("serve", "--help", cwd=tmp_path, COLUMNS="200").stdout
    written = (REFERENCE / "server-settings.md").read_text()
    options = {word.strip(",") for word in told.split() if word.startswith("--")} - {"--help"}
    assert len(options) == len(s.ALL_VARIABLES)
    assert all(f"`{option}`" in written for option in options)
    assert all(variable in told for variable in s.ALL_VARIABLES)


def test_every_command_is_documented() -> None:
    written = (REFERENCE / "cli.md").read_text()
    named: list[str] = []
    for typed in (cli.app, app()):
        named += [
            f"specscope {c.name or c.callback.__name__}" for c in typed.registered_commands if c.callback
        ]
        for group in typed.registered_groups:
            assert group.typer_instance is not None
            inner = group.typer_instance.registered_commands
            named += [f"specscope {group.name} {c.name or c.callback.__name__}" for c in inner if c.callback]
    assert {"specscope serve", "specscope db check", "specscope decode"} <= set(named)
    assert [name for name in named if f"| `{name}` |" not in written] == []


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("no.such.host.invalid", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(("text", "port"), [("0", 0), ("4318", 4318), ("tcp://10.0.0.1:4318", 4318)])
def test_port(text: str, port: int) -> None:
    assert parse_port(text) == port


@pytest.mark.parametrize(
    ("text", "port"), [("off", None), ("", 4317), ("tcp://10.0.0.1:4317", 4317), ("0", 0), ("5", 5)]
)
def test_grpc_port(text: str, port: int | None) -> None:
    assert parse_grpc_port(text) == port


@pytest.mark.parametrize("text", ["", "-1", "65536", "4318 ", "٣", "1e3", "9" * 5000])
def test_not_a_port(text: str) -> None:
    with pytest.raises(SettingsError, match="--port") as found:
        parse_port(text)
    assert len(str(found.value)) < 200
    if text:  # which is gRPC's default
        with pytest.raises(SettingsError, match="--grpc-port"):
            parse_grpc_port(text)


def test_default_database_is_private_and_ignores_relative_directories(tmp_path: Path) -> None:
    assert default_database({"XDG_DATA_HOME": str(tmp_path)}) == str(tmp_path / "specscope" / "specscope.db")
    assert stat.S_IMODE((tmp_path / "specscope").stat().st_mode) == 0o700


def test_default_database_without_a_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="--db"):
        default_database({"XDG_DATA_HOME": str(tmp_path / "file")})


def test_settings_of_an_open_address_must_be_meant() -> None:
    with pytest.raises(SettingsError, match="SPECSCOPE_ALLOW_UNAUTHENTICATED"):
        ServerSettings(db="x", host="0.0.0.0").check()
    ServerSettings(db="x", host="0.0.0.0", allow_unauthenticated=True).check()
    ServerSettings(db="x").check()
