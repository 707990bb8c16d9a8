"""Expectations over the API and by ``specscope baseline``: said, learned, held against what is served."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from serverkit.command import run
from serverkit.live import Live, serving
from specscope.rollup import ALL, STEP, Counts
from specscope_server.diagnosis.model import Finding
from specscope_server.store.told import RollupIncrement
from specscope_server.store.values import engine_uid, to_ns
from storekit import facts

URL = "/api/v1/expectations"
PROMISE = {"per_position": [0.9, 0.8, 0.7], "who": "ann"}
ENGINE = engine_uid("default", "test", "launch")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A server whose one engine told of 1500 verify steps a minute ago, a third of all drafts accepted."""
    now = datetime.now(UTC)
    bucket = to_ns(now) // facts.SECOND // 10 * 10 - 60
    rows = {(ALL, "", STEP): Counts(1500, 4500, 4500, 1500, 1500, 3000, 600)} | {
        (ALL, "", position): Counts(steps=1500, accepted=accepted)
        for position, accepted in enumerate((900, 450, 150))
    }
    with serving(f"sqlite:///{tmp_path / 'x.db'}") as server:
        told = facts.batch(facts.REPORT, RollupIncrement(1, bucket, rows), service_name="svc")
        server.store.write([told], now)
        yield server


def refused(answer: Any) -> str:
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "invalid_expectation"
    return answer.json()["error"]["message"]


def test_what_is_declared_is_listed_and_cleared(live: Live) -> None:
    said = live.client.put(URL, json=PROMISE | {"model": "tiny", "floor": 2, "note": "run 7"}).json()
    assert said["length"] == pytest.approx(1 + 0.9 + 0.72 + 0.504)
    assert (said["source"], said["model"], said["floor"], said["stored"]) == ("declared", "tiny", 2, True)
    assert live.get(URL)["items"] == [said]
    assert live.client.delete(URL).status_code == 404
    assert live.client.delete(URL, params={"model": "tiny"}).json() == {"cleared": 1}
    assert live.get(URL)["items"] == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"per_position": []}, "give 1 to 64 numbers"),
        ({"per_position": [0.9, 1.2]}, "1.2 at position 2 is no share"),
        ({"per_position": [0.3, 0.3]}, "acceptance length of 1.39.*accept_low"),
        ({"floor": 0.5}, "floor: 0.5 is no acceptance length"),
        ({"workload": "weather=fine"}, "workload 'weather=fine': write DIMENSION=SLICE"),
        ({"workload": "temperature=7"}, "its slices are 0, <=0.5"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(
    live: Live, changed: dict[str, Any], message: str
) -> None:
    assert re.search(message, refused(live.client.put(URL, json=PROMISE | changed)))
    assert live.get(URL)["items"] == []


@pytest.mark.parametrize("wrong", [{"per_position": [True]}, {"per_position": ["0.9"]}, {"who": " "}])
def test_what_is_no_number_or_says_nothing_is_refused(live: Live, wrong: dict[str, Any]) -> None:
    answer = live.client.put(URL, json=PROMISE | wrong)
    assert (answer.status_code, next(iter(wrong)) in answer.text) == (400, True)


def test_a_low_promise_needs_a_word(live: Live) -> None:
    low = PROMISE | {"per_position": [0.3, 0.3], "accept_low": True}
    assert live.client.put(URL, json=low).status_code == 200


def test_a_form_of_another_site_cannot_declare(live: Live) -> None:
    plain = live.client.put(URL, content=b"{}", headers={"content-type": "text/plain"})
    assert plain.status_code in (400, 415)


def test_a_period_is_shown_before_it_is_stored(live: Live) -> None:
    now = datetime.now(UTC)
    body = {
        "engine_uid": ENGINE,
        "who": "ann",
        "since": (now - timedelta(minutes=10)).isoformat(),
        "until": now.isoformat(),
    }
    shown = live.client.post(f"{URL}/learn", json=body).json()
    assert (shown["stored"], shown["steps"], shown["source"]) == (False, 1500, "learned")
    assert live.get(URL)["items"] == []
    stored = live.client.post(f"{URL}/learn", json=body | {"confirmed": True}).json()
    assert stored["per_position"] == shown["per_position"]
    assert [item["source"] for item in live.get(URL)["items"]] == ["learned"]
    early = body | {"until": (now - timedelta(minutes=9)).isoformat()}
    assert "0 verify steps that drafted" in refused(live.client.post(f"{URL}/learn", json=early))
    assert live.client.post(f"{URL}/learn", json=body | {"engine_uid": "none"}).status_code == 404


def test_nothing_is_learned_from_an_engine_that_is_faulty(live: Live) -> None:
    now = datetime.now(UTC)
    fault = Finding("fc_bypassed", "F04", "critical", "certain", "Fc bypassed", "It is.", ())
    live.store.replace_findings(ENGINE, [fault], now)
    body = {
        "engine_uid": ENGINE,
        "who": "ann",
        "since": (now - timedelta(minutes=10)).isoformat(),
        "until": now.isoformat(),
        "confirmed": True,
    }
    assert "certain finding now: Fc bypassed" in refused(live.client.post(f"{URL}/learn", json=body))


def test_the_command_says_shows_holds_and_clears(live: Live, tmp_path: Path) -> None:
    def baseline(*arguments: str) -> str:
        done = run("baseline", *arguments, "--url", live.url, cwd=tmp_path)
        assert done.exit_code == 0, done.output
        return done.output

    assert "Nothing is expected" in baseline("show")
    said = baseline(
        "set", "--per-position", "0.95,0.9,0.9", "--engine", "svc", "--who", "ann", "--floor", "2.5"
    )
    assert "engine svc: acceptance length 3.57" in said and "by ann" in said
    held = baseline("show", "--engine", "svc")
    assert "declared by ann" in held and "odds of about 1 in" in held and "(promised 95.0%)" in held
    assert "Below its floor of 2.5." in held
    learned = baseline("learn", "--engine", "svc", "--since", "10m", "--who", "bob", "--yes")
    assert "learned from 1500 verify steps by bob" in learned
    assert "learned from 1500 verify steps by bob" in baseline("show", "--engine", "svc")
    assert "2 cleared" in baseline("clear", "--engine", "svc")
    wrong = run("baseline", "set", "--per-position", "a", "--url", live.url, cwd=tmp_path)
    assert (wrong.exit_code, "numbers from 0 to 1" in wrong.output) == (2, True)
    low = run("baseline", "set", "--per-position", "0.1", "--url", live.url, cwd=tmp_path)
    assert (low.exit_code, "--accept-low" in low.output) == (2, True)
    for option in (("--per-position", "nan"), ("--per-position", "0.9,0.8", "--floor", "inf")):
        odd = run("baseline", "set", *option, "--url", live.url, cwd=tmp_path)
        assert (odd.exit_code, "number" in odd.output) == (2, True)


def test_who_is_asked_for_where_the_system_has_no_name(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", nobody)
    said = run("baseline", "set", "--per-position", "0.9,0.8", "--url", live.url, cwd=tmp_path)
    assert (said.exit_code, "--who" in said.output) == (2, True)


def test_an_unconfirmed_period_is_not_stored(live: Live, tmp_path: Path) -> None:
    done = run("baseline", "learn", "--engine", "svc", "--since", "10m", "--url", live.url, cwd=tmp_path)
    assert done.exit_code == 1 and "Was that period healthy" in done.output
    assert live.get(URL)["items"] == []
