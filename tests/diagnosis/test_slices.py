"""Faults that only some slices of the traffic show, and the traffic that shows the same and is no fault."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
from evidence_literals import HEALTHY, SEED_FAULT
from slice_literals import Row, sliced, stepped
from specscope.rollup import BATCH, CACHED, CONTEXT, COPY_LIKE, MODE, ROW, TEMPERATURE
from specscope_server.diagnosis import (
    Evidence,
    cliff,
    context_decay,
    diagnose,
    draft_kv_stale,
    prefix_draft_kv,
    row_or_graph_stale,
    slice_compare,
    workload,
)
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown

ALL = (row_or_graph_stale, prefix_draft_kv, draft_kv_stale, cliff, context_decay)
HIGH_ROWS = sliced(ROW, ("0", 500, 350), ("1", 500, 360), ("2-3", 900, 90), ("4-7", 800, 70))
LARGE_BATCHES = sliced(BATCH, ("1", 700, 490), ("2-3", 700, 500), ("4-7", 1200, 60))
GRAPHS = sliced(MODE, ("eager", 900, 640), ("graph", 1500, 90))
CACHED_BAD = sliced(CACHED, ("miss", 1500, 1100), ("hit", 1500, 150))
LENGTH_CLIFF = sliced(
    CONTEXT, ("64-127", 900, 650), ("128-255", 900, 640), ("256-511", 900, 60), ("512-1023", 900, 50)
)
LENGTH_DECAY = sliced(
    CONTEXT,
    ("64-127", 1500, 1200),
    ("128-255", 1500, 900),
    ("256-511", 1500, 450),
    ("512-1023", 1500, 150),
    ("1024-2047", 1500, 30),
)
AFTER_FULL = stepped(after=(("all", 800, 120), ("none", 800, 600), ("some", 800, 500)))
GENERATED = stepped(
    since_prefill=(("0", 900, 700), ("1", 900, 690), ("2-3", 900, 450), ("4-7", 1500, 150), ("8-15", 900, 20))
)


def named(module: ModuleType, evidence: Evidence) -> Finding:
    verdict = module.judge(evidence, ())
    assert isinstance(verdict, Finding), verdict
    assert verdict.kind == module.KIND
    assert verdict.numbers
    assert verdict.next_check
    assert verdict.fix
    return verdict


@pytest.mark.parametrize(
    ("module", "evidence", "words"),
    [
        (row_or_graph_stale, HIGH_ROWS, "rows 2 and up"),
        (row_or_graph_stale, LARGE_BATCHES, "batches of 4 up"),
        (row_or_graph_stale, GRAPHS, "captured graphs"),
        (prefix_draft_kv, CACHED_BAD, "a cached prefix"),
        (cliff, LENGTH_CLIFF, "contexts of 256 and longer"),
        (context_decay, LENGTH_DECAY, "the longer the context"),
        (draft_kv_stale, AFTER_FULL, "after all was accepted"),
        (draft_kv_stale, GENERATED, "verify steps since the prompt"),
    ],
)
def test_each_is_named_where_it_shows_and_only_it(module: ModuleType, evidence: Evidence, words: str) -> None:
    finding = named(module, evidence)
    assert words in finding.sentence
    assert finding.confidence == SUSPECTED
    for other in ALL:
        if other is not module:
            assert not isinstance(other.judge(evidence, ()), Finding), other.KIND
    assert diagnose(evidence).findings[0].kind == module.KIND


@pytest.mark.parametrize("module", ALL)
@pytest.mark.parametrize("evidence", [HEALTHY, SEED_FAULT], ids=["healthy", "bad everywhere"])
def test_none_speaks_without_slices_that_differ(module: ModuleType, evidence: Evidence) -> None:
    assert not isinstance(module.judge(evidence, ()), Finding)


ALIKE: tuple[tuple[str, tuple[Row, ...]], ...] = (
    (ROW, (("0", 900, 640), ("1", 900, 600), ("2-3", 900, 630))),
    (BATCH, (("1", 900, 640), ("2-3", 900, 500), ("4-7", 900, 480))),
    (MODE, (("eager", 900, 500), ("graph", 900, 640))),
    (CACHED, (("miss", 1500, 1100), ("hit", 1500, 560))),
    (CONTEXT, (("64-127", 900, 640), ("128-255", 900, 420), ("256-511", 900, 330))),
)


@pytest.mark.parametrize(("dimension", "rows"), ALIKE)
def test_differences_that_workloads_make_are_no_fault(dimension: str, rows: tuple[Row, ...]) -> None:
    """The harder kinds of prompts have about half of the acceptance of the easier (0.36 and 0.74)."""
    found = sliced(dimension, *rows)
    assert not [one for one in diagnose(found).findings if one.fault_class]


@pytest.mark.parametrize("evidence", [CACHED_BAD, LENGTH_CLIFF, LENGTH_DECAY, LARGE_BATCHES])
def test_what_other_text_or_sampling_explains_is_not_told(evidence: Evidence) -> None:
    assert evidence.counts is not None
    first = slice_compare.first_token(evidence.counts)
    assert first is not None
    hard = int(first.of * 0.6)
    few = int(hard * 0.05)
    for dimension, easy_name, hard_name in ((COPY_LIKE, "yes", "no"), (TEMPERATURE, "0", "<=1")):
        rows = ((easy_name, int(first.of) - hard, int(first.hits) - few), (hard_name, hard, few))
        mixed = replace(evidence, slices=(*evidence.slices, *sliced(dimension, *rows).slices))
        for module in ALL:
            assert not isinstance(module.judge(mixed, ()), Finding), module.KIND
    assert "may be the traffic" in " ".join(
        v.reason for m in ALL if isinstance(v := m.judge(mixed, ()), Unknown)
    )


def test_high_rows_are_told_whatever_the_traffic_is() -> None:
    traffic = sliced(COPY_LIKE, ("yes", 1000, 700), ("no", 1700, 170)).slices
    assert named(row_or_graph_stale, replace(HIGH_ROWS, slices=(*HIGH_ROWS.slices, *traffic)))


def test_few_steps_of_few_requests_prove_nothing() -> None:
    few = sliced(ROW, ("0", 60, 42), ("1", 60, 5), users=2)
    assert row_or_graph_stale.judge(few, ()) is CLEAR
    assert isinstance(row_or_graph_stale.judge(sliced(ROW, ("0", 40, 30), ("1", 40, 2)), ()), Unknown)
    one_long_request = sliced(ROW, ("0", 500, 350), ("1", 500, 20), users=1)
    assert row_or_graph_stale.judge(one_long_request, ()) is CLEAR


def test_without_the_number_of_requests_nothing_is_told() -> None:
    uncounted = replace(HIGH_ROWS, window_requests={})
    verdict = row_or_graph_stale.judge(uncounted, ())
    assert isinstance(verdict, Unknown)
    assert "how many requests" in verdict.reason


def test_easy_text_after_a_full_accept_is_the_natural_order() -> None:
    natural = stepped(after=(("all", 800, 700), ("none", 800, 200)))
    assert draft_kv_stale.judge(natural, ()) is CLEAR


def test_what_grows_with_length_more_than_with_generation_is_left_to_positions() -> None:
    both = stepped(
        since_prefill=(("0", 900, 500), ("4-7", 900, 200)),
        length=(("64-127", 900, 690), ("512-1023", 900, 10)),
    )
    assert draft_kv_stale.grows(both) is None


def test_a_proven_fault_is_the_root_of_a_slice_that_is_bad() -> None:
    root = Finding("fc_bypassed", "F04", "critical", CERTAIN, "t", "s", ())
    verdict = row_or_graph_stale.judge(HIGH_ROWS, (root,))
    assert isinstance(verdict, Finding)
    assert verdict.root == "fc_bypassed"


def test_workload_is_a_sentence_and_no_finding() -> None:
    copying = sliced(COPY_LIKE, ("yes", 2000, 1800), ("no", 2000, 1100))
    assert "text that does not copy" in workload.sentence(copying)
    assert "no fault" in workload.sentence(copying)
    assert diagnose(copying).state.word == "healthy"
    assert "text that does not copy" in diagnose(copying).state.reason
    sampled = sliced(TEMPERATURE, ("0", 2000, 1500), ("<=1", 2000, 900))
    assert "sampling" in workload.sentence(sampled)
    longer = sliced(CONTEXT, ("64-127", 2000, 1500), ("128-255", 2000, 900))
    assert "contexts of 128 and longer" in workload.sentence(longer)


def test_workload_says_nothing_where_all_is_alike_or_something_is_found() -> None:
    assert workload.sentence(HEALTHY) == ""
    assert workload.sentence(sliced(COPY_LIKE, ("yes", 200, 150), ("no", 200, 140))) == ""
    copying = sliced(COPY_LIKE, ("yes", 2000, 1800), ("no", 2000, 1100))
    fault = Finding("fc_bypassed", "F04", "critical", CERTAIN, "t", "s", ())
    assert workload.sentence(copying, (fault,)) == ""
