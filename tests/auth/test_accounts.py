"""Users, tokens and the audit trail on each database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from specscope_server.auth import passwords, tokens
from specscope_server.auth.model import Act, Failures, Role, Scope, Token, User
from specscope_server.auth.names import BadName, user_name, workspace_name
from specscope_server.store.accounts import SIGN_IN_FAILED, LastOne
from specscope_server.store.keep import Keep
from specscope_server.store.opening import open_store
from specscope_server.store.port import Refused, Store

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ADA = User("ada", Role.ADMIN, "", NOW, NOW, None, "hash of ada's", "key of ada's")
BOB = User("bob", Role.VIEWER, "research", NOW, NOW, None, "hash of bob's", "key of bob's")
TOKEN = Token(
    "ab" * 8, "research", frozenset({Scope.INGEST, Scope.READ}), "engines", NOW, "ada", None, "hash"
)


def test_users_are_kept_as_they_were_added(store: Store) -> None:
    assert not store.accounts.exist()
    for one in (BOB, ADA):
        assert store.accounts.add_user(one)
    assert store.accounts.exist()
    assert store.accounts.users() == [ADA, BOB]
    assert store.accounts.user("bob") == BOB
    assert store.accounts.user("eve") is None
    with pytest.raises(Refused, match="already"):
        store.accounts.add_user(BOB)
    assert not store.accounts.add_user(ADA, first=True)


def test_a_user_changes_and_goes(store: Store) -> None:
    for one in (BOB, ADA):
        store.accounts.add_user(one)
    later = NOW + timedelta(hours=1)
    assert store.accounts.change_user("bob", later, role="editor", session_key="another")
    store.accounts.signed_in("bob", later, "kept anew")
    found = store.accounts.user("bob")
    assert found is not None
    assert (found.role, found.session_key, found.password) == (Role.EDITOR, "another", "kept anew")
    assert (found.changed, found.signed_in) == (later, later)
    assert not store.accounts.change_user("eve", later, role="admin")
    assert store.accounts.remove_user("bob")
    assert not store.accounts.remove_user("bob")
    assert store.accounts.users() == [ADA]


def test_tokens_are_kept_used_and_revoked(store: Store) -> None:
    store.accounts.add_user(ADA)
    store.accounts.add_token(TOKEN)
    assert store.accounts.tokens() == [TOKEN]
    later = NOW + timedelta(hours=1)
    store.accounts.used(TOKEN.token_uid, later)
    found = store.accounts.token(TOKEN.token_uid)
    assert found is not None
    assert found.used == later
    assert store.accounts.revoke(TOKEN.token_uid)
    assert not store.accounts.revoke(TOKEN.token_uid)
    assert store.accounts.token(TOKEN.token_uid) is None


def test_the_last_one_goes_only_where_that_is_said(store: Store) -> None:
    store.accounts.add_token(TOKEN)
    with pytest.raises(LastOne, match="nobody has to sign in"):
        store.accounts.revoke(TOKEN.token_uid)
    store.accounts.add_user(ADA)
    assert store.accounts.revoke(TOKEN.token_uid)
    with pytest.raises(LastOne):
        store.accounts.remove_user("ada")
    assert store.accounts.exist()
    assert store.accounts.remove_user("ada", open_to_all=True)
    assert not store.accounts.exist()


def test_failures_are_counted_by_name_and_address(store: Store) -> None:
    for minute, who, address, action in (
        (0, "ada", "10.0.0.1", SIGN_IN_FAILED),
        (8, "ada", "10.0.0.1", SIGN_IN_FAILED),
        (8, "ada", "10.0.0.2", SIGN_IN_FAILED),
        (9, "bob", "10.0.0.1", SIGN_IN_FAILED),
        (9, "bob", "10.0.0.3", SIGN_IN_FAILED),
        (9, "ada", "10.0.0.1", "signed in"),
    ):
        store.accounts.note(Act(NOW + timedelta(minutes=minute), "", who, action, "", address))
    since = NOW + timedelta(minutes=5)
    assert store.accounts.failures(since, "ada", "10.0.0.1") == Failures(both=1, address=2, name=2)
    assert store.accounts.failures(since, "eve", "10.0.0.9") == Failures(0, 0, 0)


def test_the_trail_is_read_by_workspace_and_goes_with_its_age(store_url: str) -> None:
    store = open_store(store_url, keep=Keep(alerts_days=90))
    old, new = (
        Act(NOW - timedelta(days=days), workspace, "ada", "changed", "PUT /api/v1/rules/collapse", "::1")
        for days, workspace in ((91, "default"), (89, "research"))
    )
    for act in (old, new):
        store.accounts.note(act)
    assert store.accounts.acts(10) == [new, old]
    assert store.accounts.acts(10, "default") == [old]
    assert {step.table: step.rows for step in store.prune(NOW)} == {"audit": 1}
    assert store.accounts.acts(10) == [new]
    store.close()


def test_passwords_are_kept_as_hashes_that_only_they_match() -> None:
    kept = passwords.hashed("correct horse battery", "ada")
    assert "correct" not in kept
    assert kept.startswith("$argon2id$")
    assert passwords.matches(kept, "correct horse battery")
    assert not passwords.matches(kept, "correct horse battery ")
    assert not passwords.matches(None, "nobody has this password")
    assert not passwords.matches("damaged", "correct horse battery")
    assert not passwords.outdated(kept)


@pytest.mark.parametrize("password", ["", "short", "x" * 1025, "ADA-LOVELACE"])
def test_what_is_no_password(password: str) -> None:
    with pytest.raises(passwords.PasswordError) as found:
        passwords.hashed(password, "ada-lovelace")
    assert not password or password not in str(found.value)


def test_tokens_are_random_and_known_by_their_secret_alone() -> None:
    made, uid, kept = tokens.new_token()
    split = tokens.parts(made)
    assert split is not None
    assert split[0] == uid
    assert split[1] not in kept
    assert tokens.same(split[1], kept)
    assert not tokens.same(split[1][:-1] + "-", kept) or split[1].endswith("-")
    assert tokens.new_token()[0] != made
    for other in ("", made + "x", made.upper(), made[1:], "Bearer " + made, made + "\n"):
        assert tokens.parts(other) is None


def test_names() -> None:
    assert user_name(" Ada@Example.org ") == "ada@example.org"
    for text in ("", "-ada", "a b", "ada\n!", "ä", "x" * 65, "a/b"):
        with pytest.raises(BadName):
            user_name(text)
    assert workspace_name(" team a ") == "team a"
    for text in ("", "a\nb", "x" * 129):
        with pytest.raises(BadName):
            workspace_name(text)
