"""Requests and engines held against references, from what the store has; and why not, where it has not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from specscope import hidden, reference_file
from specscope.reference_file import Facts, Passage
from specscope_server.diagnosis.reference_fit import misfits
from specscope_server.store.port import Store
from specscope_server.store.reference_answers import ReferenceAnswer, of_engine, of_request
from specscope_server.store.told import Batch
from storekit import facts, reference_requests, references
from storekit.reference_requests import CONFIG, healthy, told
from storekit.references import FACTS, IDS, TARGET, passage, rows, states

WHOLE = passage(states(), name="whole")


def refer(store: Store, *passages: Passage, uid: str = "r0", about: Facts = FACTS, ago: float = 0) -> None:
    _, sequences = reference_file.read(references.file(*passages, facts=about).splitlines())
    store.add_reference("default", uid, about, sequences, 1, facts.ago(ago))


def answer(store: Store, *batches: Batch, uid: str = "u0") -> ReferenceAnswer:
    store.write(batches, facts.NOW)
    found = of_request(store, "default", uid)
    assert found is not None
    return found


def test_a_healthy_request_is_the_reference(store: Store) -> None:
    refer(store, passage(states(seed=9), ids=(1, *IDS[1:]), name="other"), WHOLE)
    found = answer(store, healthy())
    assert found.reference is not None
    assert (found.code, found.reason, found.reference.reference_uid) == ("", "", "r0")
    assert (found.sequences, found.requests, found.shared_tokens) == (("whole",), 1, 60)
    assert found.aux_layers == (2, 4, 5)
    assert [(one.place, one.slot, one.equals) for one in found.slots] == [
        (hidden.FED, s, s) for s in range(3)
    ]
    for one in found.slots:
        assert one.estimate is not None
        assert (one.recorded, one.estimate.tokens) == (60, 60)
        assert one.estimate.relative_error < 0.02
        assert one.positions == tuple(range(60))


def test_a_tenth_of_the_size_is_an_error_of_nine_tenths(store: Store) -> None:
    refer(store, WHOLE)
    for one in answer(store, healthy(scale=0.1)).slots:
        assert one.estimate is not None
        assert one.estimate.relative_error == pytest.approx(0.9, rel=0.01)


def test_tokens_that_were_not_told_are_not_compared(store: Store) -> None:
    refer(store, WHOLE)
    found = answer(store, told("u0", rows(states()), tokens=False))
    assert found.shared_tokens == 20
    assert {one.estimate.tokens for one in found.slots if one.estimate} == {20}


def test_most_shared_tokens_win_and_then_the_newest(store: Store) -> None:
    refer(store, replace(WHOLE, name="old"), uid="a", ago=9)
    refer(store, replace(WHOLE, name="new"), uid="b", ago=5)
    refer(store, passage(states(tokens=30), ids=IDS[:30], name="short"), uid="c", ago=1)
    assert answer(store, healthy()).sequences == ("new",)


@pytest.mark.parametrize(
    ("batch", "code", "said"),
    [
        (told("u0", rows(states(), levels=None, fingerprints=None)), "no_fingerprints", "at level full"),
        (told("u0", []), "no_fingerprints", "(detail level full)"),
        (told("u0", rows(states()), prompt=False), "no_prompt", "token ids were not recorded"),
    ],
)
def test_what_was_not_recorded_is_said(store: Store, batch: Batch, code: str, said: str) -> None:
    refer(store, WHOLE)
    found = answer(store, batch)
    assert (found.code, found.slots, found.requests, found.reference) == (code, (), 0, None)
    assert said in found.reason


def test_without_a_reference_the_answer_says_how_to_make_one(store: Store) -> None:
    found = answer(store, healthy())
    assert found.code == "no_reference"
    assert "specscope fingerprint --target" in found.reason


def test_a_reference_of_another_text_does_not_serve(store: Store) -> None:
    refer(store, passage(states(), ids=(1, *IDS[1:])))
    assert answer(store, healthy()).code == "no_shared_tokens"


def test_a_reference_of_another_target_does_not_fit(store: Store) -> None:
    refer(store, WHOLE, about=replace(FACTS, target=replace(TARGET, layers=12)))
    found = answer(store, healthy())
    assert found.code == "no_fit"
    assert "'tiny': its target's layers is 12, the engine's 8" in found.reason
    refer(store, WHOLE, uid="right", ago=60)
    assert answer(store).code == ""


def test_an_unknown_request_or_engine_has_no_answer(store: Store) -> None:
    assert of_request(store, "default", "nobody") is None
    assert of_engine(store, "default", "nobody") is None


def test_an_engine_is_the_sum_of_its_newest_requests(store: Store) -> None:
    refer(store, WHOLE)
    silent = told("u2", rows(states(), fingerprints=None, levels=None))
    store.write([healthy("u0"), healthy("u1", scale=0.9), silent], facts.NOW)
    found = of_engine(store, "default", facts.ENGINE)
    assert found is not None and found.reference is not None
    assert (found.code, found.requests, found.shared_tokens) == ("", 2, 120)
    assert (found.sequences, found.left_out) == (("whole",), {"no_fingerprints": 1})
    for one in found.slots:
        assert one.estimate is not None
        assert (one.estimate.tokens, one.errors, one.median_error) == (120, (), None)
        assert one.estimate.relative_error == pytest.approx(0.1 / 2**0.5, rel=0.02)


def test_an_engine_without_anything_to_compare_says_why(store: Store) -> None:
    store.write([facts.batch(reference_requests.report())], facts.NOW)
    for code in ("no_reference", "no_request"):
        found = of_engine(store, "default", facts.ENGINE)
        assert found is not None
        assert (found.code, found.slots) == (code, ())
        assert found.reason
        refer(store, WHOLE)
    store.write([told("u0", [])], facts.NOW)
    found = of_engine(store, "default", facts.ENGINE)
    assert found is not None
    assert (found.code, found.left_out) == ("no_fingerprints", {"no_fingerprints": 1})


def test_hashes_of_norms_tell_targets_of_one_shape_apart() -> None:
    reference = {
        "target": {
            "architecture": "LlamaForCausalLM",
            "hidden_size": 128,
            "layers": 8,
            "vocab_size": 1024,
            "norms": {"model.norm.weight": "aa bb cc"},
        }
    }

    def weights(**tensors: str) -> dict[str, Any]:
        told = {name.replace("__", "."): {"hash": value} for name, value in tensors.items()}
        return CONFIG | {"weights": {"target": {"tensors": told}}}

    assert misfits(reference, CONFIG) == []
    assert misfits(reference, weights(model__norm__weight="bb", lm_head__weight="dd")) == []
    (why,) = misfits(reference, weights(model__norm__weight="dd"))
    assert "model.norm.weight has another hash" in why
    assert misfits(reference, {}) == ["the engine has not told which target it serves"]
    assert misfits(reference, CONFIG | {"target": {}}) == []
    (other,) = misfits(reference, {"target": {"architectures": ["Qwen2ForCausalLM"]}})
    assert "a LlamaForCausalLM, the engine's a Qwen2ForCausalLM" in other
