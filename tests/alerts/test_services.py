"""Delivery to real receivers: signed webhooks, an Alertmanager's API, SMTP; and a test of all of them."""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import hashlib
import hmac
import json
import math
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope
from alert_world import Clock, Engine, make_store
from serverkit.receivers import Receiver, closed_port
from specscope_server.alerts import Evaluator, parse_target
from specscope_server.alerts import send as sending
from specscope_server.alerts.alertmanager import of_states, url_of
from specscope_server.alerts.payload import payload
from specscope_server.alerts.send import send
from specscope_server.alerts.signing import SecretError, parse_secret
from specscope_server.alerts.targets import Target
from specscope_server.alerts.try_out import try_out
from specscope_server.diagnosis.model import Finding, Number
from specscope_server.store.model import AlertRow

NOW = datetime.now(UTC)
ROW = AlertRow(
    "silent_path", "Silent path", "e1", "tiny", "firing", "fc never ran.", NOW, NOW, severity="critical"
)
SECRET = "0123456789abcdef0123456789abcdef"


def told(state: str = "firing") -> dict[str, Any]:
    row = AlertRow(*("silent_path", "Silent path", "e1", "tiny", state, "why", NOW, NOW), severity="critical")
    return payload(row, previous="ok", workspace="default", findings=[], base_url="http://scope:4318")


def sent(target: Target, body: dict[str, Any]) -> str:
    with ThreadPoolExecutor(1) as threads:
        return asyncio.run(send(target, body, threads))


def test_what_is_not_finite_is_a_text_in_json() -> None:
    numbers = tuple(Number("size", value, math.inf) for value in (math.nan, -math.inf, 1.5, None, "odd"))
    found = Finding("x", "F08", "critical", "certain", "NaN", "NaN.", numbers)
    body = payload(ROW, previous="ok", workspace="default", findings=[found], base_url="")
    (told,) = json.loads(json.dumps(body, allow_nan=False))["findings"]
    assert [one["value"] for one in told["numbers"]] == ["NaN", "-Infinity", 1.5, None, "odd"]
    assert {one["expected"] for one in told["numbers"]} == {"Infinity"}


class TestSigning:
    def test_a_receiver_can_check_who_sent_a_webhook_and_when(self) -> None:
        with Receiver() as receiver:
            url = f"webhook+http://127.0.0.1:{receiver.port}/hook"
            target = parse_target(url, parse_secret(SECRET))
            assert sent(target, told()) == ""
            (got,) = receiver.got
        signed = b".".join(
            (got.headers["webhook-id"].encode(), got.headers["webhook-timestamp"].encode(), got.raw)
        )
        mac = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
        assert got.headers["webhook-signature"] == f"v1,{mac}"
        assert got.headers["webhook-id"] == got.body["id"] == got.headers["idempotency-key"]
        assert abs(int(got.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 600
        assert SECRET not in repr(target)

    def test_without_a_secret_nothing_is_signed(self) -> None:
        with Receiver() as receiver:
            sent(parse_target(f"webhook+http://127.0.0.1:{receiver.port}/hook"), told())
            assert "webhook-signature" not in receiver.got[0].headers

    def test_secrets_of_the_standard_are_base64(self) -> None:
        raw = bytes(range(32))
        assert parse_secret(f" whsec_{base64.b64encode(raw).decode()}\n") == raw

    @pytest.mark.parametrize("text", ["", "short", "whsec_!!!", "whsec_c2hvcnQ="])
    def test_a_weak_secret_is_refused_without_repeating_it(self, text: str) -> None:
        with pytest.raises(SecretError) as refused:
            parse_secret(text)
        assert not text or text not in str(refused.value)


class TestAlertmanager:
    def test_a_firing_lasts_five_minutes_and_its_end_ends_it(self) -> None:
        with Receiver() as receiver:
            target = parse_target(f"alertmanager+http://127.0.0.1:{receiver.port}/am/")
            assert target.label.startswith(f"alertmanager+http://127.0.0.1:{receiver.port}/… #")
            assert sent(target, told()) == sent(target, told("ok")) == ""
            firing, ended = receiver.got
        assert firing.path == "/am/api/v2/alerts"
        (alert,) = firing.body
        assert alert["labels"] == {
            "alertname": "specscope_silent_path",
            "rule": "silent_path",
            "severity": "critical",
            "workspace": "default",
            "engine_uid": "e1",
            "engine": "tiny",
            "service": "specscope",
        }
        assert alert["generatorURL"] == "http://scope:4318/engines/e1"
        assert alert["annotations"]["description"] == "why"
        assert datetime.fromisoformat(alert["startsAt"]) == NOW
        lasts = datetime.fromisoformat(alert["endsAt"]) - datetime.now(UTC)
        assert timedelta(minutes=4) < lasts <= timedelta(minutes=5)
        assert ended.body[0]["labels"] == alert["labels"], "it finds the alert by its labels"
        assert datetime.fromisoformat(ended.body[0]["endsAt"]) <= datetime.now(UTC)

    def test_what_fires_is_told_again_until_it_does_not(self, tmp_path: Path) -> None:
        store, clock = make_store(tmp_path), Clock()
        engine = Engine(store, clock)
        engine.bypassed()
        with Receiver() as receiver:
            url = f"alertmanager+http://127.0.0.1:{receiver.port}"
            evaluator = Evaluator(store, [url], clock=clock, base_url="http://scope:4318")
            evaluator.evaluate_now()
            asyncio.run(evaluator.refresher.refresh())
            (again,) = receiver.got
            assert [alert["labels"]["rule"] for alert in again.body] == ["silent_path"], "not what follows"
            engine.stop_speculating()
            for _ in range(2):
                clock.forward(61)
                engine.stop_speculating()
                evaluator.evaluate_now()
            asyncio.run(evaluator.refresher.refresh())
            assert len(receiver.got) == 1
        evaluator.deliverer.close()
        store.close()


def test_the_query_of_an_alertmanagers_address_stays_behind_the_path() -> None:
    assert url_of("https://am/x/?tenant=a") == "https://am/x/api/v2/alerts?tenant=a"
    assert url_of("https://am/api/v2/alerts") == "https://am/api/v2/alerts"
    assert url_of("http://am:9093") == "http://am:9093/api/v2/alerts"


def test_a_silence_ends_no_alert_that_an_alertmanager_was_told_of() -> None:
    silenced = replace(ROW, told="firing", told_at=NOW, quiet="silenced by ada until noon")
    untold = replace(silenced, told="", told_at=None)
    (alert,) = of_states([silenced, untold], "default", "http://scope:4318", NOW)
    assert alert["annotations"]["quiet"] == "silenced by ada until noon"


class Mailbox:
    """A handler of aiosmtpd that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[list[str], EmailMessage]] = []

    async def handle_DATA(self, server: object, session: object, envelope: Envelope) -> str:
        content = cast(bytes, envelope.content)
        message = email.message_from_bytes(content, policy=email.policy.default)
        self.got.append(([str(one) for one in envelope.rcpt_tos], message))
        return "250 taken"


def mailed(body: dict[str, Any]) -> tuple[list[str], EmailMessage]:
    box = Mailbox()
    smtp = Controller(box, hostname="127.0.0.1", port=closed_port())
    smtp.start()
    try:
        url = f"mailto://127.0.0.1:{smtp.port}/?from=scope@example.org&to=oncall@example.org&mode=insecure"
        assert sent(parse_target(url), body) == ""
    finally:
        smtp.stop()
    (got,) = box.got
    return got


def test_mail_reaches_a_real_smtp_server() -> None:
    to, message = mailed(told() | {"reason": "accepted < 3 & <b>fc</b> never ran."})
    assert to == ["oncall@example.org"]
    assert message["Subject"] == "SpecScope: Silent path firing on tiny"
    body = message.get_body(("plain", "html"))
    assert body is not None
    lines = body.get_content().splitlines()
    assert "accepted < 3 & <b>fc</b> never ran." in lines, "signs and lines are as they were"
    assert "See http://scope:4318/engines/e1" in lines


def test_a_service_that_never_comes_to_an_end_costs_an_attempt_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "APPRISE_S", 0.5)
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as slow:

        def trickle() -> None:
            connection, _ = slow.accept()
            with connection:
                while not done.wait(0.05):
                    connection.sendall(b"2")

        thread = threading.Thread(target=trickle)
        thread.start()
        port = slow.getsockname()[1]
        url = f"mailto://127.0.0.1:{port}/?from=scope@example.org&to=oncall@example.org&mode=insecure"

        async def work() -> str:
            with ThreadPoolExecutor(1) as threads:
                error = await send(parse_target(url), told(), threads)
                done.set()
                return error

        assert asyncio.run(work()) == "no answer within 0.5 s"
        thread.join()


def test_a_test_says_so_and_what_came_of_it_at_each_address() -> None:
    with Receiver() as receiver, Receiver(answers=(500,)) as broken:
        ports = (receiver.port, broken.port, closed_port())
        targets = [parse_target(f"webhook+http://127.0.0.1:{port}/hook") for port in ports]
        tried = asyncio.run(try_out(targets, "default", "http://scope:4318"))
        assert receiver.got[0].body["test"] is True
        assert "nothing is wrong" in receiver.got[0].body["reason"]
    assert [one.target for one in tried] == [target.label for target in targets]
    assert [one.error.partition(":")[0] for one in tried] == ["", "HTTP 500", "ConnectError"]
