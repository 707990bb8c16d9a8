"""What is no fault and looks like one: each has a word or a sentence of its own, and nothing is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_literals import CONFIG, HEALTHY, NOW, counts, evidence, ledger, path, with_path
from specscope import convention as c
from specscope.rollup import BATCH, Counts
from specscope_server.diagnosis import Evidence, detail, diagnose, not_drafting
from specscope_server.diagnosis.engine_evidence import Slice
from specscope_server.diagnosis.registry import RULES

IDLE = replace(HEALTHY, window=(), counts=None, extends=(), window_requests={})
DEFAULT_TABLE = {"1": [1, 3, 5, 7], "8": [0, 1, 3], "32": [0, 1], "64": [0]}
"""Of SGLang 0.5.23 (``adaptive_spec_params.DEFAULT_ADAPTIVE_CONFIG``)."""


def served(table: dict[str, Any] | None, *batches: tuple[str, int, int], drafted: int = 0) -> Evidence:
    """An engine with (slice, steps, of these undrafted); ``drafted`` passes had to propose, and did."""
    steps, undrafted = sum(n for _, n, _ in batches), sum(n for _, _, n in batches)
    config = CONFIG if table is None else {**CONFIG, "speculative": {"num_steps": 4, "steps_by_batch": table}}
    lines = {
        **path(drafted, 32),
        (c.TARGET_VERIFY, ""): (steps, steps),
        (c.ENGINE_COMMIT, ""): (steps, steps),
    }
    summed = counts(steps, 2 * drafted, drafted // 4, undrafted=undrafted)
    slices = tuple(Slice(BATCH, name, counts(n, 0, 0, undrafted=none)) for name, n, none in batches)
    return replace(evidence(ledger(lines), summed, config=config), slices=slices)


LARGE = served(DEFAULT_TABLE, ("64-127", 300, 300), ("1", 4, 0), drafted=4)

CASES: dict[str, tuple[Evidence, str, str]] = {
    "idle": (IDLE, "idle", "no request arrived in the last 5 minutes"),
    "health checks only": (
        replace(IDLE, window_requests={c.KIND_HEALTH_CHECK: 9}, window=ledger(path(0, 9))),
        "health checks only",
        "only 9 health checks: they say nothing",
    ),
    "warm-up": (
        replace(IDLE, window_requests={c.KIND_WARMUP: 1}, requests={c.KIND_WARMUP: 1}),
        "health checks only",
        "only 1 warm-up: they say nothing",
    ),
    "speculation off": (replace(IDLE, speculation=False), "speculation off", "set to serve without a draft"),
    "drafting disabled by batch size": (LARGE, "not drafting", "300 of 304 verify steps"),
    "detail too low": (replace(HEALTHY, detail=c.DETAIL_SUMMARY), "healthy", "Detail is too low to see"),
    "detail too low for a reference": (
        replace(HEALTHY, detail=c.DETAIL_STEPS, references=2),
        "healthy",
        "Detail is too low to hold this engine against a reference, of which the workspace has 2",
    ),
    "tracer absent": (replace(HEALTHY, last_received=None), "tracer silent", "was never heard"),
    "tracer absent from its places": (
        evidence(ledger(path(400, 32), armed=False), None), "not observable", "hooks are not installed"
    ),
    "tracer dropping": (
        replace(HEALTHY, counts=counts(3, 1, 2), dropped={"queue_full": 800}), "not observable", "dropped 800"
    ),
    "tracer silent": (replace(HEALTHY, last_received=NOW - 40), "tracer silent", "no end was told"),
    "shut down": (replace(HEALTHY, ended=NOW - 40), "ended", "was shut down in order"),
    "no speculative request": (
        replace(HEALTHY, counts=None, window=ledger(path(0, 9)), since_start=ledger(path(0, 9))),
        "too little data",
        "No speculative request arrived",
    ),
    "too little data": (replace(HEALTHY, counts=counts(5, 1, 4)), "too little data", "not enough to tell"),
    "starting": (
        replace(IDLE, speculation=None, since_start=(), requests={}), "starting", "not told its configuration"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_has_its_word_or_sentence_and_nothing_is_found(case: str) -> None:
    given, word, part = CASES[case]
    said = diagnose(given)
    assert (said.state.word, said.findings) == (word, ())
    assert part in said.state.reason


def test_no_two_of_them_read_alike() -> None:
    told = {diagnose(given).state for given, _, _ in CASES.values()}
    assert len(told) == len(CASES)


class TestNotDrafting:
    @pytest.mark.parametrize(
        ("table", "words"),
        [
            (DEFAULT_TABLE, "may come down to none from 8 requests at once on and has none from 64 on"),
            ({"1": [4], "16": [0]}, "has none from 16 requests at once on"),
        ],
    )
    def test_the_table_says_from_which_batch_on(self, table: dict[str, Any], words: str) -> None:
        told = not_drafting.of(served(table, ("64-127", 300, 300)))
        assert told is not None and words in told.why

    def test_beside_a_benefit_it_is_a_sentence(self) -> None:
        said = diagnose(served({"1": [4], "8": [0]}, ("1", 400, 0), ("8-15", 100, 100), drafted=400))
        assert (said.state.word, said.findings) == ("healthy", ())
        assert "100 of 500 verify steps in the last 5 minutes drafted nothing because" in said.state.reason

    def test_a_few_such_steps_are_not_worth_a_sentence(self) -> None:
        said = diagnose(served({"1": [4], "8": [0]}, ("1", 400, 0), ("8-15", 3, 3), drafted=400))
        assert (said.state.word, "drafted nothing" in said.state.reason) == ("healthy", False)

    def test_without_a_table_other_batches_must_draft_and_the_ledger_expect_less(self) -> None:
        told = not_drafting.of(served(None, ("1", 100, 0), ("8-15", 300, 300), drafted=100))
        assert told is not None
        assert "batches of 8-15 requests it asked its draft for nothing, at batches of 1 it" in told.why
        assert not_drafting.of(served(None, ("8-15", 300, 300))) is None
        expected = served(None, ("1", 100, 0), ("8-15", 300, 300), drafted=400)
        assert not_drafting.of(expected) is None, "a draft that was due and did not come is a gap"

    @pytest.mark.parametrize(
        "batches", [(("1", 300, 300),), (("1", 10, 10), ("64-127", 300, 300)), (("4-7", 9, 9), ("1", 9, 0))]
    )
    def test_batches_that_the_table_lets_draft_are_not_excused(
        self, batches: tuple[tuple[str, int, int], ...]
    ) -> None:
        assert not_drafting.of(served(DEFAULT_TABLE, *batches)) is None

    @pytest.mark.parametrize("odd", [None, 3, [], {"x": [0]}, {"1": 0}, {"1": ["0"]}, {"1": [True]}])
    def test_a_table_that_is_none_says_nothing(self, odd: object) -> None:
        config = {**CONFIG, "speculative": {"steps_by_batch": odd}}
        assert not_drafting.table(replace(HEALTHY, config=config)) == {}

    def test_at_every_batch_it_is_f01(self) -> None:
        wrong_way_round = {"1": [0], "64": [4]}
        (found,) = diagnose(served(wrong_way_round, ("1", 300, 300))).findings
        assert (found.kind, found.fault_class, found.confidence) == ("draft_silent", "F01", "certain")
        assert "0 from 1, 4 from 64 requests at once on" in found.sentence
        (found,) = diagnose(served(None, ("1", 300, 300))).findings
        assert (found.fault_class, found.confidence) == ("F01", "suspected")

    def test_an_engine_that_drafted_before_is_not_f01(self) -> None:
        now = served(None, ("64-127", 300, 300))
        assert diagnose(replace(now, since_start=HEALTHY.since_start)).findings == ()


class TestDetail:
    NOTHING = Counts(steps=0)

    def test_each_rule_that_needs_more_says_which_level(self) -> None:
        blind = replace(HEALTHY, detail=c.DETAIL_SUMMARY, extends=())
        unknown = diagnose(blind).unknown
        for rule in RULES:
            low = f"too low: this sees all that it judges by from SPECSCOPE_DETAIL={rule.detail} on"
            if rule.kind in unknown:
                assert (low in unknown[rule.kind]) == bool(rule.detail), rule.kind
        assert {"aux_layers", "carry_broken", "token_map", "shifted"} <= {
            k for k in unknown if "too low" in unknown[k]
        }

    @pytest.mark.parametrize("level", [c.DETAIL_FULL, "", "a newer one"])
    def test_at_a_level_that_suffices_or_is_not_known_nothing_is_said(self, level: str) -> None:
        given = replace(HEALTHY, detail=level, references=1)
        assert detail.sentence(given) == ""
        assert not any("too low" in why for why in diagnose(given).unknown.values())

    def test_without_a_reference_the_default_level_is_enough(self) -> None:
        assert detail.sentence(replace(HEALTHY, detail=c.DETAIL_STEPS)) == ""

    def test_a_broken_path_is_found_at_any_level(self) -> None:
        given = replace(with_path(HEALTHY, verify=(400, 0)), counts=None, detail=c.DETAIL_SUMMARY)
        assert diagnose(given).state.word == "faulty"
