"""A real PostgreSQL server of our own: private files, private socket, gone with the test session."""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

TEMPLATE = "specscope_template"
_NAMES = itertools.count(1)


def programs() -> Path:
    """Return the directory of initdb and postgres; Debian keeps it out of PATH, named after the version.

    Raises:
        RuntimeError: no server is installed.
    """
    on_path = shutil.which("initdb")
    places = [Path(on_path).resolve().parent] if on_path else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise RuntimeError(
        "these tests start a PostgreSQL server and found none on PATH or in /usr/lib/postgresql/*/bin: "
        "install it (Debian: apt-get install postgresql) or leave them out (pytest -m 'not postgres')"
    )


def _version(place: Path) -> int:
    return int(re.sub(r"\D", "", place.parent.name) or 0)


def _account() -> dict[str, Any]:
    """Return whom the server runs as, in subprocess' words: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    chosen = names.get("postgres") or names["nobody"]
    return {"user": chosen.pw_uid, "group": chosen.pw_gid, "extra_groups": []}


class Server:
    """A running server; :meth:`url` names databases on it."""

    def __init__(self, root: Path, process: subprocess.Popen[str]) -> None:
        """Take over a server that listens on a socket in ``root``."""
        self.root, self.process = root, process

    def url(self, database: str) -> str:
        """Return the address of a database, as given to ``--db``."""
        return f"postgresql://postgres@/{database}?host={self.root}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection that commits each statement."""
        return psycopg.connect(host=str(self.root), user="postgres", dbname=database, autocommit=True)

    def create(self, template: str = "template0") -> str:
        """Make a database, as a copy of ``template``, and return its name."""
        name = f"test_{next(_NAMES)}"
        with self.connect() as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(template)
                )
            )
        return name

    def drop(self, name: str) -> None:
        """Remove a database, whoever still uses it."""
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _run(command: Sequence[str | Path], account: dict[str, Any]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, cwd="/", check=False, timeout=120, **account
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr or done.stdout}")


@contextmanager
def server(*, durable: bool = False) -> Generator[Server, None, None]:
    """Start a server and stop it at the end; ``durable`` leaves it as it comes, as benchmarks must.

    Raises:
        RuntimeError: none is installed, or it does not start; the message has its own words.
    """
    bin_, account = programs(), _account()
    # Not pytest's tmp_path: another user must get in, and a socket's path may have 107 bytes at most.
    root = Path(tempfile.mkdtemp(prefix="specscope-pg-"))
    process: subprocess.Popen[str] | None = None
    try:
        if account:
            os.chown(root, account["user"], account["group"])
        data = root / "data"
        _run(
            [bin_ / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
            account,
        )
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(root),
            "max_connections": "100",
        }
        if not durable:
            # The machine may crash, then the tests have failed anyway.
            settings |= {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB"}
            settings |= {"autovacuum": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(
                [bin_ / "postgres", "-D", data, *options],
                stdout=log,
                stderr=log,
                cwd="/",
                text=True,
                **account,
            )
        made = Server(root, process)
        _wait(made)
        yield made
    finally:
        if process is not None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(root, ignore_errors=True)


def _wait(made: Server) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            made.connect().close()
        except psycopg.OperationalError as error:
            if made.process.poll() is not None or time.monotonic() > deadline:
                log = (made.root / "log").read_text(errors="replace")
                raise RuntimeError(f"PostgreSQL did not start: {log}") from error
            time.sleep(0.05)
        else:
            return
