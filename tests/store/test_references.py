"""References in the store: there once, found by workspace, read whole, gone when deleted."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from specscope import hidden, reference_file
from specscope_server.store import references as stored_references
from specscope_server.store.port import Refused, Store
from storekit import facts
from storekit.references import FACTS, IDS, file, passage, states

PASSAGES = (
    passage({hidden.FED: states(), hidden.FC_OUT: states(slots=1)}, name="first"),
    passage(states(tokens=3), ids=(7, 8, 9), prompt_tokens=2, name="second"),
)
FILE = file(*PASSAGES)
_, SEQUENCES = reference_file.read(FILE.splitlines())


def add(store: Store, uid: str = "r0", workspace: str = "default", seconds_ago: float = 0) -> None:
    store.add_reference(workspace, uid, FACTS, SEQUENCES, len(FILE), facts.ago(seconds_ago))


def test_a_reference_reads_back_whole(store: Store) -> None:
    add(store)
    (row,) = store.references("default")
    assert (row.reference_uid, row.created, row.name) == ("r0", facts.NOW, "tiny")
    assert (row.sequences, row.tokens, row.bytes) == (2, 63, len(FILE))
    assert row.facts == json.loads(json.dumps(asdict(FACTS)))
    assert store.reference("default", "r0") == row
    assert [
        (one.number, one.name, one.prompt_tokens, tuple(one.ids.tolist()))
        for one in store.reference_sequences("default", "r0")
    ] == [
        (0, "first", 20, IDS),
        (1, "second", 2, (7, 8, 9)),
    ]
    for number, wanted in enumerate(PASSAGES):
        found = store.reference_numbers("default", "r0", number)
        assert found is not None
        for track, other in zip(found.passage().tracks, wanted.tracks, strict=True):
            assert (track.place, track.slot) == (other.place, other.slot)
            np.testing.assert_array_equal(track.projections, other.projections)


def test_the_same_reference_again_changes_nothing(store: Store) -> None:
    add(store, seconds_ago=5)
    add(store)
    assert [row.created for row in store.references("default")] == [facts.ago(5)]
    assert len(store.reference_sequences("default", "r0")) == 2


def test_the_newest_comes_first(store: Store) -> None:
    for uid, seconds in (("b", 9), ("a", 1), ("c", 5)):
        add(store, uid, seconds_ago=seconds)
    assert [row.reference_uid for row in store.references("default")] == ["a", "c", "b"]


def test_workspaces_do_not_see_each_other(store: Store) -> None:
    add(store, workspace="team")
    assert (store.references("default"), store.reference("default", "r0")) == ([], None)
    assert store.reference_sequences("default", "r0") == []
    assert store.reference_numbers("default", "r0", 0) is None
    assert not store.delete_reference("default", "r0")
    assert len(store.references("team")) == 1


def test_what_is_deleted_is_gone_with_its_sequences(store: Store) -> None:
    add(store, "a")
    add(store, "b")
    assert store.delete_reference("default", "a")
    assert not store.delete_reference("default", "a")
    assert [row.reference_uid for row in store.references("default")] == ["b"]
    assert store.reference_sequences("default", "a") == []
    assert store.reference_numbers("default", "b", 1) is not None


def test_a_workspace_has_only_so_many(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_references, "MAX_REFERENCES", 2)
    for uid in "ab":
        add(store, uid)
    with pytest.raises(Refused, match=r"workspace 'default' has 2 references.*delete old ones"):
        add(store, "c")
    add(store, "a")
    add(store, "c", workspace="team")
    store.delete_reference("default", "b")
    add(store, "c")
