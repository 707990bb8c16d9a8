"""Ids: the same from the same facts on every machine, different from different ones."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from specscope import identity

FIELDS = st.tuples(st.text(), st.integers(0, 64), st.text(), st.integers(0, 9))


@given(FIELDS, FIELDS)
def test_request_uids_differ_exactly_when_the_facts_differ(
    a: tuple[str, int, str, int], b: tuple[str, int, str, int]
) -> None:
    assert (identity.request_uid(*a) == identity.request_uid(*b)) == (a == b)


def test_fields_do_not_run_into_each_other() -> None:
    assert identity.request_uid("ab", 0, "c", 0) != identity.request_uid("a", 0, "bc", 0)
    ranks = identity.Ranks
    assert identity.process_uid("i", "worker", ranks(tp=1, dp=11), 5, 6) != identity.process_uid(
        "i", "worker", ranks(tp=11, dp=1), 5, 6
    )


@given(st.text(min_size=1))
def test_ids_are_valid_in_opentelemetry(text: str) -> None:
    uid = identity.request_uid("i", 0, text, 0)
    assert len(bytes.fromhex(uid)) == 16
    assert 0 < identity.trace_id(uid) < 1 << 128
    assert 0 < identity.request_span_id(uid) < 1 << 64
    assert 0 < identity.chunk_span_id("p", uid, 3) < 1 << 64
    assert 0 < identity.process_span_id("p", text, 3) < 1 << 64
    assert 0 < identity.process_trace_id(text) < 1 << 128


def test_a_lone_surrogate_in_a_rid_does_no_harm() -> None:
    assert identity.request_uid("i", 0, "\ud800", 0) != identity.request_uid("i", 0, "?", 0)


@given(st.lists(st.sampled_from(["a", "b", "c"])))
def test_a_reused_rid_never_gets_the_same_ordinal(rids: list[str]) -> None:
    ordinals = identity.ArrivalOrdinals()
    seen = Counter((rid, ordinals.next(rid)) for rid in rids)
    assert all(count == 1 for count in seen.values())


def test_ranks_that_see_the_same_arrivals_agree() -> None:
    first, second = identity.ArrivalOrdinals(), identity.ArrivalOrdinals()
    rids = [f"r{i % 7}" for i in range(1000)]
    assert [first.next(r) for r in rids] == [second.next(r) for r in rids]


def test_instances_are_new_each_time() -> None:
    assert len({identity.new_instance() for _ in range(100)}) == 100
