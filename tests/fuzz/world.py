"""The application in this process over a real SQLite store, and one request to it without a socket."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from specscope_server.app import create_app
from specscope_server.settings import ServerSettings
from specscope_server.store import open_store

from fuzz.case import Case

RAM = Path("/dev/shm")
"""A million commits must not wear out a disk; how SQLite syncs is no business of this test."""
PIECE = 1 << 16


@dataclass(frozen=True)
class Answer:
    """How a request was answered."""

    status: int
    body: bytes


class World:
    """An application and its store, new again after ``renew`` requests so that neither grows for ever."""

    def __init__(self, renew: int = 20_000) -> None:
        logging.disable(logging.CRITICAL)
        self._renew, self._asked = renew, 0
        self._loop = asyncio.new_event_loop()
        # One task that lasts, as under a server: worker threads belong to it and would end with each request.
        self._ended = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._ended.wait(),), daemon=True
        )
        self._thread.start()
        self._open()

    def _open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="specscope-fuzz-", dir=RAM if RAM.is_dir() else None))
        self.url = f"sqlite:///{self.folder / 'store.db'}"
        settings = ServerSettings(db=self.url, port=0)
        self.store = open_store(self.url)
        self._app: Any = create_app(settings, self.store)

    def close(self) -> None:
        """Close the store, remove its file and end the thread."""
        self._shut()
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()
        logging.disable(logging.NOTSET)

    def _shut(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, case: Case) -> Answer:
        """Send one request.

        Raises:
            Exception: what the application raised, which a server would have to answer with 500.
        """
        self._asked += 1
        if self._asked % self._renew == 0:
            self._shut()
            self._open()
        return asyncio.run_coroutine_threadsafe(self._ask(case), self._loop).result()

    async def _ask(self, case: Case) -> Answer:
        path, _, query = case.path.partition("?")
        headers = [
            (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
            for name, value in case.headers
        ]
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": case.method,
            "scheme": "http",
            "path": unquote_to_bytes(path).decode("utf-8", "replace"),
            "raw_path": path.encode("latin-1", "replace"),
            "query_string": query.encode("latin-1", "replace"),
            "root_path": "",
            "headers": [(b"host", b"127.0.0.1:4318"), *headers],
            "client": ("127.0.0.1", 4),
            "server": ("127.0.0.1", 4318),
            "state": {},
        }
        pieces = [case.body[at : at + PIECE] for at in range(0, len(case.body), PIECE)] or [b""]
        given = iter(range(len(pieces)))
        ended = asyncio.Event()
        status, told = 0, bytearray()

        async def receive() -> dict[str, Any]:
            at = next(given, None)
            if at is None:
                await ended.wait()
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": pieces[at], "more_body": at + 1 < len(pieces)}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                told.extend(message.get("body", b""))
                if not message.get("more_body"):
                    ended.set()

        await self._app(scope, receive, send)
        return Answer(status, bytes(told))
