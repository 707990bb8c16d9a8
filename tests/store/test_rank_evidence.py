"""Ranks held against each other: by step number, of one launch, over bounded records."""

from __future__ import annotations

from typing import Any

from specscope import convention as c
from specscope_server.diagnosis.model import RankEvidence
from specscope_server.store import ranks
from specscope_server.store.port import Store
from storekit import facts
from storekit.dump import dump

ONE: dict[str, Any] = {"process_uid": "p1", "tp": 1}
TWO: dict[str, Any] = {"process_uid": "p2", "tp": 2}


def evidence(store: Store) -> tuple[RankEvidence, ...]:
    found = store.evidence("default", facts.ENGINE, facts.NOW, 300)
    assert found is not None
    return found.ranks


def only(store: Store) -> RankEvidence:
    (one,) = evidence(store)
    return one


def write(store: Store, *told: Any, **process: Any) -> None:
    store.write([facts.batch(*told, facts.heartbeat(2), **process)], facts.NOW)


def test_an_engine_of_one_rank_has_none_to_compare(store: Store) -> None:
    write(store)
    assert evidence(store) == ()


def test_ranks_that_agree(store: Store) -> None:
    # Cut into records at different steps, and with a step that rank 1 has not told yet.
    write(store, facts.rank_steps(3, 4), facts.rank_steps(7, 5))
    write(store, facts.rank_steps(3, 8), **ONE)
    assert only(store) == RankEvidence(0, 0, 2, (0, 1), 8, 8, 0, 0, steps=(3, 10), alone=1)


def test_a_rank_that_is_not_heard_is_no_agreement(store: Store) -> None:
    write(store, facts.rank_steps(3, 4))
    write(store, **ONE)
    one = only(store)
    assert (one.heard, one.size, one.compared, one.alone, one.steps) == ((0,), 2, 0, 4, None)


def test_the_first_step_that_differs_and_where(store: Store) -> None:
    write(store, facts.rank_steps(3, 20))
    write(store, facts.rank_steps(3, 20, other=[9, 12]), **ONE)
    one = only(store)
    assert (one.proposals_differ, one.accepts_differ, one.first_step) == (0, 2, 9)
    assert (one.boundary, one.apart) == (c.TARGET_VERIFY, (0, 1))


def test_proposals_come_before_the_accepts_of_their_step(store: Store) -> None:
    write(store, facts.rank_steps(3, 6, size=3))
    write(store, facts.rank_steps(3, 6, size=3, other=[5], where="proposals"), **ONE)
    write(store, facts.rank_steps(3, 6, size=3, other=[6]), **TWO)
    one = only(store)
    assert (one.proposals_differ, one.accepts_differ, one.first_step) == (1, 1, 5)
    assert (one.boundary, one.apart, one.heard) == (c.DRAFT_PROPOSE, (1,), (0, 1, 2))


def test_groups_are_compared_apart(store: Store) -> None:
    for dp in (0, 1):
        write(store, facts.rank_steps(3, 4), process_uid=f"a{dp}", dp=dp)
        write(store, facts.rank_steps(3, 4, other=[4] if dp else []), process_uid=f"b{dp}", dp=dp, tp=1)
    first, second = evidence(store)
    assert (first.dp, first.compared, first.accepts_differ) == (0, 4, 0)
    assert (second.dp, second.compared, second.accepts_differ) == (1, 4, 1)


def test_prefill_and_decode_processes_of_one_instance_are_apart(store: Store) -> None:
    for role in ("prefill", "decode"):
        for tp in (0, 1):
            steps = facts.rank_steps(3, 4, other=[4] if role == "decode" else [])
            write(store, steps, process_uid=f"{role}{tp}", tp=tp, serving_role=role)
    first, second = evidence(store)
    assert (first.name, second.name) == ("dp 0 pp 0 decode", "dp 0 pp 0 prefill")
    assert [(g.heard, g.compared, g.accepts_differ) for g in (first, second)] == [((0, 1), 4, 0)] * 2


def test_a_launch_is_not_held_against_the_one_before(store: Store) -> None:
    """The same instance started again: its steps count from the start, and rank 1 is not up yet."""
    first: dict[str, Any] = {"start_ns": facts.ago_ns(900)}
    write(store, facts.rank_steps(3, 4), process_uid="old0", **first)
    batch = facts.batch(facts.rank_steps(3, 4, other=[3, 4]), process_uid="old1", tp=1, **first)
    store.write([batch], facts.ago(800))
    again = {"start_ns": facts.ago_ns(60)}
    old = facts.batch(facts.heartbeat(700), process_uid="old0", **first)
    store.write([old], facts.ago(700))
    write(store, facts.rank_steps(3, 4), process_uid="new0", **again)
    assert only(store).heard == (0,)
    write(store, facts.rank_steps(3, 4), process_uid="new1", tp=1, **again)
    one = only(store)
    assert (one.heard, one.compared, one.accepts_differ) == ((0, 1), 4, 0)


def test_what_is_not_on_the_host_is_not_compared(store: Store) -> None:
    unseen = facts.pack_ranks([3, 4], [None, None], [1, 2])
    for process in ({}, ONE):
        report = facts.RankReport(3, 4, 2, facts.ago_ns(5), unseen)
        write(store, report, **process)
    one = only(store)
    assert (one.compared, one.proposals_compared, one.proposals_differ) == (2, 0, 0)


def test_damaged_records_are_left_out(store: Store) -> None:
    write(store, facts.rank_steps(3, 4), facts.RankReport(7, 9, 2, facts.ago_ns(5), b"SPSC nonsense"))
    write(store, facts.rank_steps(3, 7), **ONE)
    assert only(store).compared == 4


def test_only_the_newest_records_are_kept(store: Store, store_url: str) -> None:
    late = [facts.rank_steps(first, 1) for first in range(3)]
    new = [facts.rank_steps(first, 1) for first in range(3, 3 + ranks.KEPT)]
    write(store, *new[::2])
    write(store, *late, *new[1::2])
    write(store, *late)
    kept = [row[2] for row in dump(store_url)["rank_steps"]]
    assert kept == list(range(3, 3 + ranks.KEPT))
