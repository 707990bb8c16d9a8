"""``specscope user`` and ``specscope token`` as they are typed."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from serverkit.command import run
from specscope_server.auth import passwords, tokens
from specscope_server.auth.first import make_first, read_password
from specscope_server.client import Client
from specscope_server.store import open_store
from specscope_server.store.port import Store

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


def test_an_address_beyond_this_machine_takes_users(tmp_path: Path) -> None:
    def serve(*options: str) -> tuple[int, str]:
        # None of this machine's: where the settings are sound, listening is what fails.
        done = run("serve", "--host", "192.0.2.1", "--port", "0", "--db", "run.db", *options, cwd=tmp_path)
        return done.exit_code, done.stderr

    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "short").write_text("short\n")
    code, said = serve()
    assert code == 2
    assert "specscope user add NAME --role admin" in said
    for sound in (["--auth", "required"], ["--admin-password-file", "password"]):
        assert serve(*sound)[0] == 1
    code, said = serve("--admin-password-file", "short")
    assert code == 2
    assert "SPECSCOPE_ADMIN_PASSWORD_FILE" in said
    assert not (tmp_path / "run.db").exists()
    assert run("user", "add", "ada", "--db", "run.db", cwd=tmp_path, input=PASSWORD).exit_code == 0
    assert serve()[0] == 1


def test_the_first_admin_is_made_once(store: Store, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    kept = read_password(str(tmp_path / "password"))
    assert make_first(store.accounts, kept)
    assert not make_first(store.accounts, kept)
    (admin,) = store.accounts.users()
    assert (admin.name, admin.role.word, admin.workspace) == ("admin", "admin", "")
    assert passwords.matches(admin.password, PASSWORD)
    assert read_password("") == ""


def test_the_cli_shows_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Asked(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization", ""))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Asked) as server:
        thread = threading.Thread(target=lambda: [server.handle_request() for _ in range(2)])
        thread.start()
        client = Client(f"http://127.0.0.1:{server.server_port}")
        for token in ("", "specscope_secret"):
            monkeypatch.setenv("SPECSCOPE_API_TOKEN", token)
            client.get("/api/v1/me")
        thread.join()
    assert asked == ["", "Bearer specscope_secret"]
