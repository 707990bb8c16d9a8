"""Rules that hold an engine against a reference of the draft that it should serve, and what is near them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from evidence_literals import counts, evidence, ledger, path
from specscope import convention as c
from specscope import hidden
from specscope_server.diagnosis import (
    aux_layers,
    carry_broken,
    draft_differs,
    draft_silent,
    embedding_wrong,
    fc_bypassed,
    fed_states_differ,
    head_replaced,
    position_config,
    shifted,
    token_map,
    tree_mask,
    vocabulary,
    weights_missing,
)
from specscope_server.diagnosis.engine_evidence import DraftState, ReferenceEvidence, ReferenceWeight
from specscope_server.diagnosis.hidden_evidence import HiddenEvidence
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Evidence, Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown

GOOD = counts(steps=600, accepted=1200, zero_steps=180)
BAD = counts(steps=600, accepted=3, zero_steps=597)


def weight(name: str, *shape: int, hashed: str = "", mean: float = 0.0, std: float = 0.2) -> ReferenceWeight:
    return ReferenceWeight((name,), shape, (hashed or f"hash of {name}",), mean, std, 1.5)


NORM = weight("norm.weight", 128, mean=1.6)
MLP = weight("mlp.weight", 512, 128)
FC = weight("fc.weight", 128, 384)
WEIGHTS = (NORM, MLP, FC)


def tensor(one: ReferenceWeight, **changes: Any) -> dict[str, Any]:
    told = {"mean": one.mean, "std": one.std, "max_abs": one.max_abs, "hash": one.hashes[0]}
    return {
        "name": f"model.{one.source[0]}",
        "from": list(one.source),
        "shape": list(one.shape),
        "status": "loaded",
        **told,
        **changes,
    }


def served(*tensors: dict[str, Any], seen: Any = GOOD, odd: Sequence[dict[str, Any]] = ()) -> Evidence:
    config = {
        "weights": {"drafts": [{"observed": True, "tensors": list(tensors), "oddities": list(odd)}]},
        "fc": {"in": 384},
        "capture": {"layer_ids": [2, 4, 5]},
        "speculative": {"num_steps": 4, "topk": 1},
        "vocab_size": 1024,
        "d2t": {"present": True, "draft_vocab": 640},
    }
    whole = evidence(ledger(path(600, 60)), seen, users=60)
    return replace(whole, config=config, reference_weights=WEIGHTS)


def named(rule: Callable[..., object], given: Evidence) -> Finding:
    told = rule(given, ())
    assert isinstance(told, Finding), told
    return told


def test_the_very_weights_are_clear_and_none_told_is_unknown() -> None:
    same = served(*map(tensor, WEIGHTS))
    assert draft_differs.judge(same, ()) is CLEAR
    assert isinstance(draft_differs.judge(replace(same, reference_weights=()), ()), Unknown)
    assert isinstance(draft_differs.judge(served(), ()), Unknown)


@pytest.mark.parametrize(
    ("changed", "of", "fault", "confidence"),
    [
        ({"mean": 0.6, "hash": "x"}, NORM, "F06", CERTAIN),
        ({"hash": "x"}, MLP, "F12", CERTAIN),
        ({"max_abs": 1.1, "hash": "x"}, FC, "F12", SUSPECTED),
    ],
)
def test_what_a_conversion_did_is_named(
    changed: dict[str, Any], of: ReferenceWeight, fault: str, confidence: str
) -> None:
    tensors = [tensor(one, **(changed if one is of else {})) for one in WEIGHTS]
    told = named(draft_differs.judge, served(*tensors))
    assert (told.fault_class, told.confidence) == (fault, confidence)
    assert of.source[0] in told.numbers[0].name


OTHERS = [tensor(one, hash="x", std=0.31, mean=one.mean + 0.3) for one in WEIGHTS]


def test_another_training_is_named_where_nothing_is_accepted() -> None:
    told = named(draft_differs.judge, served(*OTHERS, seen=BAD))
    assert (told.fault_class, told.confidence) == ("F21", CERTAIN)
    assert isinstance(draft_differs.judge(served(*OTHERS), ()), Unknown), "it serves: the reference is old"


@pytest.mark.parametrize("seen", [GOOD, BAD])
def test_a_few_tensors_of_other_values_in_this_very_draft_are_not_its_own(seen: Any) -> None:
    told = named(
        draft_differs.judge, served(tensor(NORM), tensor(MLP), tensor(FC, hash="x", std=0.4), seen=seen)
    )
    assert (told.fault_class, told.confidence) == ("F08", SUSPECTED)
    assert "fc.weight" in told.sentence


def test_what_goes_with_an_embedding_that_was_replaced_is_no_damage() -> None:
    put = odd("replaced by the target's", "model.embed_tokens.weight")
    given = served(tensor(NORM), tensor(MLP), tensor(FC, hash="x", std=0.4), seen=BAD, odd=[put])
    assert draft_differs.judge(given, ()) is CLEAR
    assert named(embedding_wrong.judge, given).fault_class == "F09"


def test_another_embedding_alone_is_the_embeddings() -> None:
    table = weight("embed_tokens.weight", 1024, 128)
    other = served(*map(tensor, WEIGHTS), tensor(table, hash="x", std=0.4), seen=BAD)
    assert draft_differs.judge(replace(other, reference_weights=(*WEIGHTS, table)), ()) is CLEAR


@pytest.mark.parametrize("field", ["from", "shape", "hash", "mean", "std", "max_abs", "name", "status"])
@pytest.mark.parametrize("value", [5, None, {"a": 1}, [5, None], "x", float("nan")])
def test_nonsense_of_an_engine_is_no_difference(field: str, value: object) -> None:
    given = served(tensor(NORM), tensor(MLP, **{field: value}), tensor(FC))
    draft_differs.judge(given, ())
    carry_broken.judge(given, ())


def test_a_part_of_one_rank_is_not_compared() -> None:
    assert isinstance(draft_differs.judge(served(tensor(MLP, shape=[256, 128], hash="x")), ()), Unknown)


def reference(
    place: str, error: float, scale: float, after: str = "", shift: float = 1.3, slots: int = 3
) -> list[ReferenceEvidence]:
    return [
        ReferenceEvidence(place, slot, 200, error, scale, None, {-1: shift, 1: 1.4}, after=after)
        for slot in range(slots)
    ]


def test_a_small_part_of_every_state_is_one_without_its_residual() -> None:
    given = replace(served(*map(tensor, WEIGHTS)), reference=tuple(reference(hidden.FED, 0.93, 0.2)))
    assert named(fed_states_differ.judge, given).fault_class == "F06"
    assert aux_layers.judge(given, ()) is CLEAR
    other = replace(given, reference=tuple(reference(hidden.FED, 0.6, 0.75)))
    assert named(aux_layers.judge, other).fault_class == "F05"


def tree(prefill: float, verify: float, topk: int = 4) -> Evidence:
    given = served(*map(tensor, WEIGHTS))
    told = [*reference(hidden.FED, prefill, 1, "prefill"), *reference(hidden.FED, verify, 1, "verify")]
    told += reference(hidden.FED, 0.16, 1.0)
    speculative = {**given.config["speculative"], "topk": topk}
    return replace(given, config={**given.config, "speculative": speculative}, reference=tuple(told))


def test_a_tree_that_is_wrong_after_verify_steps_alone_has_a_wrong_mask() -> None:
    told = named(tree_mask.judge, tree(0.005, 0.12))
    assert (told.fault_class, told.confidence) == ("F17", CERTAIN)
    assert aux_layers.judge(tree(0.005, 0.12), (told,)) is CLEAR


@pytest.mark.parametrize("given", [tree(0.3, 0.3), tree(0.005, 0.006), tree(0.005, 0.12, topk=1)])
def test_other_layers_a_sound_tree_and_a_chain_have_none(given: Evidence) -> None:
    assert tree_mask.judge(given, ()) is CLEAR


def test_inputs_moved_in_prefills_alone_are_shifted_and_no_other_embedding() -> None:
    told = [
        *reference(hidden.EMBEDDING, 0.876, 1, slots=1, shift=1.02),
        *reference(hidden.EMBEDDING, 1.29, 1, "prefill", 0.35, 1),
        *reference(hidden.EMBEDDING, 0.004, 1, "verify", 1.32, 1),
    ]
    given = replace(served(*map(tensor, WEIGHTS)), reference=tuple(told))
    assert named(shifted.judge, given).fault_class == "F14"
    assert not isinstance(embedding_wrong.judge(given, ()), Finding)
    other = replace(given, reference=tuple(reference(hidden.EMBEDDING, 1.4, 1, slots=1, shift=1.4)))
    assert not isinstance(shifted.judge(other, ()), Finding)


def states(wrong: int, right: int = 0, off: float = 0.9) -> tuple[DraftState, ...]:
    errors = [off] * wrong + [0.02] * right
    return tuple(
        DraftState(f"u{n % 8}", str(n % 8), 20 + n, error, 0.9, "verify", "eager", 0, since_prefill=1)
        for n, error in enumerate(errors)
    )


INPUTS = [
    *reference(hidden.FED, 0.01, 1),
    *reference(hidden.FC_OUT, 0.01, 1, slots=1),
    *reference(hidden.EMBEDDING, 0.01, 1, slots=1),
]


def test_a_layer_that_is_wrong_at_every_token_with_the_right_weights_computes_otherwise() -> None:
    given = replace(served(*map(tensor, WEIGHTS)), reference=tuple(INPUTS), draft_states=states(64))
    told = named(carry_broken.judge, given)
    assert (told.fault_class, told.confidence) == ("F06", CERTAIN)
    some = replace(given, draft_states=states(60, right=4))
    assert not isinstance(carry_broken.judge(some, ()), Finding), "attention matters at some tokens only"
    others = replace(served(*OTHERS), reference=tuple(INPUTS), draft_states=states(64))
    assert not isinstance(carry_broken.judge(others, ()), Finding), "other weights explain it"
    *known, last = map(tensor, WEIGHTS)
    unknown = served(*known, {**last, "from": ["model.of.another"]})
    unknown = replace(unknown, reference=tuple(INPUTS), draft_states=states(64))
    assert not isinstance(carry_broken.judge(unknown, ()), Finding), "a tensor that was not compared may"


def look(place: str, after: str, zeros: float) -> HiddenEvidence:
    return HiddenEvidence(
        place=place,
        source=c.TARGET_FED,
        draft_step=0,
        slot=0,
        after=after,
        mode=c.EAGER,
        looks=60,
        rows=200,
        mean=0.0,
        rms=1.0,
        max_abs=4.0,
        levelled=60,
        geometric_rms=1.0,
        deviation=0.1,
        nonfinite_per_row=0.0,
        zero_share=zeros,
        equal_share=0.0,
    )


@pytest.mark.parametrize(("zeros", "fault"), [(1.0, "F04"), (0.4, "F07")])
def test_rows_that_are_never_filled_are_no_rows_that_were_lost(zeros: float, fault: str) -> None:
    given = served(*map(tensor, WEIGHTS))
    given = replace(given, hidden=(look(hidden.FED, "prefill", 0.0), look(hidden.FED, "verify", zeros)))
    told = fc_bypassed.judge(given, ())
    if fault == "F04":
        assert isinstance(told, Finding)
        assert told.confidence == CERTAIN
    else:
        assert told is CLEAR
        assert named(fed_states_differ.judge, given).fault_class == "F07"


def test_drafts_that_reach_no_step_are_never_verified() -> None:
    dropped = counts(steps=600, accepted=0, zero_steps=0, depth=0, undrafted=600)
    told = named(draft_silent.judge, served(*map(tensor, WEIGHTS), seen=dropped))
    assert (told.fault_class, told.confidence) == ("F03", CERTAIN)


def odd(kind: str, name: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "level": "check", "text": kind}


def test_an_optional_norm_without_weights_is_no_loss_but_a_norm_too_many() -> None:
    name = "model.input_norm.weight"
    ones = {"name": name, "mean": 1.0, "std": 0.0, "status": "missing"}
    given = served(ones, seen=BAD, odd=[odd("missing", name)])
    assert weights_missing.judge(given, ()) is CLEAR
    told = named(carry_broken.judge, given)
    assert (told.fault_class, told.confidence) == ("F06", CERTAIN)
    assert "input_norm" in told.sentence
    renamed = served(ones, seen=BAD, odd=[odd("missing", name), odd("unused", "in_norm.weight")])
    assert named(weights_missing.judge, renamed).fault_class == "F08"


def test_a_head_that_was_tied_away_is_replaced_and_not_missing() -> None:
    given = served(tensor(FC), seen=BAD, odd=[odd("unused", "lm_head.weight")])
    assert not isinstance(weights_missing.judge(given, ()), Finding)
    told = named(head_replaced.judge, given)
    assert (told.fault_class, told.confidence) == ("F09", CERTAIN)


@pytest.mark.parametrize("changed", [{"max_abs": 1.1}, {"std": 0.4}])
def test_a_head_alone_of_other_values_is_another_head(changed: dict[str, Any]) -> None:
    head = weight("lm_head.weight", 640, 128)
    other = (*map(tensor, WEIGHTS), tensor(head, hash="x", **changed))
    whole = replace(served(*other, seen=BAD), reference_weights=(*WEIGHTS, head))
    assert not isinstance(draft_differs.judge(whole, ()), Finding)
    told = named(head_replaced.judge, whole)
    assert (told.fault_class, told.confidence) == ("F09", SUSPECTED)
    good = replace(served(*other, seen=GOOD), reference_weights=(*WEIGHTS, head))
    assert head_replaced.judge(good, ()) is CLEAR
    # With the very head nothing is said of it, and where more differs it is not the head's doing.
    same = replace(served(*map(tensor, (*WEIGHTS, head)), seen=BAD), reference_weights=(*WEIGHTS, head))
    more = (tensor(NORM), tensor(MLP, hash="x", max_abs=1.1), tensor(FC), other[-1])
    many = replace(served(*more, seen=BAD), reference_weights=(*WEIGHTS, head))
    assert not any(isinstance(head_replaced.judge(one, ()), Finding) for one in (same, many))


@pytest.mark.parametrize("rows", [1024, 640])
def test_the_whole_head_of_the_target_needs_no_map(rows: int) -> None:
    """SGLang puts the target's head, and no map, where it takes a draft to have no vocabulary of its own."""
    put = odd("replaced by the target's", "lm_head.weight")
    head = tensor(weight("lm_head.weight", rows, 128), name="lm_head.weight", status="shared")
    given = served(*map(tensor, WEIGHTS), head, seen=BAD, odd=[put])
    given = replace(given, config={**given.config, "d2t": {"present": False, "draft_vocab": 640}})
    assert isinstance(token_map.judge(given, ()), Finding) == (rows == 640)
    assert named(head_replaced.judge, given).fault_class == "F09"


def test_a_map_of_another_vocabulary_is_the_vocabularys() -> None:
    given = served(tensor(FC), seen=BAD)
    sizes = {"field": "vocab_size", "level": "check", "draft": 1027, "target": 1024, "why": "x"}
    draft: dict[str, Any] = {"observed": True, "map": {"outside_t2d": 3}}
    config: dict[str, Any] = {**given.config, "differences": [sizes], "weights": {"drafts": [draft]}}
    told = named(vocabulary.judge, replace(given, config=config))
    assert (told.fault_class, told.confidence) == ("F11", CERTAIN)


def test_positions_that_differ_are_proven_by_the_drafts_own_states() -> None:
    line = {"field": "rope_theta", "level": "check", "draft": 500000.0, "target": 10000.0, "checkpoint": None}
    given = served(*map(tensor, WEIGHTS))
    config = {**given.config, "differences": [line]}
    wrong = replace(given, config=config, reference=tuple(INPUTS), draft_states=states(20, right=44))
    told = named(position_config.judge, wrong)
    assert (told.fault_class, told.confidence) == ("F13", CERTAIN)
    # Another base moves many states a little on short contexts.
    assert (
        named(position_config.judge, replace(wrong, draft_states=states(16, 44, off=0.2))).confidence
        == CERTAIN
    )
    for odd_ones in (states(0, right=64), states(4, right=60, off=0.2), states(40, right=20, off=0.12)):
        sound = replace(wrong, draft_states=odd_ones)
        assert isinstance(position_config.judge(sound, ()), Unknown)
    alike = replace(wrong, config={**given.config, "differences": []})
    assert position_config.judge(alike, ()) is CLEAR
