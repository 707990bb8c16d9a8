"""``specscope user`` and ``specscope token`` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serverkit.command import run
from specscope_server.auth import passwords, tokens
from specscope_server.store import open_store

PASSWORD = "correct horse battery"


def test_a_user_from_the_first_to_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(password: str, *arguments: str) -> tuple[int, str]:
        done = run("user", *arguments, "--db", "run.db", cwd=tmp_path, input=password)
        assert PASSWORD not in done.output
        return done.exit_code, done.output

    code, said = typed(f"{PASSWORD}\n", "add", "Ada", "--role", "admin")
    assert (code, said) == (0, "ada may sign in as admin of all workspaces\n")
    assert typed(f"{PASSWORD}\n", "add", "ada")[0] == 1
    assert typed("short\n", "add", "bob")[0] == 2
    assert typed(f"{PASSWORD}\n", "add", "no name")[0] == 2
    assert typed(f"{PASSWORD}\n", "add", "bob", "--workspace", "research")[0] == 0
    assert typed(f"another {PASSWORD}\n", "password", "bob")[0] == 0
    assert typed("", "role", "bob", "--role", "editor")[0] == 0
    code, said = typed("", "list", "--json")
    assert [(one["name"], one["role"], one["workspace"]) for one in json.loads(said)] == [
        ("ada", "admin", None),
        ("bob", "editor", "research"),
    ]
    store = open_store(str(tmp_path / "run.db"))
    bob = store.accounts.user("bob")
    assert bob is not None
    assert passwords.matches(bob.password, f"another {PASSWORD}")
    actions = [act.action for act in reversed(store.accounts.acts(10))]
    assert actions == ["user added", "user added", "password set", "role set"]
    assert all(act.who.startswith("command line") for act in store.accounts.acts(10))
    store.close()
    assert typed("", "remove", "bob")[0] == 0
    code, said = typed("", "remove", "ada")
    assert code == 1
    assert "--open" in said
    assert typed("", "remove", "ada", "--open")[0] == 0
    assert "there is no user" in typed("", "list")[1]


def test_a_token_is_shown_once(tmp_path: Path) -> None:
    made = run(
        *("token", "add", "--scope", "ingest", "--scope", "read", "--workspace", "research"),
        *("--name", "engines", "--db", "run.db"),
        cwd=tmp_path,
    )
    assert made.exit_code == 0
    split = tokens.parts(made.stdout.strip())  # nothing else is there, so that a script can take it
    assert split is not None
    listed = run("token", "list", "--db", "run.db", cwd=tmp_path)
    assert split[0] in listed.output
    assert split[1] not in listed.output
    (told,) = json.loads(run("token", "list", "--json", "--db", "run.db", cwd=tmp_path).stdout)
    assert (told["workspace"], told["scopes"], told["name"]) == ("research", ["ingest", "read"], "engines")
    last = run("token", "revoke", split[0], "--db", "run.db", cwd=tmp_path)
    assert last.exit_code == 1
    assert "--open" in last.output
    # The whole token means it as well, and is not printed again.
    gone = run("token", "revoke", made.stdout.strip(), "--open", "--db", "run.db", cwd=tmp_path)
    assert gone.exit_code == 0
    assert split[1] not in gone.output
    assert run("token", "revoke", split[0], "--db", "run.db", cwd=tmp_path).exit_code == 1


def test_a_mistyped_database_is_not_made(tmp_path: Path) -> None:
    for command in (["user", "list"], ["token", "list"], ["user", "remove", "ada"]):
        assert run(*command, "--db", "no.db", cwd=tmp_path).exit_code == 1
    assert not (tmp_path / "no.db").exists()
