"""A healthy SGLang against ``specscope fingerprint``: two implementations, the same states at each token."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from otlp_receiver import RequestTold, Told
from sglang_engine import sglang_python
from sglang_runs import REFERENCES, ChainRun, Run
from specscope import hidden, reference_file
from specscope.reference_file import Facts, Passage
from specscope_server.diagnosis.reference import SlotComparison, compare, conclude, known_ids
from specscope_server.diagnosis.reference_fit import misfits
from tiny_prompts import TINY

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

PLACES = [(hidden.FED, 0), (hidden.FED, 1), (hidden.FED, 2), (hidden.FC_OUT, 0), (hidden.EMBEDDING, 0)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Facts, list[Passage]]:
    """What transformers says of the 18 prompts and their continuations, by the command itself."""
    out = tmp_path_factory.mktemp("reference") / "reference.jsonl"
    command = [sglang_python().with_name("specscope"), "fingerprint", "--target", TINY / "target"]
    command += ["--draft", TINY / "draft", "--prompts", TINY / "prompts-with-references.json", "--out", out]
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return _read(out)


def _read(out: Path) -> tuple[Facts, list[Passage]]:
    with out.open("rb") as file:
        facts, stored = reference_file.read(file)
    return facts, [one.passage() for one in stored]


def output(one: RequestTold) -> dict[int, int]:
    """Return the output's ids by position, as the server reads them of the steps."""
    found: dict[int, int] = {}
    for step in one.counted:
        found |= {step.context + i: token for i, token in enumerate(step.output_ids or ())}
        if step.root is not None:
            found[step.context - 1] = step.root
    return found


def compared(told: Told, number: int, reference: tuple[Facts, list[Passage]]) -> list[SlotComparison]:
    rid = f"ref-{number}"
    ids = known_ids(REFERENCES[rid], output(told.requests[rid]))
    facts, passages = reference
    pairs = compare(told.requests[rid].hidden, ids, passages[number], facts.same_as)
    return [conclude(one) for one in pairs]


def check_carry(told: Told, number: int, reference: tuple[Facts, list[Passage]], one: SlotComparison) -> None:
    """Check that the state that each draft extend left was compared, after prefills and after verifies."""
    rows = [
        row
        for row in told.requests[f"ref-{number}"].hidden
        if row.place == hidden.CARRY and row.draft_step == 0
    ]
    assert {row.after for row in rows} == {"prefill", "verify"}
    # All but those at the end, whose next token the reference does not have.
    at = {row.position for row in rows if row.position < len(reference[1][number].ids) - 2}
    assert at <= set(one.positions), (number, at - set(one.positions))
    assert len(at) > 2


def check(told: Told, reference: tuple[Facts, list[Passage]]) -> None:
    for number, passage in enumerate(reference[1]):
        found = {(one.place, one.slot): one for one in compared(told, number, reference)}
        assert found.keys() >= {*PLACES, (hidden.CARRY, 0)}
        check_carry(told, number, reference, found[hidden.CARRY, 0])
        for key, one in found.items():
            cached = int(told.requests[f"ref-{number}"].attributes["spec_decode.request.cached_tokens"])
            assert one.estimate is not None, key
            # All but the last token, which the target never ran on, and those of a cached prefix. In a tree
            # the captured rows of a prefill are the fed ones, and told as such.
            # The carry is one a draft extend.
            least = len(passage.ids) - 2 - cached if key in PLACES else 1
            assert one.estimate.tokens >= least, (number, key)
            assert one.estimate.relative_error < 0.02, (number, key, one.estimate)
            assert one.estimate.scale == pytest.approx(1, abs=0.005)
            assert max(one.errors) < 0.05
            assert one.equals == one.slot
            assert min(error or 0 for error in one.shifted.values()) > 0.3


def test_a_healthy_chain_holds_what_transformers_says(
    chain: ChainRun, reference: tuple[Facts, list[Passage]]
) -> None:
    assert reference[0].aux_layers == (2, 4, 5)
    check(chain.told, reference)


def test_a_healthy_tree_holds_what_transformers_says(
    tree: Run, reference: tuple[Facts, list[Passage]]
) -> None:
    check(tree.told, reference)


def test_the_engine_tells_the_hashes_of_the_references_target(
    chain: ChainRun, reference: tuple[Facts, list[Passage]]
) -> None:
    target = reference[0].target
    facts = {
        "target": {
            "architecture": target.architecture,
            "hidden_size": target.hidden_size,
            "layers": target.layers,
            "vocab_size": target.vocab_size,
            "norms": target.norms,
        }
    }
    for config in chain.told.engines:
        assert misfits(facts, config) == []
        told = config["weights"]["target"]["tensors"]
        assert any(name in target.norms for name in told)
        norm = next(name for name in told if name in target.norms)
        facts["target"]["norms"] = {norm: "another"}
        assert "has another hash" in misfits(facts, config)[0]
        facts["target"]["norms"] = target.norms
