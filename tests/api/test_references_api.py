"""References over HTTP: sent, listed, deleted, refused; and requests held against them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from serverkit.live import Live
from specscope.reference import Problem, command
from storekit import facts, reference_requests
from storekit.references import file, passage, states

FILE = file(passage(states(), name="whole"))
PATH = "/api/v1/references"


def send(live: Live, content: bytes = FILE, kind: str = "application/jsonl", **params: str) -> httpx.Response:
    return live.client.post(PATH, content=content, headers={"Content-Type": kind}, params=params)


def error(answer: httpx.Response) -> dict[str, Any]:
    return answer.json()["error"]


@contextmanager
def answering(junk: bytes) -> Generator[str]:
    """Something that listens, and is no server of ours: answers one connection with ``junk``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(junk)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_reference_is_taken_listed_and_deleted(live: Live) -> None:
    first = send(live).json()
    assert (first["name"], first["sequences"], first["tokens"], first["bytes"]) == ("tiny", 1, 60, len(FILE))
    assert first["facts"]["aux_layers"] == [2, 4, 5]
    assert send(live).json() == first
    assert live.get(PATH)["items"] == [first]
    path = f"{PATH}/{first['reference_uid']}"
    assert live.get(path) == {
        "reference": first,
        "sequences": [{"number": 0, "name": "whole", "tokens": 60, "prompt_tokens": 20}],
    }
    assert live.get(PATH, workspace="team")["items"] == []
    assert live.client.delete(path, params={"workspace": "team"}).status_code == 404
    assert live.client.delete(path).json() == {"reference_uid": first["reference_uid"]}
    gone = live.client.get(path)
    assert (gone.status_code, error(gone)["code"]) == (404, "reference_not_found")
    assert live.get(PATH)["items"] == []


@pytest.mark.parametrize(
    ("content", "kind", "status", "code", "said"),
    [
        (b"", "application/jsonl", 400, "invalid_reference", "the file is empty"),
        (FILE[:5000], "application/jsonl; charset=utf-8", 400, "invalid_reference", "may be cut off"),
        (b"{}", "application/jsonl", 400, "invalid_reference", "not a specscope-reference file"),
        (FILE, "text/plain", 415, "unsupported_media_type", "sent as application/jsonl"),
        (b" " * (17 << 20), "application/jsonl", 413, "too_large", "over the limit"),
    ],
)
def test_what_is_no_reference_is_refused(
    live: Live, content: bytes, kind: str, status: int, code: str, said: str
) -> None:
    answer = send(live, content, kind)
    assert (answer.status_code, error(answer)["code"]) == (status, code)
    assert said in error(answer)["message"]
    assert live.get(PATH)["items"] == []


def test_a_request_and_its_engine_are_held_against_it(live: Live) -> None:
    live.store.write([reference_requests.healthy(scale=0.1)], facts.NOW)
    nothing = live.get("/api/v1/requests/u0/reference")
    assert (nothing["code"], nothing["reference"], nothing["slots"]) == ("no_reference", None, [])
    sent = send(live).json()
    for path, single in (("requests/u0", True), (f"engines/{facts.ENGINE}", False)):
        found = live.get(f"/api/v1/{path}/reference")
        assert (found["code"], found["requests"], found["shared_tokens"]) == ("", 1, 60)
        assert (found["reference"], found["sequences"]) == (sent, ["whole"])
        assert found["aux_layers"] == [2, 4, 5]
        assert [slot["slot"] for slot in found["slots"]] == [0, 1, 2]
        for slot in found["slots"]:
            assert slot["relative_error"] == pytest.approx(0.9, rel=0.01)
            assert slot["scale"] == pytest.approx(0.1, rel=0.01)
            assert (slot["tokens"], slot["equals"], set(slot["shifted"])) == (60, None, {"-1", "1"})
            assert len(slot["errors"]) == len(slot["positions"]) == 60
            assert single or slot["median_error"] is not None
    for path in ("requests/nobody", "engines/nobody"):
        assert live.client.get(f"/api/v1/{path}/reference").status_code == 404


def test_the_command_sends_its_file_and_says_what_the_server_says(live: Live, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.write_bytes(FILE)
    cut.write_bytes(FILE[:5000])
    told = command.send(whole, f"{live.url}/", "team a&b")
    assert [one["reference_uid"] for one in live.get(PATH, workspace="team a&b")["items"]] == [
        told["reference_uid"]
    ]
    with pytest.raises(Problem, match=r"did not take .*cut: 400, line 2: not JSON.* Send the file that"):
        command.send(cut, live.url, "default")
    with (
        answering(b"220 mail ready\r\n") as other,
        pytest.raises(Problem, match=r"220 mail ready; it is kept"),
    ):
        command.send(whole, other, "default")
    with pytest.raises(Problem, match=r"cannot send .*whole to http://127.0.0.1:9: .*it is kept"):
        command.send(whole, "http://user:secret@127.0.0.1:9", "default")
