"""F08, F09, F10, F11: weights, head, embedding, token map and vocabulary, each against its rivals."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from specscope import hidden, weight_report
from specscope import weights as w
from specscope.weight_values import Values
from specscope_server.diagnosis import (
    Evidence,
    diagnose,
    embedding_wrong,
    head_replaced,
    token_map,
    vocabulary,
    weights_missing,
    weights_not_finite,
)
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Finding
from specscope_server.diagnosis.step_evidence import Certainty, StepEvidence
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from state_literals import SOUND, look, refer
from weight_literals import CERTAIN_OF, MAP, certainty, config, draft, ids, odd, served

RULES = (weights_not_finite, weights_missing, token_map, vocabulary, head_replaced, embedding_wrong)
OURS = {rule.KIND for rule in RULES} | {"weights_changed", "position_config"}


def named(rule: ModuleType, evidence: Evidence, found: tuple[Finding, ...] = ()) -> Finding:
    told = rule.judge(evidence, found)
    assert isinstance(told, Finding), told
    assert told.kind == rule.KIND
    assert told.numbers
    assert told.next_check
    assert told.fix
    return told


def with_map(**changes: Any) -> dict[str, Any]:
    return config({**draft(), "map": {**MAP, **changes}})


def with_odd(*odds: dict[str, Any], **tensors: dict[str, Any]) -> dict[str, Any]:
    changes = {name.replace("__", "."): values for name, values in tensors.items()}
    return config(draft(*odds, change=changes))


# --- by what the draft does alone: every fault of the table with weights and map that look sound -----------


@pytest.mark.parametrize("fault", sorted(CERTAIN_OF))
def test_behaviour_accuses_the_map_the_head_and_nothing_else(fault: str) -> None:
    """Sure and always wrong is the map, unsure and always wrong the head: 40 faults, two of which are so."""
    said = {one.kind: one.confidence for one in diagnose(served(fault)).findings if one.kind in OURS}
    expected = {"b": {token_map.KIND: SUSPECTED}, "c": {head_replaced.KIND: SUSPECTED}}
    assert said == expected.get(fault[0], {})


@pytest.mark.parametrize("rule", RULES)
def test_a_healthy_engine_is_clear_and_an_untold_one_unknown(rule: ModuleType) -> None:
    assert rule.judge(served(), ()) is CLEAR
    bare = replace(served(told={}), hidden=(), steps=StepEvidence(), reference=(), counts=None)
    assert isinstance(rule.judge(bare, ()), Unknown)


@pytest.mark.parametrize("steps", [10, 63])
def test_few_steps_suspect_nobody(steps: int) -> None:
    for fault in ("b1", "c2"):
        few = served(fault)
        few = replace(few, steps=replace(few.steps, certainty=certainty(fault, steps)))
        assert not isinstance(token_map.judge(few, ()), Finding)
        assert not isinstance(head_replaced.judge(few, ()), Finding)


# --- weights_missing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["missing", "partly loaded", "all zero"])
def test_weights_that_are_not_there_are_certain(kind: str) -> None:
    told = named(weights_missing, served("s", told=with_odd(odd(kind, "model.midlayer.mlp.up_proj.weight"))))
    assert (told.fault_class, told.confidence, told.severity) == ("F08", CERTAIN, "critical")
    assert "midlayer.mlp.up_proj" in told.sentence


def test_a_missing_tensor_of_a_draft_that_serves_is_a_suspicion_unless_its_values_are_untrained() -> None:
    odds = odd("missing", "fc.weight")
    assert named(weights_missing, served(told=with_odd(odds))).confidence == SUSPECTED
    made = named(weights_missing, served(told=with_odd(odds, fc__weight={"std_to_init": 1.01})))
    assert (made.confidence, made.severity) == (CERTAIN, "warning")


def test_a_norm_of_ones_that_nothing_reached_is_certain() -> None:
    made = with_odd(odd("missing", "model.norm.weight"), model__norm__weight={"mean": 1.0, "std": 0.0})
    assert named(weights_missing, served("t", told=made)).confidence == CERTAIN


def test_scales_of_quantisation_may_come_from_nowhere() -> None:
    told = with_odd(odd("missing", "model.midlayer.self_attn.attn.k_scale"))
    assert weights_missing.judge(served(told=told), ()) is CLEAR


def test_dropped_names_are_named_beside_what_is_missing() -> None:
    told = named(
        weights_missing,
        served("i", told=with_odd(odd("missing", "fc.weight"), odd("unused", "fusion.weight"))),
    )
    assert "fusion.weight" in told.sentence


def test_untrained_looks_are_a_suspicion_only_where_nothing_is_accepted() -> None:
    told = with_odd(odd("as initialised", "fc.weight", "note"))
    assert weights_missing.judge(served(told=told), ()) is CLEAR
    assert named(weights_missing, served("s", told=told)).confidence == SUSPECTED


def test_a_uniform_answer_is_that_of_an_untrained_head() -> None:
    flat = (Certainty(0, 300, 0.003, 0.99 * math.log(640), 300, 0),)
    one = served("c2")
    one = replace(one, steps=replace(one.steps, certainty=flat))
    told = named(weights_missing, one)
    assert (told.confidence, told.title) == (SUSPECTED, "The draft answers as one without training")


def test_fc_that_gives_zeros() -> None:
    fc = look(hidden.FC_OUT, rms=0.0, zero_share=1.0)
    told = named(weights_missing, served("i2", hidden=(*SOUND[:6], fc)))
    assert (told.confidence, told.title) == (CERTAIN, "The draft's fc gives zeros")
    fed = tuple(replace(one, zero_share=1.0) for one in SOUND[:6])
    assert weights_missing.judge(served("i2", hidden=(*fed, fc)), ()) is CLEAR


def test_what_an_update_broke_is_a_consequence_of_it() -> None:
    root = replace(named(token_map, served("b1")), kind="weights_changed", confidence=CERTAIN)
    told = named(weights_missing, served("s", told=with_odd(odd("all zero", "fc.weight"))), (root,))
    assert told.root == "weights_changed"


# --- weights_not_finite ------------------------------------------------------------------------------------


def test_weights_that_are_no_numbers() -> None:
    told = named(weights_not_finite, served("s", told=with_odd(odd("not finite", "fc.weight"))))
    assert (told.fault_class, told.confidence) == ("F08", CERTAIN)
    assert weights_missing.judge(served("s"), (told,)) is CLEAR


@pytest.mark.parametrize(
    ("place", "words"),
    [(hidden.FED, "on the way"), (hidden.FC_OUT, "fc makes"), (hidden.CARRY, "own layers")],
)
def test_the_first_place_that_is_not_finite_is_named(place: str, words: str) -> None:
    seen = (look(place, nonfinite_per_row=3.0), look(hidden.CARRY, draft_step=1, nonfinite_per_row=128.0))
    assert words in named(weights_not_finite, served("s", hidden=seen)).sentence


# --- token_map ---------------------------------------------------------------------------------------------


def test_no_map_for_a_smaller_vocabulary() -> None:
    told = named(token_map, served("b3", told=config(d2t={"present": False, "draft_vocab": 640})))
    assert (told.fault_class, told.confidence, told.severity) == ("F10", CERTAIN, "critical")


def test_vocabularies_of_one_size_need_no_map() -> None:
    same = config({**draft(), "map": None}, d2t={"present": False, "draft_vocab": 1024})
    assert token_map.judge(served("b3", told=same), ()) is CLEAR


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 512},
        {"least": -3},
        {"largest": 1024},
        {"distinct": 148},
        {"as_checkpoint": False},
        {"outside_t2d": 500},
        {"in_use": False},
    ],
)
def test_what_the_map_holds_is_proof(changes: dict[str, Any]) -> None:
    assert named(token_map, served("b1", told=with_map(**changes))).confidence == CERTAIN


def test_a_map_whose_checkpoint_is_not_at_hand_is_not_accused() -> None:
    """An earlier tracer, or a checkpoint that is not on this disk."""
    untold = with_map(distinct=None, as_checkpoint=None, outside_t2d=None)
    assert token_map.judge(served(told=untold), ()) is CLEAR


@pytest.mark.parametrize(
    ("changes", "word"), [({"largest": 1023}, "does not give"), ({"smallest": 0}, "give")]
)
def test_ids_that_the_map_does_not_give(changes: dict[str, int], word: str) -> None:
    told = named(token_map, served("b2", ids=ids(**changes)))
    assert told.confidence == CERTAIN
    assert word in told.title


def test_ids_below_the_draft_vocabulary_and_even_ids() -> None:
    low = named(token_map, served("b3", ids=ids(largest=638)))
    assert (low.confidence, low.title) == (CERTAIN, "Draft ids are proposed as they are")
    even = named(token_map, served("b2", ids=ids(even_share=1.0)))
    assert (even.confidence, even.title) == (CERTAIN, "Only even ids are proposed")


def test_the_same_ids_on_a_draft_that_serves_or_in_few_drafts_prove_nothing() -> None:
    assert token_map.judge(served(ids=ids(largest=638)), ()) is CLEAR
    few = served("e3", ids=ids(largest=638, nodes=100, distinct=10))
    assert not isinstance(token_map.judge(few, ()), Finding)


def test_filler_is_no_map() -> None:
    filler = ids(smallest=4, largest=4, mode_share=1.0, same_mode=1.0, distinct=1, even_share=1.0)
    assert token_map.judge(served("b3", ids=filler), ()) is CLEAR


def test_another_finding_explains_being_sure_and_wrong() -> None:
    root = replace(named(token_map, served("b1")), kind="fc_bypassed", fault_class="F04")
    assert token_map.judge(served("b1"), (root,)) is CLEAR


# --- vocabulary --------------------------------------------------------------------------------------------

PADDED = {
    "field": "vocab_size",
    "checkpoint": 1056,
    "draft": 1056,
    "target": 1024,
    "level": "check",
    "why": "F11",
}


@pytest.mark.parametrize("changes", [{"above_vocab": 7, "largest": 1040}, {"below_zero": 2, "smallest": -1}])
def test_ids_out_of_range_are_certain(changes: dict[str, int]) -> None:
    told = named(vocabulary, served("b1", ids=ids(**changes)))
    assert (told.fault_class, told.confidence) == ("F11", CERTAIN)
    assert next(iter(diagnose(served("b1", ids=ids(**changes))).findings)).kind == vocabulary.KIND


def test_sizes_that_differ_are_held_against_a_draft_without_benefit_alone() -> None:
    told = config(differences=[PADDED])
    assert vocabulary.judge(served(told=told), ()) is CLEAR
    assert named(vocabulary, served("e3", told=told, counts=served("c2").counts)).confidence == SUSPECTED
    undecided = served(told=told, counts=None)
    assert isinstance(vocabulary.judge(undecided, ()), Unknown)


OTHER_TOKENS = {
    "target": {"file": "tokenizer.json", "hash": "a" * 16, "tokens": 1024},
    "draft": {"file": "tokenizer.json", "hash": "b" * 16, "tokens": 1024},
}


def test_tokenizers_of_one_size_that_count_otherwise_are_suspected_without_benefit_alone() -> None:
    told = config(tokenizers=OTHER_TOKENS)
    assert vocabulary.judge(served(told=told), ()) is CLEAR, "files may be left over beside a sound draft"
    found = named(vocabulary, served("e3", told=told, counts=served("c2").counts))
    assert found.confidence == SUSPECTED
    (number,) = [one for one in found.numbers if one.name == "tokens of tokenizer.json of the draft"]
    assert (number.value, number.expected) == ("b" * 16, "a" * 16)


def test_sure_and_always_wrong_with_another_tokenizer_is_the_vocabulary_and_not_the_map() -> None:
    assert isinstance(token_map.judge(served("b1"), ()), Finding)
    assert token_map.judge(served("b1", told=config(tokenizers=OTHER_TOKENS)), ()) is CLEAR


def test_ids_out_of_range_name_the_other_tokenizer() -> None:
    told = served("b1", told=config(tokenizers=OTHER_TOKENS), ids=ids(above_vocab=7, largest=1040))
    found = named(vocabulary, told)
    assert found.confidence == CERTAIN
    assert "tokens of tokenizer.json of the draft" in {one.name for one in found.numbers}


@pytest.mark.parametrize(
    "draft",
    [None, {}, {"file": "vocab.json", "hash": "b" * 16}, {"file": "tokenizer.json", "hash": "a" * 16}],
)
def test_tokenizers_that_are_alike_or_not_comparable_say_nothing(draft: dict[str, str] | None) -> None:
    told = config(tokenizers={"target": OTHER_TOKENS["target"], "draft": draft})
    assert not vocabulary.differ(served("b1", told=told))


def test_a_smaller_head_with_a_map_is_usual() -> None:
    line = {**PADDED, "field": "draft_vocabulary", "draft": 640, "level": "note"}
    assert vocabulary.judge(served("s", told=config(differences=[line])), ()) is CLEAR


# --- head_replaced -----------------------------------------------------------------------------------------

PUT = odd("replaced by the target's", "lm_head.weight")


def test_a_head_in_the_place_of_the_drafts_own() -> None:
    told = named(head_replaced, served("c2", told=with_odd(PUT)))
    assert (told.fault_class, told.confidence) == ("F09", CERTAIN)
    assert {ruled.fault for ruled in told.ruled_out} == {"F10 token map"}


def test_a_shared_head_that_serves_is_well_and_an_undecided_one_a_suspicion() -> None:
    assert head_replaced.judge(served(told=with_odd(PUT)), ()) is CLEAR
    assert named(head_replaced, served(told=with_odd(PUT), counts=None)).confidence == SUSPECTED


def test_a_copy_of_the_targets_head() -> None:
    copy = odd("copy of the target's", "lm_head.weight", "note")
    assert named(head_replaced, served("c2", told=with_odd(copy))).confidence == SUSPECTED
    assert head_replaced.judge(served(told=with_odd(copy)), ()) is CLEAR
    embedding = odd("copy of the target's", "model.embed_tokens.weight", "note")
    assert head_replaced.judge(served("d1", told=with_odd(embedding)), ()) is CLEAR


# --- embedding_wrong ---------------------------------------------------------------------------------------


def test_an_embedding_of_zeros() -> None:
    seen = (look(hidden.EMBEDDING, rms=0.0, zero_share=1.0),)
    told = named(embedding_wrong, served("d3", hidden=seen))
    assert (told.fault_class, told.confidence) == ("F08", CERTAIN)


def test_other_rows_than_those_of_the_shared_embedding() -> None:
    other = (refer(0, 1.369, 1.0, 1.4, place=hidden.EMBEDDING),)
    assert named(embedding_wrong, served("d2", reference=other)).confidence == CERTAIN
    own = config(draft(change={"model.embed_tokens.weight": {"status": "loaded", "shared_with": None}}))
    assert embedding_wrong.judge(served(told=own, reference=other), ()) is CLEAR
    same = (refer(0, 0.0, 1.0, 1.4, place=hidden.EMBEDDING),)
    assert embedding_wrong.judge(served(reference=same), ()) is CLEAR


def test_rows_far_smaller_than_the_embedding_in_memory() -> None:
    assert (
        named(embedding_wrong, served("d1", hidden=(look(hidden.EMBEDDING, rms=0.0201),))).confidence
        == SUSPECTED
    )
    assert embedding_wrong.judge(served(hidden=(look(hidden.EMBEDDING, rms=0.1485),)), ()) is CLEAR


def test_a_replaced_embedding_is_told_where_nothing_is_accepted() -> None:
    put = odd("replaced by the target's", "model.embed_tokens.weight", "note")
    assert embedding_wrong.judge(served(told=with_odd(put)), ()) is CLEAR
    told = named(embedding_wrong, served("d1", told=with_odd(put)))
    assert (told.fault_class, told.confidence) == ("F09", SUSPECTED)


# --- together ----------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[str, Evidence]] = {
    "fc missing": (weights_missing.KIND, served("i", told=with_odd(odd("missing", "fc.weight")))),
    "NaN": (weights_not_finite.KIND, served("s", told=with_odd(odd("not finite", "fc.weight")))),
    "no map": (token_map.KIND, served("b3", told=config(d2t={"present": False, "draft_vocab": 640}))),
    "wrong map": (token_map.KIND, served("b1", told=with_map(distinct=148))),
    "head": (head_replaced.KIND, served("c2", told=with_odd(PUT))),
    "embedding": (
        embedding_wrong.KIND,
        served("d3", hidden=(look(hidden.EMBEDDING, rms=0.0, zero_share=1.0),)),
    ),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_comes_first_and_is_the_only_certain_one(fault: str) -> None:
    kind, evidence = FAULTS[fault]
    said = diagnose(evidence).findings
    assert said[0].kind == kind
    assert [one.kind for one in said if one.confidence == CERTAIN] == [kind]


# --- as the tracer itself tells it -------------------------------------------------------------------------


def tensor(name: str, status: str, *, nonfinite: int = 0, zeros: int = 0, **more: Any) -> w.Tensor:
    read = Values(128, 128, 0.0, 0.07, 0.2, nonfinite, zeros, f"hash of {name}")
    return w.Tensor(name, (8, 16), "bfloat16", status, values=read, **more)


@pytest.mark.parametrize(
    ("one", "rule"),
    [
        (tensor("model.fc.weight", w.MISSING), weights_missing),
        (tensor("model.fc.weight", w.PARTLY, filled=0.75, sources=("fc",)), weights_missing),
        (tensor("model.fc.weight", w.LOADED, zeros=128), weights_missing),
        (tensor("model.fc.weight", w.LOADED, nonfinite=3), weights_not_finite),
        (
            tensor("lm_head.weight", w.SHARED, sources=("lm_head.weight",), shared_with="lm_head.weight"),
            head_replaced,
        ),
    ],
)
def test_the_tracers_own_inventory_is_read(one: w.Tensor, rule: ModuleType) -> None:
    loaded = tensor("model.midlayer.mlp.up_proj.weight", w.LOADED)
    inventory = w.Inventory("LlamaForCausalLMEagle3", "", {}, frozenset(), (loaded, one), init_std=0.02)
    said = diagnose(served("c2", told=config(weight_report.as_json(inventory) | {"map": dict(MAP)}))).findings
    assert (said[0].kind, said[0].confidence) == (rule.KIND, CERTAIN)
    sound = w.Inventory("LlamaForCausalLMEagle3", "", {}, frozenset(), (loaded,), init_std=0.02)
    assert not diagnose(served(told=config(weight_report.as_json(sound) | {"map": dict(MAP)}))).findings
