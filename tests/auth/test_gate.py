"""Who gets what from a server with users and tokens, over HTTP."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from people import MINE, PASSWORD, PEOPLE, THEIRS, add, bearer, fill_both, from_page, sign_in, signed_in
from serverkit.live import Live, serving
from specscope_server.auth import door as doors
from specscope_server.auth import rights, signing_in
from specscope_server.auth.sessions import COOKIE
from specscope_server.web import access_routes, routes


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, dict[str, str]]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('gate') / 'store.db'}"
    with serving(url, grpc=True) as live:
        fill_both(live.store)
        yield live, add(live.store)


@pytest.fixture(scope="module")
def live(guarded: tuple[Live, dict[str, str]]) -> Live:
    # What the server knew before is forgotten by itself, after its time.
    time.sleep(doors.REMEMBERED_S)
    return guarded[0]


@pytest.fixture(scope="module")
def tokens(guarded: tuple[Live, dict[str, str]]) -> dict[str, str]:
    return guarded[1]


@pytest.fixture(scope="module")
def clients(live: Live) -> Iterator[dict[str, httpx.Client]]:
    opened = {name: httpx.Client(base_url=live.url, timeout=60) for name in PEOPLE}
    for name, client in opened.items():
        assert sign_in(live, client, name).status_code == 303
    yield opened
    for client in opened.values():
        client.close()


ANYBODYS = {"/healthz", "/favicon.ico", "/sign-in", "/static/app.css"}
CLOSED_PAGES = ["/", "/requests", "/alerts", "/status", "/access", "/account", "/nothing", "/alerts/rules"]


@pytest.mark.parametrize("path", sorted(ANYBODYS))
def test_what_anybody_gets(live: Live, path: str) -> None:
    assert live.client.get(path).status_code == 200


@pytest.mark.parametrize("path", CLOSED_PAGES)
def test_pages_ask_who_one_is(live: Live, path: str) -> None:
    answer = live.client.get(f"{path}?window=1h")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/sign-in")
    followed = live.client.get(answer.headers["location"])
    assert "Sign in" in followed.text
    assert MINE.word not in followed.text


def test_every_operation_of_the_api_asks_for_a_token(live: Live, tokens: dict[str, str]) -> None:
    described = live.client.get("/openapi.json", headers=bearer(tokens["read"])).json()
    asked = [
        (method.upper(), re.sub(r"\{\w+\}", "1", path))
        for path, methods in described["paths"].items()
        for method in methods
        if path != "/healthz"
    ]
    assert len(asked) > 20
    for method, path in [*asked, ("GET", "/openapi.json"), ("GET", "/metrics"), ("GET", "/api/v1/nothing")]:
        for headers in ({}, bearer("wrong"), bearer(tokens["read"] + "x"), {"Authorization": "Basic eA=="}):
            answer = live.client.request(method, path, headers=headers)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"]["code"] == "unauthenticated"
            assert tokens["read"] not in answer.text
        # Of what takes no workspace the gate knows: whoever is bound to one gets it all the same.
        if method == "GET":
            found = live.client.get(path, headers=bearer(tokens["read research"]))
            assert found.status_code in (200, 400, 404), (path, found.text)
            assert "unknown parameter" not in found.text, path


@pytest.mark.parametrize(
    ("name", "reads", "edits", "manages"),
    [("vi", 200, 403, 403), ("ed", 200, 200, 403), ("ada", 200, 200, 200)],
)
def test_roles(
    live: Live, clients: dict[str, httpx.Client], name: str, reads: int, edits: int, manages: int
) -> None:
    client, page = clients[name], from_page(live)
    assert client.get("/").status_code == reads
    assert client.get("/api/v1/engines").status_code == reads
    changed = client.put("/api/v1/rules/collapse", json={"severity": "info"}, headers=page)
    assert changed.status_code == edits
    form = {"comment": f"by {name}", "hours": "1", "rule": "x"}
    silenced = client.post("/alerts/silences", data=form, headers=page)
    assert silenced.status_code == (303 if edits == 200 else edits)
    told = [one["comment"] for one in client.get("/api/v1/silences").json()["items"]]
    assert (f"by {name}" in told) is (edits == 200)
    access = client.get("/access")
    assert access.status_code == manages
    assert client.get("/api/v1/me").json() == {
        "name": name, "role": PEOPLE[name][0].word, "workspace": None
    }  # fmt: skip
    if manages == 403:
        assert f"This takes the role admin, yours is {PEOPLE[name][0].word}" in access.text
        assert f"<strong>{name}</strong>" in access.text
        assert client.post("/access/tokens", data={"scope": "admin"}, headers=page).status_code == 403


def test_tokens_do_what_they_are_for(live: Live, tokens: dict[str, str]) -> None:
    def rule(token: str) -> int:
        headers = bearer(tokens[token])
        return live.client.put(
            "/api/v1/rules/collapse", json={"severity": "info"}, headers=headers
        ).status_code

    assert {token: rule(token) for token in tokens} == {
        "ingest": 403, "read": 403, "read research": 403, "edit": 200
    }  # fmt: skip
    answer = live.client.get("/api/v1/engines", headers=bearer(tokens["ingest"]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    assert live.client.get("/", headers=bearer(tokens["read"])).status_code == 200


def asked_of_other(path: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}workspace=default"


def test_whoever_is_bound_to_a_workspace_sees_it_alone(
    live: Live, clients: dict[str, httpx.Client], tokens: dict[str, str]
) -> None:
    wes = clients["wes"]
    for path in ("/", "/requests?kind=any", "/alerts", "/status", f"/engines/{THEIRS.engine}"):
        found = wes.get(path)
        assert found.status_code == 200, path
        assert MINE.word not in found.text, path
        assert "option selected>research" in found.text or ">default<" not in found.text
        assert wes.get(asked_of_other(path)).status_code == 403
    assert THEIRS.word in wes.get("/").text
    assert wes.get(f"/engines/{MINE.engine}").status_code == 404
    headers = bearer(tokens["read research"])
    (engine,) = live.client.get("/api/v1/engines", headers=headers).json()["items"]
    assert engine["workspace"] == "research"
    for asked in (
        "workspace=default",
        "workspace=research&workspace=default",
        "workspace=default&workspace=research",
    ):
        answer = live.client.get(f"/api/v1/engines?{asked}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "other_workspace")
    assert live.client.get("/api/v1/engines?workspace=research", headers=headers).status_code == 200
    metrics = live.client.get("/metrics", headers=headers).text
    assert 'workspace="research"' in metrics
    assert 'workspace="default"' not in metrics
    assert 'workspace="default"' in live.client.get("/metrics", headers=bearer(tokens["read"])).text
    assert 'workspace="research"' not in live.client.get("/metrics", headers=bearer(tokens["read"])).text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null", "Sec-Fetch-Site": "none"},
    ],
    ids=str,
)
def test_another_site_changes_nothing_with_a_session(
    live: Live, clients: dict[str, httpx.Client], headers: dict[str, str]
) -> None:
    before = live.store.alert_rules("default"), live.store.silences("default"), live.store.accounts.tokens()
    sent: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", "/api/v1/rules/collapse", {"json": {"title": "evil"}}),
        ("DELETE", "/api/v1/rules/silent_path", {}),
        ("POST", "/alerts/silences", {"data": {"comment": "evil", "hours": "1"}}),
        ("POST", "/access/tokens", {"data": {"scope": "admin", "workspace": "default"}}),
        ("POST", "/sign-out", {"data": {"x": "y"}}),
        ("POST", "/sign-in", {"data": {"name": "ada", "password": PASSWORD}}),
    ]
    for method, path, what in sent:
        answer = clients["ada"].request(method, path, headers=headers, **what)
        assert answer.status_code == 403, path
    after = live.store.alert_rules("default"), live.store.silences("default"), live.store.accounts.tokens()
    assert after == before
    assert clients["ada"].get("/").status_code == 200


def test_what_was_done_is_in_the_trail(live: Live, clients: dict[str, httpx.Client]) -> None:
    client, page = clients["ed"], from_page(live)
    assert client.put("/api/v1/rules/collapse", json={"severity": "info"}, headers=page).status_code == 200
    assert client.put("/api/v1/rules/collapse", json={"severity": "odd"}, headers=page).status_code == 400
    newest = live.store.accounts.acts(1)[0]
    assert (newest.who, newest.action, newest.what) == ("ed", "changed", "PUT /api/v1/rules/collapse")
    assert (newest.workspace, newest.address) == ("default", "127.0.0.1")
    acts = live.store.accounts.acts(500)
    assert ("ada", "signed in") in {(act.who, act.action) for act in acts}
    assert sum(act.what == newest.what and act.at == newest.at for act in acts) == 1
    trail = clients["ada"].get("/access").text
    assert "PUT /api/v1/rules/collapse" in trail
    assert PASSWORD not in repr(acts) + trail


def test_sessions_begin_anew_and_end_for_good(live: Live) -> None:
    with httpx.Client(base_url=live.url, timeout=60) as client:
        client.cookies.set(COOKIE, "ed:brought-along.x.y", domain="127.0.0.1", path="/")
        assert client.get("/").status_code == 303
        answer = sign_in(live, client, "vi")
        assert answer.headers["location"] == "/requests?kind=any"
        given = answer.headers["set-cookie"]
        assert "brought-along" not in given
        assert all(part in given for part in ("HttpOnly", "SameSite=lax", "Path=/"))
        assert "Secure" not in given  # this one speaks no TLS
        stolen = client.cookies[COOKIE]
        assert client.get("/sign-in").status_code == 303  # is signed in already
        # Another's name on it, or any other change, makes it none.
        for forged in (stolen.replace("vi:", "ada:"), stolen[:-1], stolen + "x", "vi", ""):
            assert live.client.get("/", headers={"Cookie": f"{COOKIE}={forged}"}).status_code == 303
        assert live.client.get("/", headers={"Cookie": f"{COOKIE}={stolen}"}).status_code == 200
        gone = client.post("/sign-out", data={"x": "y"}, headers=from_page(live))
        assert (gone.status_code, gone.headers["location"]) == (303, "/sign-in")
        assert client.get("/").status_code == 303
        assert live.client.get("/", headers={"Cookie": f"{COOKIE}={stolen}"}).status_code == 303


@pytest.mark.parametrize(
    ("asked", "to"),
    [
        ("/requests?kind=any&x=1", "/requests?kind=any&x=1"),
        ("//evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/sign-out", "/"),
        ("", "/"),
    ],
)
def test_signing_in_leads_nowhere_else(asked: str, to: str) -> None:
    assert rights.landing(asked) == to


def test_tries_are_few_and_say_nothing(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_in, "MOST_BOTH", 2)
    with httpx.Client(base_url=live.url, timeout=60) as client:
        told = set[str]()
        for name, password in (("rosa", "not her password"), ("nobody", PASSWORD), ("rosa", "nor this one")):
            answer = sign_in(live, client, name, password)
            assert answer.status_code == 401
            assert password not in answer.text
            found = re.search(r'role="alert">.*?</svg>(.*?)</p>', answer.text, re.DOTALL)
            assert found is not None
            told.add(found[1].strip())
        assert told == {"The name or the password is wrong."}
        late = sign_in(live, client, "rosa")  # with the right one
        assert late.status_code == 429
        assert late.headers["retry-after"] == "300"
        assert COOKIE not in client.cookies
    failed = [act for act in live.store.accounts.acts(20) if act.action == "sign-in failed"]
    assert [act.who for act in failed if act.who == "rosa"] == ["rosa", "rosa"]
    assert any(act.who.startswith("no user (") for act in failed)
    assert "nobody" not in {act.who for act in failed}


def test_admins_manage_users_and_tokens(live: Live, clients: dict[str, httpx.Client]) -> None:
    ada, page = clients["ada"], from_page(live)

    def post(client: httpx.Client, path: str, **fields: Any) -> httpx.Response:
        return client.post(path, data=fields, headers=page)

    new = {"name": "Nia", "password": f"{PASSWORD} of nia", "role": "viewer", "workspace": ""}
    assert post(ada, "/access/users", **new).status_code == 200
    assert post(ada, "/access/users", **new).status_code == 400
    assert post(ada, "/access/users", **{**new, "name": "x", "password": "short"}).status_code == 400
    with httpx.Client(base_url=live.url, timeout=60) as nia:
        assert sign_in(live, nia, "nia", new["password"]).status_code == 303
        assert nia.get("/access").status_code == 403
        assert post(ada, "/access/users/nia", do="role", role="admin").status_code == 200
        assert nia.get("/access").status_code == 200
        assert post(nia, "/access/users/nia", do="remove").status_code == 400  # not herself
        wrong = post(nia, "/account", current="no", password=PASSWORD * 2, again=PASSWORD * 2)
        assert wrong.status_code == 400
        changed = post(nia, "/account", current=new["password"], password=PASSWORD * 2, again=PASSWORD * 2)
        assert changed.status_code == 303
        assert nia.get("/").status_code == 303
        assert sign_in(live, nia, "nia", PASSWORD * 2).status_code == 303
        assert post(ada, "/access/users/nia", do="remove").status_code == 200
        assert nia.get("/").status_code == 303
    made = post(ada, "/access/tokens", scope="read", workspace="research", name="grafana")
    found = re.search(r"specscope_([0-9a-f]{16})_[\w-]{43}", made.text)
    assert found is not None
    assert found[0] not in ada.get("/access").text
    assert live.client.get("/api/v1/me", headers=bearer(found[0])).json()["workspace"] == "research"
    assert post(ada, f"/access/tokens/{found[1]}/revoke", x="y").status_code == 200
    assert live.client.get("/api/v1/me", headers=bearer(found[0])).status_code == 401
    assert found[0] not in repr(live.store.accounts.acts(100))


def test_an_admin_of_a_workspace_manages_it_alone(live: Live) -> None:
    page = from_page(live)
    with signed_in(live, "wes") as wes:
        assert wes.get("/access").status_code == 403
    live.store.accounts.change_user("wes", live.store.accounts.users()[0].created, role="admin")
    time.sleep(doors.REMEMBERED_S)
    with signed_in(live, "wes") as wes:
        told = wes.get("/access").text
        assert "rosa" in told
        assert "/access/users/rosa" in told
        assert "/access/users/ada" not in told
        for path, fields in (
            ("/access/users", {"name": "evil", "password": PASSWORD * 2, "role": "admin", "workspace": ""}),
            ("/access/users/ada", {"do": "role", "role": "viewer"}),
            ("/access/users/ada", {"do": "password", "password": PASSWORD * 2}),
            ("/access/tokens", {"scope": "admin", "workspace": "default"}),
        ):
            assert wes.post(path, data=fields, headers=page).status_code == 400, path
    assert {user.name for user in live.store.accounts.users()} == set(PEOPLE)


def test_pages_of_access_are_in_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "dashboard.md").read_text(encoding="utf-8")
    assert [page for page in access_routes.PAGES if f"`{page}`" not in guide] == []
    assert not set(access_routes.PAGES) & set(routes.PAGES)
