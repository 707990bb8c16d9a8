"""``specscope tokenizer`` and its endpoints against a real server; and a request deleted over the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serverkit.command import run
from serverkit.live import Live
from specscope import tokenizer_facts
from specscope_server.api import tokenizers
from specscope_server.tokens import vocabulary
from storekit import facts
from storekit.tokenizers import byte_level

TINY = Path(__file__).parents[2] / "models" / "tiny" / "target"
PATH = "/api/v1/tokenizers"


def test_a_folder_is_added_listed_and_removed(live: Live, tmp_path: Path) -> None:
    told = tokenizer_facts.of(str(TINY))
    assert told is not None
    said = run("tokenizer", "add", str(TINY), "--url", live.url, "--json", cwd=tmp_path)
    assert said.exit_code == 0, said.output
    one = json.loads(said.stdout)
    size = (TINY / "tokenizer.json").stat().st_size
    assert (one["tokenizer_hash"], one["name"], one["tokens"], one["bytes"]) == (
        *(told["hash"], "target", told["tokens"], size),
    )
    assert live.get(PATH) == {"items": [one]}
    packed = live.store.vocabulary("default", told["hash"])
    assert packed is not None and vocabulary.unpack(packed).tokens == told["tokens"]
    again = run(
        "tokenizer", "add", str(TINY / "tokenizer.json"), "--name", "x", "--url", live.url, cwd=tmp_path
    )
    assert (again.exit_code, "target: 1024 tokens" in again.stdout) == (0, True), again.output
    listed = run("tokenizer", "list", "--url", live.url, cwd=tmp_path)
    assert told["hash"] in listed.stdout
    elsewhere = run("tokenizer", "list", "--workspace", "team", "--url", live.url, cwd=tmp_path)
    assert "No tokenizer is registered" in elsewhere.stdout
    assert json.loads(run("tokenizer", "list", "--json", "--url", live.url, cwd=tmp_path).stdout) == {
        "items": [one]
    }
    gone = run("tokenizer", "remove", "target", "--url", live.url, cwd=tmp_path)
    assert (gone.exit_code, gone.stdout) == (0, f"{told['hash']} removed\n"), gone.output
    assert live.get(PATH) == {"items": []}


def test_what_cannot_be_added_or_removed_says_why(live: Live, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    for arguments, words in (
        (("add", str(tmp_path / "none")), "none cannot be read: No such file"),
        (("add", str(tmp_path)), "answers 400: it is no tokenizer.json"),
        (("remove", "0123"), "there is no tokenizer '0123' in workspace 'default'"),
    ):
        said = run("tokenizer", *arguments, "--url", live.url, cwd=tmp_path)
        assert (said.exit_code, words in said.stderr) == (2, True), said.output
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tokenizer.json").write_bytes(byte_level(f"word{number}"))
        run("tokenizer", "add", str(tmp_path / folder), "--name", "both", "--url", live.url, cwd=tmp_path)
    said = run("tokenizer", "remove", "both", "--url", live.url, cwd=tmp_path)
    assert (said.exit_code, "2 tokenizers are called 'both'" in said.stderr) == (2, True), said.output


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"{}", tokenizers.CONTENT_TYPE, 400, "invalid_tokenizer"),
        (b"{}", "application/json", 415, "unsupported_media_type"),
        (b" " * (64 * 1024 * 1024 + 1), tokenizers.CONTENT_TYPE, 413, "too_large"),
    ],
    ids=["none", "a form", "too large"],
)
def test_what_is_no_tokenizer_is_refused(
    live: Live, content: bytes, kind: str, status: int, code: str
) -> None:
    answer = live.client.post(PATH, content=content, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert live.get(PATH) == {"items": []}
    missing = live.client.delete(f"{PATH}/none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "tokenizer_not_found")


def test_a_request_is_deleted(live: Live) -> None:
    live.store.write([facts.batch(facts.REPORT, facts.request("u0"))], facts.NOW)
    assert live.client.delete("/api/v1/requests/u0", params={"workspace": "team"}).status_code == 404
    assert live.client.delete("/api/v1/requests/u0").json() == {"uid": "u0"}
    gone = live.client.delete("/api/v1/requests/u0")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "request_not_found")
