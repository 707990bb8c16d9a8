"""What the diagnosis is given: differences within the window, draft extends, examples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from specscope_server.diagnosis.model import Evidence, ExtendEvidence
from specscope_server.store.extends import MAX_CHUNKS
from specscope_server.store.model import BoundaryState
from specscope_server.store.port import Store
from specscope_server.store.told import RequestTotals
from storekit import facts

YOUNG = replace(facts.PROCESS, start_ns=facts.ago_ns(50))


def _evidence(store: Store, window_s: float = 60) -> Evidence:
    found = store.evidence("default", facts.ENGINE, facts.NOW, window_s)
    assert found is not None
    return found


def _beat(seconds_ago: float, expected: int, observed: int):
    return facts.heartbeat(
        seconds_ago, boundaries=facts.crossings("draft.fc", "target_fed", expected, eager=observed)
    )


def _fc(expected: int, observed: int) -> tuple[BoundaryState, ...]:
    return (BoundaryState("draft.fc", "target_fed", expected, {"eager": observed}, True, arming="armed"),)


def test_no_such_engine(store: Store) -> None:
    assert store.evidence("default", "0123456789abcdef", facts.NOW, 60) is None


def test_everything_known_of_a_healthy_engine(store: Store) -> None:
    beat = facts.heartbeat(
        requests={"user": 3}, dropped={"queue_full": 1}, hook_errors={"fc": 2}, speculation=True
    )
    store.write([facts.batch(facts.REPORT, facts.request(), facts.increment(1), beat)], facts.NOW)
    found = _evidence(store)
    assert (found.engine_uid, found.name, found.window_s) == (facts.ENGINE, "tiny", 60)
    assert (found.now, found.last_received) == (facts.NOW.timestamp(), facts.NOW.timestamp())
    assert (found.speculation, found.config) == (True, {"draft": {"layers": 1}})
    assert found.counts is not None
    assert (found.counts.steps, found.positions) == (3, ((3, 1),))
    assert (found.requests, found.window_requests) == ({"user": 3}, {"user": 1})
    assert (found.dropped, found.hook_errors) == ({"queue_full": 1}, {"fc": 2})
    assert found.example_requests == ("u0",)


def test_nothing_in_the_window_is_no_data(store: Store) -> None:
    store.write(
        [facts.batch(facts.request(arrival_ns=facts.ago_ns(900)), facts.increment(1, 900))], facts.NOW
    )
    found = _evidence(store)
    assert (found.counts, found.positions, found.window_requests, found.extends) == (None, (), {}, ())


def test_the_window_counts_from_the_last_bucket_that_ended_before_it(store: Store) -> None:
    beats = [_beat(200, 10, 10), _beat(90, 50, 50), _beat(30, 70, 51), _beat(1, 80, 52)]
    store.write([facts.batch(*beats)], facts.NOW)
    assert _evidence(store).window == _fc(30, 2)
    assert _evidence(store).since_start == _fc(80, 52)
    assert _evidence(store, 600).window == _fc(70, 42)


def test_a_process_born_in_the_window_counts_from_zero(store: Store) -> None:
    store.write([facts.batch(_beat(40, 5, 0), _beat(1, 9, 0), process=YOUNG)], facts.NOW)
    assert _evidence(store).window == _fc(9, 0)
    assert _evidence(store, 20).window == _fc(4, 0)


def test_an_old_process_first_heard_in_the_window_counts_from_what_it_told_first(store: Store) -> None:
    store.write([facts.batch(_beat(40, 5000, 4000), _beat(1, 5009, 4001))], facts.NOW)
    assert _evidence(store).window == _fc(9, 1)


def test_late_and_doubled_heartbeats_do_not_move_the_window(store: Store) -> None:
    store.write([facts.batch(_beat(90, 50, 50), _beat(1, 80, 52))], facts.NOW)
    before = _evidence(store).window
    store.write([facts.batch(_beat(95, 45, 45), _beat(90, 50, 50), _beat(30, 60, 50))], facts.NOW)
    assert _evidence(store).window == before == _fc(30, 2)


def test_processes_add_up_each_from_its_own_start(store: Store) -> None:
    store.write([facts.batch(_beat(90, 50, 50), _beat(1, 80, 52))], facts.NOW)
    young = replace(YOUNG, process_uid="p1", tp=1)
    store.write([facts.batch(_beat(1, 7, 7), process=young)], facts.NOW)
    assert _evidence(store).window == _fc(37, 9)


def test_a_window_follows_a_clock_that_is_an_hour_off(store: Store) -> None:
    behind = 3600
    process = replace(facts.PROCESS, start_ns=facts.ago_ns(2 * behind))
    told = [
        _beat(behind + 90, 50, 50),
        _beat(behind + 1, 80, 52),
        facts.increment(1, behind + 20),
        facts.request(arrival_ns=facts.ago_ns(behind + 20)),
        facts.chunk(extends=[facts.extend(1)], end_ns=facts.ago_ns(behind + 18)),
    ]
    store.write([facts.batch(*told, process=process)], facts.NOW)
    found = _evidence(store)
    assert found.window == _fc(30, 2)
    assert found.counts is not None
    assert (found.counts.steps, found.window_requests, len(found.extends)) == (3, {"user": 1}, 1)
    assert found.example_requests == ("u0",)


def test_extends_are_grouped_and_each_pass_counts_once(store: Store) -> None:
    shared = [facts.extend(n) for n in (1, 2, 3)]
    other = [
        facts.extend(1, after="prefill", fed_width=32, aux_states=0, fc_ran=0),
        facts.extend(4, fc_ran=None),
        facts.extend(5, fc_in=None, fc_ran=None),
    ]
    store.write(
        [
            facts.batch(
                facts.chunk("u0", extends=shared),
                facts.chunk("u1", extends=shared + other),
                facts.chunk("u2", extends=[facts.extend(9)], end_ns=facts.ago_ns(61)),
            )
        ],
        facts.NOW,
    )
    assert set(_evidence(store).extends) == {
        ExtendEvidence("verify", 96, 96, 3, 3, 3),
        ExtendEvidence("prefill", 32, 96, 0, 1, 0),
        ExtendEvidence("verify", 96, 96, 3, 1, None),
        ExtendEvidence("verify", 96, None, 3, 1, None),
    }
    # Another process has step numbers of its own.
    store.write([facts.batch(facts.chunk("u3", extends=shared), process_uid="p1", dp=1)], facts.NOW)
    assert ExtendEvidence("verify", 96, 96, 3, 6, 6) in _evidence(store).extends


def test_only_the_newest_chunks_are_opened(store: Store) -> None:
    old = [facts.chunk("old", n, extends=[facts.extend(n)], end_ns=facts.ago_ns(50)) for n in range(50)]
    new = [facts.chunk("new", n, extends=[facts.extend(100 + n)]) for n in range(MAX_CHUNKS - 10)]
    store.write([facts.batch(*old, *new, facts.chunk("none", steps=[facts.step(1)]))], facts.NOW)
    (found,) = _evidence(store).extends
    assert found.passes == MAX_CHUNKS


def test_damaged_extends_are_left_out_and_said_so(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    bad = replace(facts.chunk("bad"), extends=b"SPSC junk")
    store.write([facts.batch(bad, facts.chunk(extends=[facts.extend(1)]))], facts.NOW)
    (found,) = _evidence(store).extends
    assert found.passes == 1
    assert "request bad: extends of chunk 0 cannot be read" in caplog.text


def test_examples_are_user_requests_worst_first(store: Store) -> None:
    def of(uid: str, accepted: int, drafted: int = 10, **changes: object):
        totals = RequestTotals(verify_steps=5, drafted_depth=drafted, accepted=accepted, bonus=5)
        return facts.request(uid, totals=totals, **changes)

    told = [
        of("good", 9),
        of("undrafted", 0, 0),
        of("bad", 0),
        of("fair", 4),
        of("check", 0, kind="health_check"),
        of("stale", 0, arrival_ns=facts.ago_ns(7200)),
        facts.request("stepless", totals=RequestTotals()),
        # It arrived before the window and was told of within it.
        of("long", 2, arrival_ns=facts.ago_ns(1800), state="running", end_ns=None),
    ]
    store.write([facts.batch(*told)], facts.ago(5))
    store.write([facts.batch(of("silent", 0, arrival_ns=facts.ago_ns(100)))], facts.ago(95))
    assert _evidence(store).example_requests == ("bad", "long", "fair", "good", "undrafted")
