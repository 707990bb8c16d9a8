"""The fault zoo: what it must hold, and a fast part of it on a real engine (``make faults`` is the whole)."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from cases import CONTROL, EXPORT, PATCH, START, Case, cases
from matrix import matrix
from zoo import Judgement, run

HOSTED = [f"F{number:02}" for number in range(1, 25) if number not in (20, 23)]
"""F20: no target that SGLang runs on a CPU beside EAGLE-3 has a recurrent state. F23 is no fault."""
TWICE = ("F04", "F05", "F06", "F08", "F10", "F14", "F16", "F22")


def named(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def test_every_hosted_class_is_there() -> None:
    served = Counter(case.fault_class for case in cases() if case.kind != CONTROL)
    assert sorted(served) == HOSTED
    blind = {case.fault_class for case in cases() if case.kind in (EXPORT, START, PATCH)}
    assert sorted(blind) == HOSTED
    assert [fault for fault in TWICE if served[fault] < 2] == []


def test_names_are_unique() -> None:
    names = Counter(case.name for case in cases())
    assert [name for name, count in names.items() if count > 1] == []


def test_seeds_ask_other_prompts() -> None:
    for case in cases():
        for load in case.loads.values():
            first, second = ([sorted(one.prompts(seed).values()) for one in load] for seed in (1, 2))
            assert first != second, case.name


def _judged(fault: str, named: str, requests: int = 3) -> Judgement:
    findings = ((("kind", named, "certain"),) if named else ()) + (("zero_acceptance", "", "observation"),)
    return Judgement(
        case="x",
        kind=PATCH if fault else CONTROL,
        fault_class=fault,
        pair="first",
        load="traffic",
        seed=1,
        state="",
        findings=findings,
        unknown=(),
        acceptance_length=None,
        steps=9,
        requests=requests,
        at="",
        judge_s=9,
        engine_uid="",
    )


def test_the_matrix_counts_what_was_named_on_top() -> None:
    told = [_judged("F04", "F04"), _judged("F04", ""), _judged("", ""), _judged("", "F09", 5)]
    assert [one.right for one in told] == [True, False, True, False]
    assert matrix(told) == [
        "| injected | F04 | F09 | none | right |",
        "|---|---|---|---|---|",
        "| F04 | 1 |  | 1 | 1 of 2 |",
        "| control |  | 1 | 1 | 1 of 2 |",
        "",
        "8 requests of controls, 5 of them in windows in which a fault was named.",
    ]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where references and stores of this module are kept."""
    return tmp_path_factory.mktemp("kept")


@pytest.mark.engine
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", ["one_layer_listed", "layers_of_a_deeper_target", "deep"])
def test_a_fast_part_of_the_zoo(name: str, kept: Path, tmp_path: Path) -> None:
    """The seed's fault by another mechanism, one that needs the reference, and a control beyond training."""
    told: dict[str, list[Judgement]] = defaultdict(list)
    for one in run([named(name)], "second", tmp_path, kept, range(4, 5)):
        told["right" if one.right else "wrong"].append(one)
    assert told["wrong"] == []
    assert len(told["right"]) == len(named(name).loads)
