"""F13 by configuration: certain where a setting was lost, suspected where a difference shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from slice_literals import Row, sliced
from specscope import model_differences
from specscope.rollup import CONTEXT, COPY_LIKE
from specscope_server.diagnosis import Evidence, context_decay, diagnose, position_config
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from weight_literals import config, served

DECAY: tuple[Row, ...] = (
    ("64-127", 1500, 1200),
    ("128-255", 1500, 900),
    ("256-511", 1500, 450),
    ("512-1023", 1500, 150),
    ("1024-2047", 1500, 30),
)
WELL: tuple[Row, ...] = (("yes", 800, 700), ("no", 1600, 1100))
BLIND: tuple[Row, ...] = (("yes", 800, 60), ("no", 1600, 1000))


def line(field: str, checkpoint: Any, draft: Any, target: Any, level: str = "check") -> dict[str, Any]:
    return {
        "field": field,
        "checkpoint": checkpoint,
        "draft": draft,
        "target": target,
        "level": level,
        "why": "",
    }


LOST = line("rope_theta", 500_000.0, 10_000.0, 500_000.0)
PAIRED = line("rope_theta", 10_000.0, 10_000.0, 500_000.0)


def engine(*lines: dict[str, Any], copies: tuple[Row, ...] = WELL) -> Evidence:
    return replace(sliced(COPY_LIKE, *copies), config=config(differences=list(lines)))


def found(evidence: Evidence) -> Finding:
    told = position_config.judge(evidence, ())
    assert isinstance(told, Finding), told
    return told


@pytest.mark.parametrize(
    "lost",
    [
        LOST,
        line("rope_scaling", {"type": "yarn", "factor": 8.0}, {"type": "default"}, {"type": "default"}),
        line("partial_rotary_factor", 0.5, 1.0, 1.0),
        line("max_positions", 8192, 2048, 131_072),
    ],
)
def test_a_setting_that_the_engine_lost_is_certain(lost: dict[str, Any]) -> None:
    told = found(engine(lost))
    assert (told.fault_class, told.confidence) == ("F13", CERTAIN)
    assert lost["field"] in told.sentence


def test_a_difference_to_the_target_is_suspected_where_copied_text_is_accepted_less() -> None:
    told = found(engine(PAIRED, copies=BLIND))
    assert (told.fault_class, told.confidence) == ("F13", SUSPECTED)
    assert "copies its context is accepted less" in told.sentence


def test_or_where_acceptance_decays_with_the_context() -> None:
    decays = replace(sliced(CONTEXT, *DECAY), config=config(differences=[PAIRED]))
    assert found(decays).confidence == SUSPECTED


def test_a_draft_that_was_trained_so_is_not_accused() -> None:
    assert isinstance(position_config.judge(engine(PAIRED), ()), Unknown)
    assert not diagnose(engine(PAIRED)).findings


def test_bad_copying_without_a_difference_is_none_of_it() -> None:
    assert position_config.judge(engine(copies=BLIND), ()) is CLEAR


def test_a_limit_below_what_is_served_and_notes_are_none() -> None:
    short = line("max_positions", 2048, 2048, 131_072)
    note = line("norm_eps", None, 1e-5, 1e-6, "note")
    assert position_config.judge(engine(short, note, copies=BLIND), ()) is CLEAR


def test_few_copies_prove_nothing() -> None:
    few = (("yes", 60, 20), ("no", 300, 200))
    assert isinstance(position_config.judge(engine(PAIRED, copies=few), ()), Unknown)


def test_the_curve_is_silent_where_the_configuration_speaks() -> None:
    decays = replace(sliced(CONTEXT, *DECAY), config=config(differences=[LOST]))
    assert context_decay.judge(decays, (found(decays),)) is CLEAR
    assert isinstance(context_decay.judge(replace(decays, config=config()), ()), Finding)


def test_untold_differences_are_unknown() -> None:
    untold = {name: value for name, value in config().items() if name != "differences"}
    assert isinstance(position_config.judge(served(told=untold), ()), Unknown)


def test_the_tracers_own_differences_are_read() -> None:
    stated = {"rope_theta": 500_000.0, "vocab_size": 1024}
    lost = model_differences.as_json(
        model_differences.differences(stated, {**stated, "rope_theta": 10_000.0}, stated)
    )
    assert found(engine(*lost)).confidence == CERTAIN
    other = model_differences.as_json(
        model_differences.differences(stated, stated, {**stated, "rope_theta": 1e6})
    )
    assert found(engine(*other, copies=BLIND)).confidence == SUSPECTED
    assert position_config.judge(engine(*model_differences.as_json([])), ()) is CLEAR
