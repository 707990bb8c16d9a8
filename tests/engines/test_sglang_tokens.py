"""The first promise: an engine with the tracer gives the same tokens as one without it."""

from __future__ import annotations

from collections import Counter

import pytest
from sglang_runs import REFERENCES, VARIED, ChainRun, Run
from tiny_prompts import references

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]


def test_enough_prompts_of_every_domain() -> None:
    domains = Counter([one.domain for one in references()] + [rid.split("-")[0] for rid in VARIED])
    assert domains == {"licence": 18, "docstring": 18, "copy": 18}


def test_chain_tokens_are_the_same(chain: ChainRun, chain_untraced: Run) -> None:
    for rid in (*REFERENCES, *VARIED):
        assert chain.answers[rid]["output_ids"] == chain_untraced.answers[rid]["output_ids"], rid


def test_tree_tokens_are_the_same(tree: Run, tree_untraced: Run) -> None:
    for rid in (*REFERENCES, *VARIED):
        assert tree.answers[rid]["output_ids"] == tree_untraced.answers[rid]["output_ids"], rid


def test_references_continue_as_they_should(chain: ChainRun, tree: Run) -> None:
    for number, one in enumerate(references()):
        assert chain.answers[f"ref-{number}"]["output_ids"] == one.continuation
        assert tree.answers[f"ref-{number}"]["output_ids"] == one.continuation


def test_without_an_endpoint_the_tracer_is_off_and_says_so_once(chain_untraced: Run) -> None:
    assert chain_untraced.lines == ["specscope: tracer off: SPECSCOPE_ENDPOINT is not set"]


def test_when_it_traces_it_says_what(chain: ChainRun) -> None:
    (line,) = chain.lines
    assert line.startswith("specscope: tracing EAGLE3 at detail full to http://127.0.0.1:")
