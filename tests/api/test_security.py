"""Headers of every answer, and which names the server answers to."""

from __future__ import annotations

from pathlib import Path

import pytest
from serverkit.live import JSON, PROTOBUF, Live, serving, status_of

EVERYWHERE = ["/", "/requests", "/nothing", "/api/v1/engines", "/api/v1/nothing", "/healthz", "/openapi.json"]


@pytest.mark.parametrize("path", EVERYWHERE)
def test_headers(told: Live, path: str) -> None:
    headers = told.client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy or "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] in ("same-origin", "no-referrer")
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_answers_of_the_receiver_carry_them_too(told: Live) -> None:
    headers = told.client.post("/v1/traces").headers
    assert headers["x-content-type-options"] == "nosniff"


def test_no_page_of_the_framework_that_loads_from_elsewhere(told: Live) -> None:
    for path in ("/docs", "/redoc"):
        assert told.client.get(path).status_code == 404


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:80", "127.0.0.1", "127.0.0.1:4318", "[::1]:4318", "LOCALHOST"]
)
def test_names_of_this_machine_are_answered(told: Live, host: str) -> None:
    assert told.client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:4318", "", "[::1"]
)
@pytest.mark.parametrize("path", ["/", "/api/v1/engines"])
def test_other_names_are_not(told: Live, host: str, path: str) -> None:
    answer = told.client.get(path, headers={"Host": host})
    if host == "[::1":
        assert answer.status_code in (200, 400, 405)  # read as ::1, which is this machine
        return
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unknown_host"
    assert "--trusted-host" in answer.json()["error"]["hint"]


@pytest.mark.parametrize("kind", [JSON, PROTOBUF])
def test_other_names_are_refused_to_exporters_in_their_own_type(told: Live, kind: str) -> None:
    answer = told.client.post("/v1/traces", headers={"Host": "evil.example", "Content-Type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (400, kind)
    message = answer.json()["message"] if kind == JSON else status_of(answer).message
    assert "--trusted-host" in message


def test_configured_name_is_answered(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 'store.db'}", trusted_hosts=("Scope.Example",)) as live:
        for host, status in (("scope.example:4318", 200), ("evil.example", 400), ("localhost", 200)):
            assert live.client.get("/healthz", headers={"Host": host}).status_code == status
