"""Tokenizers in the store: there once, found by workspace and by what an engine tells; requests forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from specscope_server.store import tokenizers as stored
from specscope_server.store.model import RequestFilter, TokenizerRow
from specscope_server.store.port import Refused, Store
from storekit import facts


def row(uid: str = "0123456789abcdef", seconds_ago: float = 0, name: str = "tiny") -> TokenizerRow:
    return TokenizerRow(uid, facts.ago(seconds_ago), name, 1024, 55_087)


def test_a_tokenizer_reads_back_and_is_there_once(store: Store) -> None:
    store.add_tokenizer("default", row(seconds_ago=5), b"\0packed\xff")
    store.add_tokenizer("default", row(name="again"), b"other")
    assert store.tokenizers("default") == [row(seconds_ago=5)]
    assert store.vocabulary("default", row().tokenizer_hash) == b"\0packed\xff"
    assert store.vocabulary("default", "another") is None


def test_workspaces_do_not_see_each_others(store: Store) -> None:
    store.add_tokenizer("team", row(), b"x")
    assert (store.tokenizers("default"), store.vocabulary("default", row().tokenizer_hash)) == ([], None)
    assert not store.delete_tokenizer("default", row().tokenizer_hash)
    assert store.delete_tokenizer("team", row().tokenizer_hash)
    assert not store.delete_tokenizer("team", row().tokenizer_hash)
    assert store.tokenizers("team") == []


def test_the_newest_comes_first_and_only_so_many_are_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MAX_TOKENIZERS", 2)
    for uid, seconds in (("b", 9), ("a", 1)):
        store.add_tokenizer("default", row(uid, seconds), b"x")
    assert [one.tokenizer_hash for one in store.tokenizers("default")] == ["a", "b"]
    with pytest.raises(Refused, match=r"workspace 'default' has 2 tokenizers.*remove old ones"):
        store.add_tokenizer("default", row("c"), b"x")
    store.add_tokenizer("default", row("a"), b"x")
    store.add_tokenizer("team", row("c"), b"x")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"tokenizers": {"target": {"file": "tokenizer.json", "hash": "cafe"}}}, "cafe"),
        ({"tokenizers": {"draft": {"hash": "cafe"}}}, ""),
        ({"tokenizers": ["target"]}, ""),
        ({"tokenizers": {"target": {"hash": 7}}}, ""),
        ({}, ""),
    ],
)
def test_which_one_an_engine_has(store: Store, config: dict[str, Any], told: str) -> None:
    store.write([facts.batch(replace(facts.REPORT, config=config))], facts.NOW)
    assert store.engine_tokenizer("default", facts.ENGINE) == told
    assert store.engine_tokenizer("team", facts.ENGINE) == ""


def test_ranks_that_tell_none_hide_none(store: Store) -> None:
    first = {"tokenizers": {"target": {"hash": "cafe"}}}
    store.write([facts.batch(replace(facts.REPORT, config=first))], facts.NOW)
    later = replace(facts.REPORT, event_ns=facts.REPORT.event_ns + 5, config={"rank": 1})
    store.write([facts.batch(later, process_uid="p1", tp=1)], facts.NOW)
    assert store.engine_tokenizer("default", facts.ENGINE) == "cafe"


def test_a_request_is_forgotten_with_its_prompt_and_steps(store: Store) -> None:
    told = [facts.REPORT, facts.increment(1, 10, steps=3)]
    for uid in ("u0", "u1"):
        told += [facts.request(uid), facts.chunk(uid, steps=[facts.step(1)]), facts.prompt(uid, ids=(1, 2))]
    store.write([facts.batch(*told)], facts.NOW)
    before = store.engine("default", facts.ENGINE, facts.ago(600))
    assert not store.delete_request("team", "u0")
    assert store.delete_request("default", "u0")
    assert not store.delete_request("default", "u0")
    assert store.request("default", "u0") is None
    assert [one.uid for one in store.requests(RequestFilter(), 9).items] == ["u1"]
    kept = store.request("default", "u1")
    assert kept is not None and len(kept.steps) == 1
    hidden = store.hidden("default", "u1")
    assert hidden is not None and hidden.prompt_ids == (1, 2)
    after = store.engine("default", facts.ENGINE, facts.ago(600))
    assert before is not None and after is not None and after.counts == before.counts
    store.write([facts.batch(facts.request("u0"))], facts.NOW)
    again = store.hidden("default", "u0")
    assert again is not None and (again.prompt_ids, again.steps) == (None, ())
