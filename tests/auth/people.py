"""A server with users and tokens of two workspaces, and clients that are signed in."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache

import httpx
from serverkit.live import Live
from specscope_server.auth import passwords, tokens
from specscope_server.auth.model import Role, Scope, Token, User
from specscope_server.auth.sessions import COOKIE
from specscope_server.store.port import Store
from storekit.everything import Workspace, fill

PASSWORD = "correct horse battery"
MINE = Workspace("default", "oakwood", 48_170_976)
THEIRS = Workspace("research", "birchwood", 92_530_611)
PEOPLE = {
    "ada": (Role.ADMIN, ""),
    "rosa": (Role.ADMIN, "research"),
    "ed": (Role.EDITOR, ""),
    "vi": (Role.VIEWER, ""),
    "wes": (Role.VIEWER, "research"),
}
TOKENS = {
    "ingest": ("research", Scope.INGEST),
    "read": ("default", Scope.READ),
    "read research": ("research", Scope.READ),
    "edit": ("default", Scope.EDIT),
}


@cache
def kept() -> str:
    """The hash of :data:`PASSWORD`: made once, as it takes its time."""
    return passwords.hashed(PASSWORD)


def person(name: str) -> User:
    now = datetime.now(UTC)
    role, workspace = PEOPLE[name]
    return User(name, role, workspace, now, now, None, kept(), tokens.new_session_key())


def add(store: Store) -> dict[str, str]:
    """Add everybody, and return the tokens."""
    for name in PEOPLE:
        store.accounts.add_user(person(name))
    made: dict[str, str] = {}
    for name, (workspace, scope) in TOKENS.items():
        made[name], uid, hashed = tokens.new_token()
        row = Token(uid, workspace, frozenset({scope}), name, datetime.now(UTC), "ada", None, hashed)
        store.accounts.add_token(row)
    return made


def fill_both(store: Store) -> None:
    for workspace in (MINE, THEIRS):
        fill(store, workspace, datetime.now(UTC))


def from_page(live: Live) -> dict[str, str]:
    """What a browser says of a form that one of our pages sent."""
    return {"Origin": live.url, "Sec-Fetch-Site": "same-origin"}


def sign_in(live: Live, client: httpx.Client, name: str, password: str = PASSWORD) -> httpx.Response:
    fields = {"name": name, "password": password, "next": "/requests?kind=any"}
    return client.post("/sign-in", data=fields, headers=from_page(live))


@contextmanager
def signed_in(live: Live, name: str) -> Generator[httpx.Client]:
    with httpx.Client(base_url=live.url, timeout=60) as client:
        answer = sign_in(live, client, name)
        assert answer.status_code == 303, answer.text
        assert client.cookies.get(COOKIE)
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
