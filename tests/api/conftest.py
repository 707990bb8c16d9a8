"""A server that has heard of one engine, on each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from serverkit import otlp
from serverkit.live import Live, serving


@pytest.fixture
def live(store_url: str) -> Iterator[Live]:
    """A server without data."""
    with serving(store_url) as found:
        yield found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server on SQLite that one process has told everything once, and of 5 requests."""
    with serving(f"sqlite:///{tmp_path_factory.mktemp('told') / 'store.db'}") as found:
        spans = [otlp.engine_span(), otlp.rollup_span(), otlp.steps_span(0)]
        spans += [otlp.request_span(n) for n in range(5)]
        assert found.export(otlp.traces(*spans)).status_code == 200
        beat = otlp.metrics(*otlp.heartbeat_metrics())
        assert found.export(beat, "/v1/metrics").status_code == 200
        yield found
