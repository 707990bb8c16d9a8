"""The real server over a store with a fleet in it, and Chromium that reports everything odd a page does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import callers
import uvicorn
from fleet import Engine, write
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Route
from specscope_server.app import create_app
from specscope_server.settings import ServerSettings
from specscope_server.store import open_store
from specscope_server.store.model import RequestFilter
from specscope_server.store.port import Store

SCREENSHOTS = Path(__file__).parents[2] / "artifacts" / "screenshots"
PULSE_S = 3.0
"""Seconds between heartbeats of the fleet: an engine is silent after 15."""


@dataclass(frozen=True)
class Served:
    """A running server: its address, its store, and the fleet's ids by name."""

    url: str
    store: Store
    engines: dict[str, str]

    def engine(self, name: str) -> str:
        """Return the path of an engine's page."""
        return f"/engines/{self.engines[name]}"

    def request(self, rid: str) -> str:
        """Return the path of a request's page."""
        found = [
            r.uid
            for workspace in ("default", "research")
            for r in self.store.requests(RequestFilter(workspace=workspace, rid=rid), 5).items
        ]
        assert len(found) == 1, f"{len(found)} requests have the rid {rid!r}"
        return f"/requests/{found[0]}"


@contextmanager
def serve(database: Path, engines: list[Engine]) -> Generator[Served]:
    """Run the server over a new store with these engines, which keep sending heartbeats."""
    store = open_store(str(database))
    now = datetime.now(UTC)
    told = [(engine, write(store, engine, now, seed)) for seed, engine in enumerate(engines, start=1)]
    for engine in engines:
        for rid in engine.rids:
            callers.write(store, engine.workspace, rid, now)
    stop = threading.Event()

    def pulse() -> None:
        while not stop.wait(PULSE_S):
            for engine, facts in told:
                if not engine.heard_s:
                    facts.pulse(store, datetime.now(UTC))

    for engine, facts in told:
        if not engine.heard_s:
            facts.pulse(store, datetime.now(UTC))
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(ServerSettings(db=str(database)), store)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", ws="none"))
    threads = [
        threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True),
        threading.Thread(target=pulse, daemon=True),
    ]
    for thread in threads:
        thread.start()
    while not server.started:
        assert threads[0].is_alive(), "the server ended at its start"
        time.sleep(0.02)
    known = {e.name: e.engine_uid for w in ("default", "research") for e in store.engines(w, now)}
    try:
        yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", store, known)
    finally:
        stop.set()
        threads[1].join()
        server.should_exit = True
        threads[0].join()
        listener.close()


WATCH = """
addEventListener("securitypolicyviolation", (e) =>
  console.error(`policy: ${e.effectiveDirective} blocked ${e.blockedURI} at ${e.sourceFile}`));
"""


@dataclass
class Watched:
    """A browser context whose pages may talk to the server alone; what they do otherwise is kept."""

    context: BrowserContext
    url: str
    complaints: list[str] = field(default_factory=list[str])
    outside: list[str] = field(default_factory=list[str])

    def open(self, path: str) -> Page:
        """Open a page and wait until its figures are drawn."""
        page = self.context.new_page()
        page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: self.complaints.append(str(e)))
        page.on("dialog", self._refuse)
        page.goto(self.url + path, wait_until="load")
        drawn = "[...document.querySelectorAll('[data-figure]')].every((f) => f.querySelector('.main-svg'))"
        page.wait_for_function(drawn)
        return page

    def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def assert_quiet(self) -> None:
        """Fail when a page complained or asked for anything outside the server."""
        assert not self.outside
        assert not self.complaints


@contextmanager
def watched(
    chromium: Browser,
    served: Served,
    *,
    scheme: str = "light",
    width: int = 1440,
    javascript: bool = True,
) -> Generator[Watched]:
    """Open a context of that colour scheme and width in pixels."""
    context = chromium.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=javascript,
    )
    found = Watched(context, served.url)
    host = urlsplit(served.url).netloc

    def only_ours(route: Route) -> None:
        if urlsplit(route.request.url).netloc == host:
            route.continue_()
        else:
            found.outside.append(route.request.url)
            route.abort()

    context.route("**/*", only_ours)
    context.add_init_script(WATCH)
    try:
        yield found
    finally:
        context.close()
