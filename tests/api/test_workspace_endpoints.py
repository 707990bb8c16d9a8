"""No endpoint and no page of one workspace shows anything of another, whatever ids the two share.

All endpoints are asked that the application says it has: one whose parameters have no value here fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from fastapi.routing import APIRoute
from serverkit.live import Live, serving
from specscope_server.web import routes as pages
from storekit.everything import REFERENCE, RESPONSE, RID, SILENCE, TOKENIZER, TRACE, UID, Workspace, fill

MINE = Workspace("mine", "oakwood", 48_170_976)
THEIRS = Workspace("theirs", "birchwood", 92_530_408)
PATH: dict[str, str] = {
    "engine_uid": "",
    "uid": UID,
    "reference_uid": REFERENCE,
    "tokenizer_hash": TOKENIZER,
    "name": "pages.css",
    "rule": "silent_path",
    "change": "1",
    "path": "x",
}
FILTERS: dict[str, tuple[dict[str, str], ...]] = {
    "/api/v1/requests": tuple(
        {"rid": RID} | more
        for more in (
            {},
            {"trace_id": TRACE},
            {"response_id": RESPONSE},
            {"text": "cd" * 16},
            {"engine": "ENGINE"},
        )
    ),
    "/requests": ({"q": RID}, {"q": "cd" * 16}, {"engine": "ENGINE"}),
    "/api/v1/series": ({"engine": "ENGINE"}, {"dimension": "context"}),
    "/api/v1/findings": ({"engine": "ENGINE"}, {"active": "false"}),
}
"""Searches that the two workspaces share the words of."""
COMPARING = {"/api/v1/requests/{uid}/reference", "/api/v1/engines/{engine_uid}/reference"}
"""What answers with ratios alone."""
OF_NONE = {
    "/api/v1/status",
    "/api/v1/me",
    "/status",
    "/healthz",
    "/static/{name:path}",
    "/favicon.ico",
    "/{path:path}",
}
"""What is of the server, not of a workspace. It must not show anything of one either."""
CHANGING = {
    ("post", "/api/v1/references"),
    ("delete", "/api/v1/references/{reference_uid}"),
    ("post", "/api/v1/tokenizers"),
    ("delete", "/api/v1/tokenizers/{tokenizer_hash}"),
    ("delete", "/api/v1/requests/{uid}"),
    ("put", "/api/v1/expectations"),
    ("delete", "/api/v1/expectations"),
    ("post", "/api/v1/expectations/learn"),
    ("put", "/api/v1/rules/{rule}"),
    ("delete", "/api/v1/rules/{rule}"),
    ("post", "/api/v1/silences"),
    ("delete", "/api/v1/silences/{uid}"),
    ("post", "/api/v1/alerts/acknowledge"),
    ("post", "/api/v1/alerts/test"),
    ("post", "/api/v1/deliveries/{delivery_id}/retry"),
    ("post", "/requests/{uid}/delete"),
    ("post", "/alerts/rules"),
    ("post", "/alerts/rules/{rule}"),
    ("post", "/alerts/silences"),
    ("post", "/alerts/silences/{uid}/end"),
    ("post", "/alerts/on/{engine_uid}/{rule}/acknowledge"),
    ("post", "/alerts/test"),
    ("post", "/alerts/deliveries/{number}/retry"),
}
"""All that changes something; what is of alerts is tried out below."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    url = f"sqlite:///{tmp_path_factory.mktemp('crossing') / 'both.db'}"
    with serving(url) as server:
        for workspace in (MINE, THEIRS):
            fill(server.store, workspace, datetime.now(UTC))
        yield server


def endpoints(live: Live) -> list[tuple[str, str]]:
    """Every (method, path) of API and pages."""
    found = [
        (method, path)
        for path, operations in live.get("/openapi.json")["paths"].items()
        for method in operations
    ]
    routes = [route for route in pages.router(live.store).routes if isinstance(route, APIRoute)]
    return found + [(method.lower(), route.path) for route in routes for method in route.methods or ()]


def asked(path: str, engine_uid: str) -> list[tuple[str, dict[str, str]]]:
    """The URLs and parameters to ask a path with, about an engine."""
    values = PATH | {"engine_uid": engine_uid}
    url = re.sub(r"{(\w+)(:path)?}", lambda found: values[found[1]], path)
    return [
        (url, {name: engine_uid if value == "ENGINE" else value for name, value in given.items()})
        for given in FILTERS.get(path, ({},))
    ]


def text(answer: httpx.Response) -> str:
    """The body, without thousands separators in its numbers."""
    return re.sub(r"(?<=\d)[,\u202f\u00a0 ](?=\d{3})", "", answer.text)


def test_no_endpoint_shows_another_workspace(live: Live) -> None:
    showing: set[str] = set()
    for method, path in endpoints(live):
        if method not in ("get", "head"):
            continue
        for of in (MINE, THEIRS):
            for url, given in asked(path, of.engine):
                own = {} if path in OF_NONE else {"workspace": MINE.name}
                answer = live.client.get(url, params=given | own)
                assert answer.status_code < 500, (url, answer.text)
                for secret in (THEIRS.word, str(THEIRS.number)):
                    assert secret not in text(answer), f"{answer.url} shows {secret}"
                if MINE.word in text(answer) or str(MINE.number) in text(answer):
                    showing.add(path)
    paths = {path for method, path in endpoints(live) if method in ("get", "head")}
    # An endpoint that never shows its own would pass without being tested.
    assert showing == paths - OF_NONE - COMPARING


def test_nothing_of_another_workspace_can_be_changed(live: Live) -> None:
    changing = {(method, path) for method, path in endpoints(live) if method not in ("get", "head")}
    assert changing == CHANGING
    url = f"/api/v1/references/{REFERENCE}"
    assert live.client.delete(url, params={"workspace": "third"}).status_code == 404
    for workspace in (MINE, THEIRS):
        assert workspace.word in live.client.get(url, params={"workspace": workspace.name}).text
    assert live.client.delete(url, params={"workspace": MINE.name}).status_code < 300
    assert live.client.get(url, params={"workspace": MINE.name}).status_code == 404
    assert THEIRS.word in live.client.get(url, params={"workspace": THEIRS.name}).text


def test_alerts_of_another_workspace_cannot_be_changed(live: Live) -> None:
    """Rules, silences, states and notifications: named as another's, whatever is done from one's own."""

    def state(of: Workspace) -> list[str]:
        return [
            live.client.get(f"/api/v1/{path}", params={"workspace": of.name}).text
            for path in ("rules", "silences")
        ] + [str(row.acknowledged_by) for row in live.store.alerts(of.name) if row.rule == "silent_path"]

    before = state(THEIRS)
    (theirs,) = [row.id for row in live.store.deliveries(THEIRS.name, 9) if row.rule == "silent_path"]
    live.store.settle_delivery(theirs, error="gone", next_attempt=None)
    own = {"workspace": MINE.name}
    page = {"Origin": live.url}
    asked = {"engine_uid": THEIRS.engine, "rule": "silent_path", "by": "me"}
    answers = [
        live.client.post("/api/v1/alerts/acknowledge", params=own, json=asked),
        live.client.post(f"/api/v1/deliveries/{theirs}/retry", params=own, json={}),
        live.client.post(
            f"/alerts/on/{THEIRS.engine}/silent_path/acknowledge", params=own, data=asked, headers=page
        ),
        live.client.post(f"/alerts/deliveries/{theirs}/retry", params=own, data={"x": "y"}, headers=page),
        live.client.delete(f"/api/v1/silences/{SILENCE}", params=own),
        live.client.delete("/api/v1/rules/silent_path", params=own),
    ]
    assert [answer.status_code for answer in answers] == [404, 404, 303, 303, 200, 200]
    assert state(THEIRS) == before
    assert [row.status for row in live.store.deliveries(THEIRS.name, 9) if row.id == theirs] == ["failed"]
    assert THEIRS.word in "".join(before)


def test_no_expectation_of_another_workspace_can_be_changed(live: Live) -> None:
    url = "/api/v1/expectations"
    (theirs,) = live.get(url, workspace=THEIRS.name)["items"]
    scope = {name: theirs[name] for name in ("engine", "model", "workload")}
    assert live.client.delete(url, params=scope | {"workspace": MINE.name}).status_code == 404
    said = scope | {"per_position": [0.9], "who": "me", "workload": ""}
    assert live.client.put(url, params={"workspace": MINE.name}, json=said).status_code == 200
    learn = {
        "engine_uid": THEIRS.engine,
        "who": "me",
        "since": "2026-01-01T00:00:00Z",
        "until": theirs["said"],
    }
    refused = live.client.post(f"{url}/learn", params={"workspace": MINE.name}, json=learn)
    assert refused.status_code == 404 and THEIRS.word not in refused.text
    assert live.get(url, workspace=THEIRS.name)["items"] == [theirs]
