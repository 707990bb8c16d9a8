"""State and findings of a page are of one judgement, whatever the evaluator has stored of it by then."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fleet import Engine, write
from specscope_server.diagnosis import diagnose
from specscope_server.store import open_store
from specscope_server.store.port import Store
from specscope_server.web import routes
from wirekit.weights import LOST, told

NOW = datetime.now(UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(str(tmp_path / "fresh.db"))
    yield opened
    opened.close()


@pytest.fixture
def engine(store: Store) -> str:
    """Its uid."""
    write(store, Engine("lost", "i-lost", started_s=300, accept=(0.02, 0.0), config=told(LOST)), NOW)
    ((_, uid),) = store.engine_uids()
    return uid


def pages(store: Store, engine: str, now: datetime) -> tuple[str, str]:
    """Return the overview and the engine's page."""
    app = FastAPI()
    app.include_router(routes.router(store, now=lambda: now))

    async def get() -> tuple[str, str]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            overview, own = await client.get("/"), await client.get(f"/engines/{engine}")
            return html.unescape(overview.text), html.unescape(own.text)

    return asyncio.run(get())


def test_what_no_evaluator_has_stored_yet_is_on_the_page_that_calls_the_engine_faulty(
    store: Store, engine: str
) -> None:
    evidence = store.evidence("default", engine, NOW, routes.JUDGE_S)
    found = diagnose(evidence).findings
    assert found and not store.findings("default")
    for page in pages(store, engine, NOW):
        assert "faulty" in page
        for one in found:
            assert one.title in page
            anchor = f"finding-{engine}-{one.kind}-{one.boundary}"
            assert page.count(f'id="{anchor}"') == 1


def test_a_stored_finding_keeps_its_number_and_since_when_it_holds(store: Store, engine: str) -> None:
    found = diagnose(store.evidence("default", engine, NOW, routes.JUDGE_S)).findings
    store.replace_findings(engine, found, NOW)
    (number, *_) = [row.id for row in store.findings("default") if row.kind == found[0].kind]
    later = NOW + timedelta(seconds=90)
    for page in pages(store, engine, later):
        assert page.count(f'id="finding-{number}"') == 1
        assert f"finding-{engine}-{found[0].kind}" not in page


def test_what_holds_no_more_is_not_beside_a_state_that_says_so(store: Store, engine: str) -> None:
    found = diagnose(store.evidence("default", engine, NOW, routes.JUDGE_S)).findings
    store.replace_findings(engine, found, NOW)
    # Long after it was heard last: the engine is silent, so nothing is said of what it serves.
    for page in pages(store, engine, NOW + timedelta(hours=2)):
        assert "tracer silent" in page
        assert found[0].sentence not in page
