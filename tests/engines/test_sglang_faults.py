"""What each fault of the fault table moves in what is recorded of a real engine, how far, and what not."""

from __future__ import annotations

import fault_table
import faulty_draft
import pytest
from fault_runs import AGAIN, OTHERS, OTHERS_AGAIN, Runs, prompts, run_all
from fault_table import FAULTS, LENGTH, MEASURES, ZERO
from faulty_draft import HEALTHY

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return run_all(tmp_path_factory.mktemp("faults"))


def test_no_fault_is_left_out() -> None:
    assert set(faulty_draft.FAULTS) == set(FAULTS)
    wanted = "a1 a2 b1 b2 b3 b4 c1 c2 c3 d1 d2 d3 e1 e2 e3 f1 f2 f3 f4 i i2 k1 k2 k3 k4 q r"
    assert set(FAULTS) == set(wanted.split())


def test_the_text_is_the_targets_whatever_the_draft_is_like(found: Runs) -> None:
    for name, outputs in found.outputs.items():
        for key, one in prompts(others=name in (OTHERS, OTHERS_AGAIN)).items():
            assert outputs[key] == one.continuation[: len(outputs[key])], (name, key)
    assert not [line for line in found.lines if "failed" in line], "the tracer met errors"


@pytest.mark.parametrize("name", FAULTS)
def test_acceptance_falls_as_in_the_fault_table(found: Runs, name: str) -> None:
    length = found.measured[name][LENGTH]
    assert abs(length - FAULTS[name].length) < 0.2, "the fault is not the one of the table"
    assert length < found.measured[HEALTHY][LENGTH] - 0.3


@pytest.mark.parametrize("name", FAULTS)
def test_what_moves(found: Runs, name: str) -> None:
    """Each as far as the table says, and at least three times as far as healthy runs are apart."""
    mine, healthy = found.measured[name], found.measured[HEALTHY]
    for moved in FAULTS[name].moved:
        value, usual = mine[moved.measure], healthy[moved.measure]
        low, high = moved.bounds(usual)
        assert low - 1e-9 <= value <= high + 1e-9, (moved.measure, value, low, high)
        for other in (OTHERS, AGAIN):
            without = found.measured[other][moved.measure]
            assert abs(without - usual) <= abs(value - usual) / 3, (moved.measure, other, without)


@pytest.mark.parametrize("name", FAULTS)
def test_what_stays(found: Runs, name: str) -> None:
    mine, healthy = found.measured[name], found.measured[HEALTHY]
    for measure in FAULTS[name].kept:
        if measure in fault_table.AGAINST:
            assert mine[measure] < ZERO, (measure, mine[measure])
        else:
            assert mine[measure] == pytest.approx(healthy[measure], rel=0.01), measure


def test_a_fault_that_is_taken_away_leaves_nothing(found: Runs) -> None:
    for key, one in found.runs[HEALTHY].requests.items():
        again = found.runs[AGAIN].requests[key]
        assert [step.accepted for step in again.counted] == [step.accepted for step in one.counted]
        assert [step.draft_tokens for step in again.counted] == [step.draft_tokens for step in one.counted]
    for measure in fault_table.AGAINST - {fault_table.FED_SHIFTED}:
        assert found.measured[AGAIN][measure] < ZERO, measure
        assert found.measured[OTHERS][measure] < ZERO, measure


def test_faults_that_look_alike_are_told_apart(found: Runs) -> None:
    """Each fault has a measure that lies elsewhere than with any other fault of another letter."""
    for name, fault in FAULTS.items():
        rivals = [other for other in FAULTS if other[0] != name[0]]
        apart = {rival: _apart(found, name, rival, fault) for rival in rivals}
        assert all(apart.values()), (name, [rival for rival, is_apart in apart.items() if not is_apart])


def _apart(found: Runs, name: str, rival: str, fault: fault_table.Fault) -> bool:
    """Whether what one of them must move, or keep, says which it is; what is not there says nothing."""
    mine, its, healthy = (found.measured[one] for one in (name, rival, HEALTHY))
    for moved in fault.moved:
        low, high = moved.bounds(healthy[moved.measure])
        if its[moved.measure] < low or its[moved.measure] > high:
            return True
    return any(abs(its[kept] - mine[kept]) > max(ZERO, 0.01 * abs(mine[kept])) for kept in fault.kept)


def test_every_measure_is_used(found: Runs) -> None:
    used = {moved.measure for fault in FAULTS.values() for moved in fault.moved}
    used |= {measure for fault in FAULTS.values() for measure in fault.kept}
    assert used | {LENGTH} == set(MEASURES)
