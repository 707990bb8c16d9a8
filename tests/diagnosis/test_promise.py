"""What is served held against what was promised: odds are bounds, and words say them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from evidence_literals import HEALTHY, counts
from specscope.rollup import Counts
from specscope_server.diagnosis import (
    Evidence,
    expectation,
    promise,
    sprt,
    statistics,
    too_good,
    zero_acceptance,
)
from specscope_server.diagnosis.engine_evidence import Expectation, Slice
from specscope_server.diagnosis.model import Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown

PROMISED = (0.745, 0.7, 0.65, 0.6)


def chain(chances: Sequence[float], steps: int, seed: int = 0) -> tuple[tuple[int, int], ...]:
    """[drafted, accepted] by position of a chain with such conditional chances."""
    rng = random.Random(seed)
    accepted = [0] * len(chances)
    for _ in range(steps):
        for position, p in enumerate(chances):
            if rng.random() >= p:
                break
            accepted[position] += 1
    return tuple((steps, n) for n in accepted)


def promised(positions: tuple[tuple[int, int], ...], one: Expectation | None = None) -> Evidence:
    given = one or Expectation("declared", PROMISED, who="ann")
    steps, accepted = positions[0][0], sum(n for _, n in positions)
    served = counts(steps, accepted, steps - positions[0][1], len(positions))
    return replace(HEALTHY, positions=positions, expectation=given, counts=served)


class TestOdds:
    @pytest.mark.parametrize(("n", "p"), [(20, 0.7), (100, 0.745), (400, 0.3)])
    def test_they_bound_the_binomial_tail(self, n: int, p: float) -> None:
        tail = 0.0
        for k in range(int(n * p)):
            tail += math.comb(n, k) * p**k * (1 - p) ** (n - k)
            (place,) = promise.hold([(n, k)], [p], 1).places  # type: ignore[union-attr]
            assert place.below and tail <= math.exp(place.log_odds) * (1 + 1e-9)

    def test_conditional_acceptance_is_of_those_that_came_so_far(self) -> None:
        held = promise.hold([(100, 80), (100, 40), (100, 10)], [0.8, 0.5, 0.25, 0.1], 1)
        assert held is not None
        assert [round(place.served, 3) for place in held.places] == [0.8, 0.5, 0.25]
        assert held.length == pytest.approx(2.3)
        assert held.promised == pytest.approx(1 + 0.8 + 0.4 + 0.1)
        assert held.lost == pytest.approx(0.0)

    def test_steps_of_one_request_count_less(self) -> None:
        apart, together = (promise.hold([(1000, 600)], [0.7], m) for m in (1, 100))
        assert apart is not None and together is not None
        ratio = apart.places[0].log_odds / together.places[0].log_odds
        assert ratio == pytest.approx(1 + 99 * statistics.ALIKE)

    def test_nothing_drafted_is_not_zero(self) -> None:
        assert promise.hold([], PROMISED, 1) is None
        assert promise.hold([(0, 0)], PROMISED, 1) is None

    @pytest.mark.parametrize(
        ("odds", "words"),
        [
            (math.log(0.5), "about 50%"),
            (math.log(1 / 300), "about 1 in 300"),
            (math.log(1 / 123_456), "about 1 in 120,000"),
            (-math.log(2e6), "less than 1 in a million"),
            (-300.0, "less than 1 in a quadrillion"),
        ],
    )
    def test_they_are_said_in_plain_words(self, odds: float, words: str) -> None:
        assert promise.odds_words(odds) == words


class TestExpectation:
    def test_nothing_promised_nothing_broken(self) -> None:
        assert isinstance(told := expectation.judge(HEALTHY, ()), Unknown)
        assert "nothing was promised" in told.reason

    @pytest.mark.parametrize("seed", range(20))
    def test_what_is_as_good_as_promised_breaks_nothing(self, seed: int) -> None:
        assert expectation.judge(promised(chain(PROMISED, 3000, seed)), ()) is CLEAR

    def test_a_little_less_is_not_told_however_sure(self) -> None:
        assert expectation.judge(promised(chain((0.72, 0.68, 0.62, 0.58), 200_000)), ()) is CLEAR

    def test_clearly_less_says_the_odds_and_names_no_cause(self) -> None:
        found = expectation.judge(promised(chain((0.4, 0.5, 0.5, 0.5), 2000)), ())
        assert isinstance(found, Finding)
        assert (found.kind, found.confidence, found.fault_class) == ("expectation", "observation", "")
        assert "declared by ann" in found.sentence and "names no cause" in found.sentence
        assert "less than 1 in a" in found.sentence and "position 1" in found.sentence

    def test_few_steps_prove_nothing(self) -> None:
        assert expectation.judge(promised(chain((0.4, 0.5, 0.5, 0.5), 60)), ()) is CLEAR

    def test_a_floor_holds_whatever_was_promised(self) -> None:
        low = Expectation("learned", (0.4, 0.4), steps=900, floor=2.0)
        served = chain((0.4, 0.4), 1000)
        found = expectation.judge(promised(served, low), ())
        assert isinstance(found, Finding) and found.title == "Acceptance is below its floor"
        assert "2.00" in found.sentence
        assert expectation.judge(promised(chain((0.4, 0.4), 100), low), ()) is CLEAR

    def test_a_workload_is_held_against_its_own_slice(self) -> None:
        one = Expectation("declared", PROMISED, workload="context=64-127")
        bad = chain((0.2, 0.2, 0.2, 0.2), 2000)
        slices = (Slice("context", "64-127", counts(2000, 500, 1600), bad),)
        evidence = replace(HEALTHY, workload_expectations=(one,), slices=slices)
        found = expectation.judge(evidence, ())
        assert isinstance(found, Finding) and "for context=64-127" in found.sentence
        elsewhere = replace(evidence, slices=(replace(slices[0], value="8-15"),))
        assert isinstance(expectation.judge(elsewhere, ()), Unknown)

    def test_a_slice_that_is_not_counted_by_position_is_held_at_the_first(self) -> None:
        one = Expectation("declared", PROMISED, workload="temperature=0")
        evidence = replace(
            HEALTHY,
            workload_expectations=(one,),
            slices=(Slice("temperature", "0", counts(2000, 500, 1600)),),
        )
        found = expectation.judge(evidence, ())
        assert isinstance(found, Finding) and "position 1: 20.0% of 2000" in found.sentence

    def test_a_certain_cause_is_its_root(self) -> None:
        cause = Finding("fc_bypassed", "F04", "critical", "certain", "Fc bypassed", "", ())
        found = expectation.judge(promised(chain((0.1,) * 4, 2000)), (cause,))
        assert isinstance(found, Finding) and found.root == "fc_bypassed"


class TestTooGood:
    def slice_of(self, accepted: int, value: str = "no", steps: int = 400) -> Evidence:
        one = Slice("copy_like", value, Counts(steps, 4 * steps, 4 * steps, accepted, steps, 0, 0, 0))
        return replace(HEALTHY, slices=(one,))

    def test_practically_all_of_what_copies_nothing(self) -> None:
        found = too_good.judge(self.slice_of(1590), ())
        assert isinstance(found, Finding)
        assert (found.fault_class, found.confidence) == ("F22", "suspected")

    def test_a_very_good_draft_is_not_suspected(self) -> None:
        assert too_good.judge(self.slice_of(1500), ()) is CLEAR

    def test_copied_text_is_rightly_accepted_and_few_steps_say_nothing(self) -> None:
        assert isinstance(too_good.judge(self.slice_of(1600, "yes"), ()), Unknown)
        assert isinstance(too_good.judge(self.slice_of(400, steps=100), ()), Unknown)
        few = replace(self.slice_of(1600), window_requests={"user": 2})
        assert isinstance(too_good.judge(few, ()), Unknown)

    def test_the_rule_that_sees_verification_goes_before(self) -> None:
        named = Finding("verify", "F22", "critical", "certain", "", "", ())
        assert too_good.judge(self.slice_of(1600), (named,)) is CLEAR


class TestOneRequest:
    def test_many_zeros_decide_and_few_do_not(self) -> None:
        for steps, decision in ((110, sprt.NO_BENEFIT), (60, sprt.UNDECIDED)):
            test = zero_acceptance.of_request(steps, steps)
            assert test is not None and test.decision == decision
        assert zero_acceptance.of_request(0, 0) is None
        assert zero_acceptance.of_request(3, 4) is None

    def test_false_alarms_over_many_requests_stay_below_the_bound(self) -> None:
        """A draft at the least benefit, looked at after each step: none of 3000 requests is accused."""
        rng = random.Random(7)
        for _ in range(3000):
            zero = 0
            for steps in range(1, 200):
                zero += rng.random() >= sprt.P0
                test = zero_acceptance.of_request(steps, zero)
                assert test is not None and test.decision != sprt.NO_BENEFIT

    def test_it_is_said_in_words(self) -> None:
        for steps, zero, words in ((200, 200, "nothing"), (40, 4, "helped"), (5, 5, "too short")):
            test = zero_acceptance.of_request(steps, zero)
            assert test is not None and words in zero_acceptance.request_words(test)
