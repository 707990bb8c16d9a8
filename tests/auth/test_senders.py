"""Exports to a server with tokens: who may send, over HTTP and gRPC, and where it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
import pytest
from people import add, bearer, person
from serverkit import exports, otlp
from serverkit.live import Live, serving, status_of
from specscope import convention as c
from specscope_server.auth import door as doors
from specscope_server.ingest.signals import SIGNALS
from specscope_server.store.values import engine_uid

OPERATOR = "0123456789abcdef-of-the-operator"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, dict[str, str]]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('senders') / 'store.db'}"
    with serving(url, grpc=True, auth_required=True, ingest_token=OPERATOR) as live:
        yield live, add(live.store)


def export(live: Live, token: str | None, **resource: object) -> tuple[int, str]:
    """Send one engine over HTTP; its instance is named after the test's wish."""
    told = otlp.traces(otlp.engine_span(), about=otlp.resource(**resource))
    answer = live.export(told, **({} if token is None else bearer(token)))
    return answer.status_code, "" if answer.status_code == 200 else status_of(answer).message


def over_grpc(live: Live, token: str | None, **resource: object) -> grpc.StatusCode:
    with exports.channel(live.settings.grpc_address) as channel:
        method = channel.unary_unary(f"/{SIGNALS['/v1/traces'].service}/Export")  # pyright: ignore[reportUnknownVariableType]
        sent = otlp.traces(otlp.engine_span(), about=otlp.resource(**resource)).SerializeToString()
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        try:
            method(sent, metadata=metadata, timeout=60)
        except grpc.RpcError as error:
            return error.code()  # pyright: ignore[reportAttributeAccessIssue]
    return grpc.StatusCode.OK


def engines(live: Live, workspace: str) -> set[str]:
    return {uid for name, uid in live.store.engine_uids() if name == workspace}


def test_an_export_needs_a_token_for_sending(guarded: tuple[Live, dict[str, str]]) -> None:
    live, tokens = guarded
    for token, status, code in (
        (None, 401, grpc.StatusCode.UNAUTHENTICATED),
        ("wrong", 401, grpc.StatusCode.UNAUTHENTICATED),
        (tokens["ingest"][:-1] + "!", 401, grpc.StatusCode.UNAUTHENTICATED),
        (tokens["read"], 403, grpc.StatusCode.PERMISSION_DENIED),
    ):
        found, said = export(live, token)
        assert found == status
        assert "specscope token add --scope ingest" in said
        assert token is None or token not in said
        assert over_grpc(live, token) is code
    assert live.store.engine_uids() == []


def test_the_token_decides_where_it_goes(guarded: tuple[Live, dict[str, str]]) -> None:
    live, tokens = guarded
    # A tracer that was told of no workspace names the default one.
    for number, named in enumerate(
        ({c.WORKSPACE: "default"}, {c.WORKSPACE: "research"}, {c.WORKSPACE: None})
    ):
        for send, instance in ((export, f"http {number}"), (over_grpc, f"grpc {number}")):
            found = send(live, tokens["ingest"], **{c.INSTANCE: instance, **named})
            assert found in ((200, ""), grpc.StatusCode.OK), found
            assert engine_uid("research", "default", instance) in engines(live, "research")
    assert engines(live, "default") == set()
    status, said = export(live, tokens["ingest"], **{c.WORKSPACE: "secret"})
    assert status == 403
    assert "'research', not to 'secret'" in said
    assert over_grpc(live, tokens["ingest"], **{c.WORKSPACE: "secret"}) is grpc.StatusCode.PERMISSION_DENIED
    assert export(live, tokens["ingest"], **{c.WORKSPACE: 7})[0] == 403
    # The operator's own token is bound to none.
    assert export(live, OPERATOR, **{c.WORKSPACE: "secret", c.INSTANCE: "theirs"}) == (200, "")
    assert len(engines(live, "secret")) == 1


def test_other_tools_send_to_the_tokens_workspace_as_well(guarded: tuple[Live, dict[str, str]]) -> None:
    live, tokens = guarded
    for signal in exports.NAMES:
        answer = live.export(exports.good(signal), f"/v1/{signal}", **bearer(tokens["ingest"]))
        assert answer.status_code in (200, 403), signal
    assert engines(live, "default") == set()


def test_a_token_is_noted_when_it_is_used_and_ends_when_it_is_revoked(
    guarded: tuple[Live, dict[str, str]],
) -> None:
    live, tokens = guarded
    uid = tokens["ingest"].split("_")[1]
    found = live.store.accounts.token(uid)
    assert found is not None
    assert found.used is not None
    assert live.store.accounts.revoke(uid)
    time.sleep(doors.REMEMBERED_S)
    assert export(live, tokens["ingest"])[0] == 401


def test_an_open_server_closes_with_the_first_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('open') / 'store.db'}") as live:
        assert export(live, None) == (200, "")
        assert live.get("/api/v1/status")["auth"] == "open"
        assert live.get("/api/v1/me")["name"] == ""
        assert "Nobody has to sign in" in live.client.get("/access").text
        assert live.client.post("/access/tokens", data={"scope": "admin"}).status_code == 403
        live.store.accounts.add_user(person("ada"))
        time.sleep(doors.REMEMBERED_S)
        assert export(live, None)[0] == 401
        assert live.client.get("/api/v1/status").status_code == 401
        assert live.client.get("/", follow_redirects=False).status_code == 303
