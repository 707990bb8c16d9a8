"""What must hold for any evidence, however odd."""

from __future__ import annotations

from dataclasses import replace

from evidence_literals import CONFIG, HEALTHY, NOW, OFF_CONFIG
from hypothesis import given, settings
from hypothesis import strategies as st
from specscope import convention as c
from specscope.rollup import Counts
from specscope_server.diagnosis import Evidence, ExtendEvidence, diagnose
from specscope_server.diagnosis.state import WORDS
from specscope_server.store.model import BoundaryState

few = st.integers(0, 2000)


@st.composite
def chains(draw: st.DrawFn) -> Counts:
    steps = draw(few)
    undrafted = draw(st.integers(0, steps))
    drafted = steps - undrafted
    zero = draw(st.integers(0, drafted))
    accepted = (drafted - zero) * draw(st.integers(1, 4))
    return Counts(steps, drafted * 4, drafted * 4, accepted, steps, steps + accepted, zero, undrafted)


def lines(armed: st.SearchStrategy[bool]) -> st.SearchStrategy[tuple[BoundaryState, ...]]:
    return st.lists(
        st.builds(
            BoundaryState,
            st.sampled_from(c.BOUNDARIES),
            st.sampled_from(c.SOURCES),
            few,
            st.dictionaries(st.sampled_from(c.MODES), few, max_size=2),
            armed,
            st.just(""),
        ),
        max_size=12,
        unique_by=lambda line: (line.boundary, line.source),
    ).map(tuple)


def kinds() -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(c.REQUEST_KINDS), few, max_size=3)


def evidences(
    armed: st.SearchStrategy[bool], summed: st.SearchStrategy[Counts | None]
) -> st.SearchStrategy[Evidence]:
    extend = st.builds(
        ExtendEvidence,
        st.sampled_from(["prefill", "verify"]),
        st.sampled_from([128, 256, 384]),
        st.sampled_from([None, 128, 384]),
        st.sampled_from([None, 0, 1, 3]),
        few,
        st.one_of(st.none(), few),
    )
    return st.builds(
        Evidence,
        engine_uid=st.just("e"),
        name=st.just("n"),
        now=st.just(NOW),
        window_s=st.sampled_from([60.0, 300.0]),
        last_received=st.one_of(st.none(), st.floats(NOW - 10_000, NOW)),
        heartbeat_s=st.sampled_from([1.0, 3.0, 10.0]),
        speculation=st.sampled_from([None, True, False]),
        config=st.sampled_from([CONFIG, OFF_CONFIG, {}, {"draft": "text"}, {"draft": {"eagle_config": 3}}]),
        window=lines(armed),
        since_start=lines(armed),
        counts=summed,
        positions=st.just(()),
        requests=kinds(),
        window_requests=kinds(),
        extends=st.lists(extend, max_size=3).map(tuple),
        dropped=st.dictionaries(st.just("queue"), few, max_size=1),
        hook_errors=st.dictionaries(st.just("fc"), few, max_size=1),
    )


any_counts = st.one_of(st.none(), chains(), st.builds(Counts, few, few, few, few, few, few, few, few))
"""None, possible ones, and numbers that contradict each other, as a damaged tracer might send."""


@given(evidences(st.booleans(), any_counts))
@settings(max_examples=100, deadline=None)
def test_exactly_one_word_and_each_kind_is_found_unknown_or_clear(given_evidence: Evidence) -> None:
    said = diagnose(given_evidence)
    assert said.state.word in WORDS
    assert said.state.reason
    found = [f.kind for f in said.findings]
    assert len(set(found)) == len(found)
    assert not set(found) & set(said.unknown)
    if said.state.word == "healthy":
        assert not found
        assert given_evidence.counts is not None
    if "zero_acceptance" in found:
        assert found[-1] == "zero_acceptance"


@given(evidences(st.just(False), any_counts))
@settings(max_examples=100, deadline=None)
def test_without_an_armed_boundary_there_is_no_gap(given_evidence: Evidence) -> None:
    assert {f.kind for f in diagnose(given_evidence).findings} <= {"zero_acceptance"}


@given(evidences(st.booleans(), st.none()))
@settings(max_examples=100, deadline=None)
def test_no_counts_are_never_zero_acceptance_nor_health(given_evidence: Evidence) -> None:
    said = diagnose(given_evidence)
    assert "zero_acceptance" not in {f.kind for f in said.findings}
    assert said.state.word != "healthy"


@given(evidences(st.booleans(), any_counts))
@settings(max_examples=100, deadline=None)
def test_a_finding_brings_evidence_a_check_and_a_fix(given_evidence: Evidence) -> None:
    for found in diagnose(given_evidence).findings:
        assert found.sentence.endswith(".")
        assert found.numbers
        assert all(n.link.startswith(("/engines/e", "/requests/")) for n in found.numbers if n.link)
        assert found.next_check
        assert found.fix


@given(st.integers(8, 5000), st.floats(0.36, 1.0), st.integers(1, 4))
def test_a_healthy_path_with_a_benefit_is_healthy_or_too_short(steps: int, share: float, run: int) -> None:
    hits = round(steps * share)
    summed = Counts(steps, steps * 4, steps * 4, hits * run, steps, steps + hits * run, steps - hits, 0)
    said = diagnose(replace(HEALTHY, counts=summed))
    assert said.findings == ()
    assert said.state.word in ("healthy", "too little data")
