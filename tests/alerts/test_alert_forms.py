"""Forms that change something: what they do, and that no page of another site can send them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from serverkit.live import Live, serving
from serverkit.receivers import Receiver
from storekit.everything import SILENCE, Workspace, fill

MINE = Workspace("default", "oakwood", 48_170_976)
ALERT = f"/alerts/on/{MINE.engine}/silent_path"
FORMS = (
    "/alerts/rules",
    "/alerts/rules/collapse",
    "/alerts/silences",
    f"/alerts/silences/{SILENCE}/end",
    f"{ALERT}/acknowledge",
    "/alerts/test",
    "/alerts/deliveries/1/retry",
)


@pytest.fixture(scope="module")
def hook() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, hook: Receiver) -> Iterator[Live]:
    url = f"sqlite:///{tmp_path_factory.mktemp('forms') / 'store.db'}"
    with serving(url, notify=(f"webhook+http://127.0.0.1:{hook.port}/s3cr3t",)) as found:
        fill(found.store, MINE, datetime.now(UTC))
        yield found


def send(live: Live, path: str, **fields: str | list[str]) -> httpx.Response:
    headers = {"Origin": live.url, "Sec-Fetch-Site": "same-origin"}
    return live.client.post(path, data=fields or {"x": "y"}, headers=headers)


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
    ],
    ids=str,
)
def test_a_form_from_elsewhere_changes_nothing(live: Live, path: str, headers: dict[str, str]) -> None:
    before = state(live)
    answer = live.client.post(path, data={"title": "evil", "comment": "evil", "by": "evil"}, headers=headers)
    assert answer.status_code == 403
    assert state(live) == before


def state(live: Live) -> str:
    return repr(
        [
            live.store.alert_rules("default"),
            live.store.silences("default"),
            # Rules are evaluated meanwhile, which adds rows that nobody has taken on.
            [(row.rule, row.acknowledged_by) for row in live.store.alerts("default") if row.acknowledged],
        ]
    )


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/json"])
def test_only_plain_forms_are_read(live: Live, kind: str) -> None:
    headers = {"Origin": live.url, "Content-Type": kind}
    assert live.client.post("/alerts/silences", content=b"comment=x", headers=headers).status_code == 415


def test_a_large_form_is_refused(live: Live) -> None:
    assert send(live, "/alerts/silences", comment="x" * 70_000).status_code == 413


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/v1/rules/collapse"),
        ("POST", "/api/v1/silences"),
        ("POST", "/api/v1/alerts/acknowledge"),
        ("POST", "/api/v1/alerts/test"),
        ("POST", "/api/v1/deliveries/1/retry"),
    ],
)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_the_api_takes_only_what_another_site_cannot_send_unasked(
    live: Live, method: str, path: str, kind: str
) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = live.client.request(method, path, content=b'{"enabled": false}', headers=headers)
    assert answer.status_code in (400, 415), answer.text
    assert live.store.alert_rules("default") == [
        row for row in live.store.alert_rules("default") if row.name != "collapse"
    ]


def test_a_rule_is_changed_and_goes_back_to_how_it_came(live: Live) -> None:
    fields: dict[str, str | list[str]] = {
        "title": "No <b>gain</b>",
        "severity": "info",
        "watches": "findings",
        "kinds": ["zero_acceptance", "pays_off"],
        "engine": "prod-*",
        "for_s": "90",
        "enabled": "1",
    }
    answer = send(live, "/alerts/rules/no_gain", **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/alerts/rules/no_gain?said=saved")
    page = live.client.get(answer.headers["location"]).text
    assert "Saved." in page
    assert 'value="No &lt;b&gt;gain&lt;/b&gt;"' in page
    (rule,) = [r for r in live.get("/api/v1/rules")["items"] if r["name"] == "no_gain"]
    assert (rule["severity"], rule["kinds"], rule["engine"], rule["for_s"]) == (
        "info",
        ["zero_acceptance", "pays_off"],
        "prod-*",
        90,
    )
    assert (rule["built_in"], rule["changed"], rule["certain_only"]) == (True, True, False)
    assert send(live, "/alerts/rules/no_gain", do="delete").status_code == 303
    (rule,) = [r for r in live.get("/api/v1/rules")["items"] if r["name"] == "no_gain"]
    assert (rule["title"], rule["changed"]) == ("Speculation does not pay", False)


def test_what_makes_no_sense_is_said_on_the_page(live: Live) -> None:
    answer = send(live, "/alerts/rules/too_good", title="T", for_s="soon")
    assert answer.status_code == 400
    assert "Not saved. for_s: a number from 0" in answer.text
    answer = send(live, "/alerts/silences", hours="0", comment="x")
    assert answer.status_code == 400
    assert "hours: a number over 0" in answer.text
    answer = send(live, "/alerts/silences", hours="4", comment="", rule="kept as typed")
    assert "say why" in answer.text
    assert 'value="kept as typed"' in answer.text


def test_a_rule_of_ones_own_is_made_and_deleted(live: Live) -> None:
    answer = send(live, "/alerts/rules", name="my_rule")
    assert answer.headers["location"] == "/alerts/rules/my_rule"
    assert live.client.get("/alerts/rules/my_rule").status_code == 200
    assert live.client.get("/alerts/rules/Not-A-Name").status_code == 404
    body = {"title": "Mine", "kinds": ["zero_acceptance"], "min_steps": 2000}
    assert live.client.put("/api/v1/rules/my_rule", json=body).json()["min_steps"] == 2000
    assert live.client.put("/api/v1/rules/my_rule", json={"window_s": 5}).status_code == 400
    assert live.client.put("/api/v1/rules/my_rule", json={"nonsense": 5}).status_code == 400
    assert live.client.delete("/api/v1/rules/my_rule").json() == {"name": "my_rule"}
    assert live.client.delete("/api/v1/rules/my_rule").status_code == 404


def test_a_silence_is_made_and_ended(live: Live) -> None:
    assert send(live, "/alerts/silences", hours="4", comment="deploy", rule="too_*").status_code == 303
    (made,) = [s for s in live.get("/api/v1/silences")["items"] if s["comment"] == "deploy"]
    assert made["active"]
    assert "too_*" in live.client.get("/alerts/silences").text
    assert send(live, f"/alerts/silences/{made['silence_uid']}/end").status_code == 303
    (made,) = [s for s in live.get("/api/v1/silences")["items"] if s["comment"] == "deploy"]
    assert not made["active"]
    body = {"ends": "2020-01-01T00:00:00Z", "comment": "x"}
    assert live.client.post("/api/v1/silences", json=body).status_code == 400


def test_an_alert_is_acknowledged(live: Live) -> None:
    assert send(live, f"{ALERT}/acknowledge").status_code == 400, "say who"
    assert send(live, f"{ALERT}/acknowledge", by="ada", note="on it").status_code == 303
    assert "Taken on by ada" in live.client.get(ALERT).text
    asked = {"engine_uid": MINE.engine, "rule": "silent_path", "by": "grace"}
    assert live.client.post("/api/v1/alerts/acknowledge", json=asked).status_code == 200
    assert "Taken on by grace" in live.client.get(ALERT).text


def test_a_test_is_sent_and_its_address_is_not_shown_whole(live: Live, hook: Receiver) -> None:
    page = send(live, "/alerts/test")
    assert page.status_code == 200
    assert "taken" in page.text
    assert "s3cr3t" not in page.text
    (tried,) = live.client.post("/api/v1/alerts/test", json={}).json()["items"]
    assert (tried["error"], "s3cr3t" in tried["target"]) == ("", False)
    tests = [got.body for got in hook.got if got.body["test"]]
    assert len(tests) == 2
    assert {one["rule"] for one in tests} == {"test"}


def test_a_dead_letter_is_shown_and_sent_again(live: Live) -> None:
    (first, *_) = [d for d in live.store.deliveries("default", 99) if d.target == f"to {MINE.word}"]
    live.store.settle_delivery(first.id, error="HTTP 500", next_attempt=None)
    page = live.client.get("/alerts").text
    assert "Not delivered" in page
    assert f"/alerts/deliveries/{first.id}/retry" in page
    assert send(live, f"/alerts/deliveries/{first.id}/retry").status_code == 303
