from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from alert_world import Clock, Engine, make_store
from serverkit.receivers import Receiver, closed_port, root_log
from specscope_server.alerts import delivery, parse_target
from specscope_server.alerts.delivery import MAX_ATTEMPTS, RETRY_AFTER_S, Deliverer
from specscope_server.alerts.payload import payload
from specscope_server.alerts.targets import Target
from specscope_server.store.model import AlertRow, DeliveryRow
from specscope_server.store.port import NewDelivery, Store


class Bench:
    """A store with an engine, and notifications queued by hand."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        Engine(store, clock).beat()
        self.uid = store.engine_uids()[0][1]

    def queue(
        self, target: Target, state: str = "firing", rule: str = "silent_path", *, also: Sequence[Target] = ()
    ) -> None:
        self.clock.forward(1)
        row = AlertRow(
            rule, "Silent path", self.uid, "tiny", state, "fc never ran.", self.clock(), self.clock()
        )
        told = payload(row, previous="ok", workspace="default", findings=[], base_url="http://scope:4318")
        new = [NewDelivery(rule, self.uid, state, each.label, told) for each in (target, *also)]
        self.store.set_alerts([row], new)

    def rows(self) -> list[DeliveryRow]:
        """Oldest first."""
        return self.store.deliveries("default", 100)[::-1]

    def deliver(self, *targets: Target, rounds: int = 1, forward: float = 0) -> None:
        """Deliver what is due, ``rounds`` times, moving the clock by ``forward`` seconds after each."""

        async def work() -> None:
            deliverer = Deliverer(self.store, targets, self.clock)
            for _ in range(rounds):
                await deliverer.deliver_due()
                await deliverer.drain()
                self.clock.forward(forward)
            deliverer.close()

        asyncio.run(work())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = make_store(tmp_path)
    yield Bench(store, Clock())
    store.close()


def webhook(receiver: Receiver, path: str = "/hook") -> Target:
    return parse_target(f"webhook+http://127.0.0.1:{receiver.port}{path}")


def test_webhook_gets_our_json_and_an_idempotency_key(bench: Bench) -> None:
    with Receiver() as receiver:
        target = webhook(receiver, "/hook?token=s3cr3t-token")
        bench.queue(target)
        bench.deliver(target, rounds=3)
        (got,) = receiver.got
    assert got.path == "/hook?token=s3cr3t-token"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["idempotency-key"] == got.body["id"]
    assert (got.body["version"], got.body["rule"], got.body["state"]) == (1, "silent_path", "firing")
    (row,) = bench.rows()
    assert (row.status, row.attempts, row.error) == ("delivered", 1, "")


def test_failing_first_then_delivered_once_with_the_same_key(bench: Bench) -> None:
    with Receiver(answers=(500, 503, 200)) as receiver:
        target = webhook(receiver)
        bench.queue(target)
        bench.deliver(target)
        (row,) = bench.rows()
        assert (row.status, row.attempts, row.error) == ("pending", 1, "HTTP 500")
        assert row.next_attempt is not None
        assert row.next_attempt - bench.clock() == timedelta(seconds=RETRY_AFTER_S[0])
        bench.deliver(target)
        assert len(receiver.got) == 1, "it is not due yet"
        bench.deliver(target, rounds=4, forward=10)
        assert len(receiver.got) == 3
        assert len({got.headers["idempotency-key"] for got in receiver.got}) == 1
    (row,) = bench.rows()
    assert (row.status, row.attempts) == ("delivered", 3)


def test_a_target_that_always_fails_is_given_up_visibly(bench: Bench) -> None:
    with Receiver(answers=(500,)) as receiver:
        target = webhook(receiver)
        bench.queue(target)
        bench.deliver(target, rounds=MAX_ATTEMPTS + 3, forward=max(RETRY_AFTER_S))
        assert len(receiver.got) == MAX_ATTEMPTS
    (row,) = bench.rows()
    assert (row.status, row.attempts, row.error, row.next_attempt) == (
        "failed",
        MAX_ATTEMPTS,
        "HTTP 500",
        None,
    )


def test_refused_connection_is_retried_and_its_error_shown(bench: Bench) -> None:
    target = parse_target(f"webhook+http://127.0.0.1:{closed_port()}/hooks/s3cr3t-token")
    bench.queue(target)
    bench.deliver(target)
    (row,) = bench.rows()
    assert (row.status, row.attempts) == ("pending", 1)
    assert "ConnectError" in row.error


def test_redirects_are_not_followed(bench: Bench) -> None:
    with Receiver(answers=(302,)) as receiver:
        target = webhook(receiver)
        bench.queue(target)
        bench.deliver(target)
        assert [got.path for got in receiver.got] == ["/hook"]
    assert bench.rows()[0].error == "HTTP 302"


def test_a_slow_target_holds_up_no_other_and_is_not_asked_twice(bench: Bench) -> None:
    hold = threading.Event()
    with Receiver(hold=hold) as slow, Receiver() as quick:
        targets = (webhook(slow), webhook(quick))
        bench.queue(targets[0], also=targets[1:])

        async def work() -> None:
            deliverer = Deliverer(bench.store, targets, bench.clock)
            await deliverer.deliver_due()
            assert await asyncio.to_thread(slow.arrived.acquire, timeout=30)
            assert await asyncio.to_thread(quick.arrived.acquire, timeout=30)
            await deliverer.deliver_due()
            hold.set()
            await deliverer.drain()
            deliverer.close()

        asyncio.run(work())
        assert len(slow.got) == 1
    assert [row.status for row in bench.rows()] == ["delivered", "delivered"]


def test_recovery_never_overtakes_the_firing_it_ends(bench: Bench) -> None:
    with Receiver(answers=(500, 200)) as receiver:
        target = webhook(receiver)
        bench.queue(target, "firing")
        bench.queue(target, "ok")
        bench.deliver(target, rounds=4, forward=RETRY_AFTER_S[0])
        assert [got.body["state"] for got in receiver.got] == ["firing", "firing", "ok"]
    assert [row.status for row in bench.rows()] == ["delivered", "delivered"]


def test_a_recovery_does_not_overtake_its_firing_across_a_restart(bench: Bench) -> None:
    with Receiver(answers=(500, 200)) as receiver:
        target = webhook(receiver)
        bench.queue(target, "firing")
        bench.deliver(target)
        bench.queue(target, "ok")
        for _ in range(3):
            bench.deliver(target, forward=RETRY_AFTER_S[0])
        assert [got.body["state"] for got in receiver.got] == ["firing", "firing", "ok"]


def test_what_another_server_delivered_meanwhile_holds_nothing_up(bench: Bench) -> None:
    with Receiver(answers=(500, 200)) as receiver:
        target = webhook(receiver)

        async def work() -> None:
            ours, theirs = (Deliverer(bench.store, [target], bench.clock) for _ in range(2))
            for deliverer, state in ((ours, "firing"), (theirs, ""), (ours, "ok")):
                if state:
                    bench.queue(target, state)
                bench.clock.forward(RETRY_AFTER_S[0])
                await deliverer.deliver_due()
                await deliverer.drain()
            ours.close()
            theirs.close()

        asyncio.run(work())
        assert [got.body["state"] for got in receiver.got] == ["firing", "firing", "ok"]


def test_many_for_an_address_that_hangs_keep_nothing_from_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BATCH", 2)
    hold = threading.Event()
    with Receiver(hold=hold) as slow, Receiver() as quick:
        targets = (webhook(slow), webhook(quick))
        for rule in ("a", "b", "c"):
            bench.queue(targets[0], rule=rule)
        bench.queue(targets[1], rule="d")

        async def work() -> None:
            deliverer = Deliverer(bench.store, targets, bench.clock)
            await deliverer.deliver_due()
            assert await asyncio.to_thread(quick.arrived.acquire, timeout=30)
            hold.set()
            await deliverer.drain()
            deliverer.close()

        asyncio.run(work())
    assert {row.rule: row.status for row in bench.rows()}["d"] == "delivered"


def test_other_alerts_do_not_wait_for_a_failing_one(bench: Bench) -> None:
    with Receiver(answers=(500, 200)) as receiver:
        target = webhook(receiver)
        bench.queue(target, rule="silent_path")
        bench.deliver(target)
        bench.queue(target, rule="zero_acceptance")
        bench.deliver(target)
        assert [got.body["rule"] for got in receiver.got] == ["silent_path", "zero_acceptance"]


def test_a_target_no_longer_configured_fails_at_once(bench: Bench) -> None:
    gone = parse_target("webhook+http://127.0.0.1:9/hook")
    bench.queue(gone)
    bench.deliver()
    (row,) = bench.rows()
    assert row.status == "failed"
    assert "does not notify webhook+http://127.0.0.1:9" in row.error


def test_what_was_sent_is_not_sent_again_when_noting_it_failed(bench: Bench, tmp_path: Path) -> None:
    with Receiver() as receiver:
        target = webhook(receiver)
        bench.queue(target)

        async def work() -> None:
            deliverer = Deliverer(bench.store, [target], bench.clock)
            await deliverer.deliver_due()
            assert await asyncio.to_thread(receiver.arrived.acquire, timeout=30)
            aside = sqlite3.connect(tmp_path / "alerts.db")
            aside.execute("alter table delivery rename to delivery_away")
            aside.commit()
            with pytest.raises(Exception, match="delivery"):
                await deliverer.drain()
            aside.execute("alter table delivery_away rename to delivery")
            aside.commit()
            aside.close()
            await deliverer.deliver_due()
            await deliverer.drain()
            deliverer.close()

        asyncio.run(work())
        assert len(receiver.got) == 1
    assert bench.rows()[0].status == "delivered"


class TestApprise:
    def test_json_url_reaches_a_local_receiver(self, bench: Bench) -> None:
        with Receiver() as receiver:
            target = parse_target(f"json://127.0.0.1:{receiver.port}/in")
            bench.queue(target)
            bench.queue(target, "ok")
            bench.deliver(target, rounds=2)
            first, second = receiver.got
        assert first.body["title"] == "SpecScope: Silent path firing on tiny"
        assert first.body["type"] == "failure"
        assert "fc never ran." in first.body["message"]
        assert "http://scope:4318/engines/" in first.body["message"]
        assert (second.body["type"], second.body["title"]) == (
            "success",
            "SpecScope: Silent path recovered on tiny",
        )
        assert {row.status for row in bench.rows()} == {"delivered"}

    def test_failing_first_then_delivered(self, bench: Bench) -> None:
        with Receiver(answers=(500, 200)) as receiver:
            target = parse_target(f"json://127.0.0.1:{receiver.port}/in")
            bench.queue(target)
            bench.deliver(target, rounds=3, forward=RETRY_AFTER_S[0])
            assert len(receiver.got) == 2
        (row,) = bench.rows()
        assert (row.status, row.attempts) == ("delivered", 2)

    def test_error_says_why(self, bench: Bench) -> None:
        target = parse_target(f"json://127.0.0.1:{closed_port()}/in")
        bench.queue(target)
        bench.deliver(target)
        assert "onnection error" in bench.rows()[0].error


SECRETS: dict[str, Callable[[int], str]] = {
    "webhook": lambda port: f"webhook+http://user:p4ssw0rd-x@127.0.0.1:{port}/s3cr3t-path?key=s3cr3t-key",
    "apprise": lambda port: f"json://user:p4ssw0rd-x@127.0.0.1:{port}/s3cr3t-path?+X-Token=s3cr3t-key",
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("refused", [False, True], ids=["answers 500", "refuses"])
def test_no_secret_is_logged_stored_or_shown(bench: Bench, kind: str, refused: bool) -> None:
    with Receiver(answers=(500,)) as receiver, root_log() as written:
        target = parse_target(SECRETS[kind](closed_port() if refused else receiver.port))
        bench.queue(target)
        bench.deliver(target, rounds=MAX_ATTEMPTS, forward=max(RETRY_AFTER_S))
    (row,) = bench.rows()
    assert row.status == "failed"
    shown = f"{row} {target!r} {written.getvalue()}"
    assert row.error
    for secret in ("p4ssw0rd", "s3cr3t"):
        assert secret not in shown
