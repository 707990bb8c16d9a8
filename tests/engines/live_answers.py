"""A real SpecScope server beside a real engine, asked as its users ask it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serverkit.live import Live, serving
from specscope_server.store.model import RequestDetail, RequestFilter, RequestRow

WAIT_S = 180.0


@contextmanager
def specscope(folder: Path, **changed: Any) -> Generator[Live]:
    """A server over a SQLite file of its own in ``folder``; ``changed`` are settings."""
    # The default window is shorter than a slow machine takes.
    settings: dict[str, Any] = {"judge_s": 3600.0} | changed
    with serving(f"sqlite:///{folder / 'specscope.db'}", **settings) as live:
        yield live


def traced(live: Live, **more: str) -> dict[str, str]:
    """What makes an engine trace into ``live``."""
    return {"SPECSCOPE_ENDPOINT": live.url} | more


def plant(folder: Path, name: str, code: str) -> Path:
    """Make a plugin of SGLang; return the folder that must be in the engine's ``PYTHONPATH``."""
    place = folder / "plugins"
    info = place / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{name} = {name}:register\n")
    (place / f"{name}.py").write_text(code)
    return place


def engine(live: Live) -> dict[str, Any] | None:
    """The only engine that ``live`` knows, over all time; ``None`` before it is heard."""
    items: list[dict[str, Any]] = live.get("/api/v1/engines", window_s=86_400)["items"]
    assert len(items) <= 1
    return items[0] if items else None


def until(live: Live, what: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The engine as ``live`` shows it once ``done`` says that it shows ``what``."""
    deadline = time.monotonic() + WAIT_S
    while True:
        shown = engine(live)
        if shown is not None and done(shown):
            return shown
        if time.monotonic() > deadline:
            told = (
                None if shown is None else {k: v for k, v in shown.items() if k not in ("ledger", "config")}
            )
            raise AssertionError(f"never shown: {what}; shown at last: {told}")
        time.sleep(0.5)


def requests(live: Live) -> list[RequestRow]:
    """All requests that ``live`` knows, newest first."""
    return list(live.store.requests(RequestFilter(), 100_000).items)


def settled(live: Live, **sent: int) -> dict[str, Any]:
    """The engine once all that it was ``sent`` has ended, is in its rollups and was judged.

    ``sent`` is how many requests of each kind the engine got since it started (``user=3``,
    ``health_check=3``, ``warmup=1``). Without these numbers a server that has not heard of the last
    requests yet looks settled. Requests of a kind that is not named are waited for once they are heard of.
    """

    def done(shown: dict[str, Any]) -> bool:
        if any(shown["requests"].get(kind, 0) < count for kind, count in sent.items()):
            return False
        rows = requests(live)
        ended = [row for row in rows if row.state in ("finished", "aborted")]
        arrived = sum(shown["requests"].values())
        steps = sum(row.totals.verify_steps for row in rows if row.kind == "user")
        counted = shown["verify_steps"] or 0
        told = shown["reconciliation"]
        judged = told["compared"] + sum(told["not_compared"].values())
        return len(ended) == len(rows) == arrived == judged and counted >= steps

    return until(live, f"the end of {sent}", done)


def detail(live: Live, uid: str) -> RequestDetail:
    """One request with all of its steps."""
    found = live.store.request("default", uid, 0, 100_000)
    assert found is not None
    return found
