"""An answer or a page speaks of one moment, whatever arrives while it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from serverkit import otlp
from serverkit.live import Live
from specscope import convention as c
from specscope_server.store.reads import SqlReads

ENGINES = "/api/v1/engines"


def _tell(live: Live, *numbers: int) -> None:
    """Requests that needed no verify step, and a heartbeat that counts three."""
    # Without what the tracer lost: where records may be missing the state says so, and no number.
    told = [one for one in otlp.heartbeat_metrics() if one.name != c.METRIC_DROPPED]
    beat = otlp.metrics(*told)
    assert live.export(beat, "/v1/metrics").status_code == 200
    nothing = dict.fromkeys((c.REQUEST_VERIFY_STEPS, c.REQUEST_ACCEPTED, c.REQUEST_BONUS), 0)
    spans = [otlp.request_span(n, **nothing) for n in numbers]
    assert live.export(otlp.traces(*spans)).status_code == 200


@pytest.fixture
def interrupted(live: Live, monkeypatch: pytest.MonkeyPatch) -> Live:
    """A server of one engine whose requests 1 to 4 arrive right after an answer's first read."""
    _tell(live, 0)
    arrived: list[bool] = []
    for name in ("engine", "engines"):
        read: Callable[..., Any] = getattr(SqlReads, name)

        def then_more(self: SqlReads, *args: Any, read: Callable[..., Any] = read) -> Any:
            found = read(self, *args)
            if not arrived:
                arrived.append(True)
                _tell(live, 1, 2, 3, 4)
            return found

        monkeypatch.setattr(SqlReads, name, then_more)
    return live


@pytest.mark.parametrize("one", [True, False])
def test_an_answer_of_the_api(interrupted: Live, one: bool) -> None:
    uid = otlp.engine_uid()

    def answer() -> dict[str, Any]:
        return interrupted.get(f"{ENGINES}/{uid}") if one else interrupted.get(ENGINES)["items"][0]

    first, second = answer(), answer()
    # The counter says 3 from the first on; what was told of the others is seen whole, or not at all.
    assert (first["requests"], second["requests"]) == ({"user": 3}, {"user": 5})
    assert "1 were served" in first["state_reason"]
    assert "5 were served" in second["state_reason"]


def test_a_page(interrupted: Live) -> None:
    page = f"/engines/{otlp.engine_uid()}"
    first, second = (interrupted.client.get(page).text for _ in range(2))
    assert "1 were served" in first and "Requests since start: 3 user" in first
    assert "5 were served" in second and "Requests since start: 5 user" in second


def test_the_overview(interrupted: Live) -> None:
    first, second = (interrupted.client.get("/").text for _ in range(2))
    assert "1 were served" in first and "5 were served" in second
