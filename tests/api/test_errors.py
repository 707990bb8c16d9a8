"""One error shape at every endpoint; no input makes the server fail."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serverkit.live import Live, serving


def error_of(answer: httpx.Response, status: int) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["code"] and error["message"]
    return error


@pytest.mark.parametrize(
    ("path", "code", "says"),
    [
        ("/api/v1/engines/nobody", "engine_not_found", "nobody"),
        ("/api/v1/requests/nobody", "request_not_found", "nobody"),
        ("/api/v1/nothing", "not_found", "/api/v1/nothing"),
        ("/api/v2/engines", "not_found", "/api/v2/engines"),
    ],
)
def test_what_is_not_there(told: Live, path: str, code: str, says: str) -> None:
    error = error_of(told.client.get(path), 404)
    assert error["code"] == code
    assert says in error["message"]
    assert error["hint"]


def test_unknown_request_hints_at_the_search_by_rid(told: Live) -> None:
    assert "text=rid-1" in error_of(told.client.get("/api/v1/requests/rid-1"), 404)["hint"]


@pytest.mark.parametrize(
    ("path", "params", "says"),
    [
        ("requests", {"limit": 0}, "limit"),
        ("requests", {"limit": 501}, "limit"),
        ("requests", {"limit": "many"}, "limit"),
        ("requests", {"since": "yesterday"}, "since"),
        ("requests", {"since": "0001-01-01T00:00:00Z"}, "since"),
        ("requests", {"until": "9999-12-31T23:59:59-12:00"}, "until"),
        ("requests", {"flag": "red"}, "flag"),
        ("requests", {"state": "asleep"}, "state"),
        ("requests", {"acceptance_min": "nan"}, "acceptance_min"),
        ("requests", {"acceptance_max": -1}, "acceptance_max"),
        ("requests", {"rid": "a\0"}, "rid"),
        ("requests", {"text": "x" * 513}, "text"),
        ("requests", {"enigne": "e"}, "'enigne'"),
        ("engines", {"window_s": 1}, "window_s"),
        ("engines", {"workspace": ""}, "workspace"),
        ("series", {"bucket": 15}, "bucket"),
        ("series", {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, "before"),
        ("series", {"since": "2020-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, "points"),
        ("alerts", {"limit": -1}, "limit"),
    ],
)
def test_bad_parameter_is_named(told: Live, path: str, params: dict[str, Any], says: str) -> None:
    assert says in error_of(told.client.get(f"/api/v1/{path}", params=params), 400)["message"]


@pytest.mark.parametrize("cursor", ["x", "AAAA", "é", "MTIz"])
def test_foreign_cursor(told: Live, cursor: str) -> None:
    error = error_of(told.client.get("/api/v1/requests", params={"cursor": cursor}), 400)
    assert error["code"] == "invalid_cursor"


def test_other_methods(told: Live) -> None:
    error_of(told.client.post("/api/v1/engines"), 405)
    error_of(told.client.delete("/healthz"), 405)


TEXTS = st.text(max_size=40)


@given(
    name=st.sampled_from(
        ["text", "rid", "trace_id", "engine", "model", "cursor", "workspace", "since", "kind"]
    ),
    value=TEXTS,
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_makes_the_search_fail(told: Live, name: str, value: str) -> None:
    query = f"{name}={quote(value, errors='surrogatepass')}"
    answer = told.client.get(f"/api/v1/requests?{query}")
    if answer.status_code != 200:
        error_of(answer, 400)


@given(value=TEXTS.filter(lambda text: text.strip("./") != ""))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_uid_makes_the_server_fail(told: Live, value: str) -> None:
    for kind in ("requests", "engines"):
        answer = told.client.get(f"/api/v1/{kind}/{quote(value, safe='', errors='surrogatepass')}")
        error_of(answer, answer.status_code)
        assert answer.status_code in (400, 404)


@pytest.mark.postgres
@pytest.mark.parametrize(
    "path", ["requests?rid=a%00", "engines/a%00b", "requests/%00", "findings?engine=%00"]
)
def test_nul_never_reaches_postgresql(postgres_url: str, path: str) -> None:
    with serving(postgres_url) as live:
        error_of(live.client.get(f"/api/v1/{path}"), 400)


def test_database_that_went_away_is_told_by_health_and_api(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with serving(f"sqlite:///{file}") as live:
        assert live.client.get("/healthz").status_code == 200
        other = sqlite3.connect(file)
        other.executescript("PRAGMA foreign_keys = OFF; DROP TABLE model; DROP TABLE finding;")
        other.close()
        for path in ("/healthz", "/api/v1/findings"):
            answer = live.client.get(path)
            error = error_of(answer, 503)
            assert error["code"] == "database_unavailable"
            assert "store.db" in error["message"]
            assert int(answer.headers["retry-after"]) >= 1
