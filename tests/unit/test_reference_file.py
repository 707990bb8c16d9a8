"""The file of a reference: what goes in comes out, and what is wrong is named."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from specscope import columns, hidden, reference_file, tensorstats
from specscope.reference_file import MAX_TOKENS, Model, ReferenceFileError, Weight, read
from storekit import references
from storekit.references import FACTS, passage, states

WEIGHTS = (
    Weight(("q.weight", "k.weight", "v.weight"), (256, 256), "aa bb cc", 0.001, 0.2, 1.5),
    Weight(("norm.weight",), (128,), "dd ee ff", 1.6, 0.2, 2.0),
)
DRAFT = Model(
    "draft",
    "LlamaForCausalLMEagle3",
    128,
    1,
    1024,
    {"model.safetensors": "cd" * 32},
    weights=WEIGHTS,
)
PASSAGES = (
    passage(
        {
            hidden.FED: states(),
            hidden.FC_OUT: states(slots=1, seed=1),
            hidden.CARRY: states(tokens=59, slots=1, seed=2),
        },
        name="first",
    ),
    passage(states(tokens=7), ids=range(7), prompt_tokens=7, name="zweite \u2603"),
)
FILE = references.file(*PASSAGES, facts=replace(FACTS, draft=DRAFT))


def changed(line: int, change: Callable[[dict[str, Any]], object]) -> list[bytes]:
    lines = FILE.splitlines()
    value = json.loads(lines[line])
    change(value)
    lines[line] = json.dumps(value).encode()
    return lines


def test_what_is_written_is_read() -> None:
    facts, stored = read(FILE.splitlines())
    assert facts == replace(FACTS, draft=DRAFT)
    assert [(one.name, one.ids, one.prompt_tokens) for one in stored] == [
        (one.name, one.ids, one.prompt_tokens) for one in PASSAGES
    ]
    for one, wanted in zip(stored, PASSAGES, strict=True):
        for track, other in zip(one.passage().tracks, wanted.tracks, strict=True):
            assert (track.place, track.slot) == (other.place, other.slot)
            np.testing.assert_array_equal(track.rms, other.rms)
            np.testing.assert_array_equal(track.projections, other.projections)


def test_a_file_from_before_weights_were_told_is_read() -> None:
    lines = changed(0, lambda value: value["draft"].pop("weights"))
    facts, _ = read(lines)
    assert facts.draft == replace(DRAFT, weights=())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source", []),
        ("source", ["x" * 201]),
        ("shape", [1, -1]),
        ("shape", "128"),
        ("hash", 5),
        ("mean", None),
        ("std", "0.2"),
        ("max_abs", float("inf")),
    ],
)
def test_a_weight_that_makes_no_sense_is_refused(name: str, value: object) -> None:
    lines = changed(0, lambda told: told["draft"]["weights"][1].update({name: value}))
    with pytest.raises(ReferenceFileError):
        read(lines)


TOO_MANY: list[dict[str, Any]] = [{}] * 1001


@pytest.mark.parametrize("value", [5, {"a": 1}, [5], TOO_MANY])
def test_weights_that_are_no_list_of_objects_are_refused(value: object) -> None:
    lines = changed(0, lambda told: told["draft"].update(weights=value))
    with pytest.raises(ReferenceFileError):
        read(lines)


def test_the_same_run_gives_the_same_bytes() -> None:
    assert references.file(*PASSAGES, facts=replace(FACTS, draft=DRAFT)) == FILE


def test_rows_that_were_not_finite_stay_so() -> None:
    found = passage(states(tokens=3), ids=range(3), prompt_tokens=3)
    found.tracks[0].rms[1] = np.nan
    _, (stored,) = read(references.file(found).splitlines())
    assert np.isnan(stored.passage().tracks[0].rms).tolist() == [False, True, False]


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_file_that_was_cut_off_is_noticed(kept: int) -> None:
    said = "the file is empty" if kept == 0 else f"cut off.*missing after {kept - 1} of them"
    with pytest.raises(ReferenceFileError, match=said):
        read(FILE.splitlines()[:kept])


def test_a_line_that_was_cut_off_is_noticed() -> None:
    with pytest.raises(ReferenceFileError, match=r"line 3: not JSON .*may be cut off"):
        read(FILE[: FILE.index(b"zweite") + 50].splitlines())


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([b"hello"], "line 1: not JSON"),
        ([b"\xff\xfe"], "line 1: not JSON"),
        ([b"[" * 100_000], "line 1: not JSON"),
        ([b"[1]"], "line 1: not a JSON object"),
        ([b"{}"], "line 1: not a specscope-reference file"),
        (changed(0, lambda v: v.update(version=2)), "line 1: it is of version 2 .* reads version 1"),
        (
            changed(0, lambda v: v.update(seed=7)),
            f"signs of seed 7, engines those of seed {tensorstats.SEED}",
        ),
        (changed(0, lambda v: v.update(seed=True)), "'seed' is 'True'"),
        (changed(0, lambda v: v.update(aux_layers=[])), "'aux_layers' are no layer numbers"),
        (changed(0, lambda v: v.update(aux_layers=[2, "4"])), "'aux_layers' are no layer numbers"),
        (changed(0, lambda v: v.pop("target")), "'target' is 'None', dict wanted"),
        (changed(0, lambda v: v["draft"].update(layers=-1)), "'layers' is '-1'"),
        (changed(0, lambda v: v.update(same_as={"a": 1})), "'same_as' is no object"),
        (changed(1, lambda v: v.update(ids=[])), "line 2: a sequence has 0 tokens"),
        (changed(1, lambda v: v.update(ids=[1] * (MAX_TOKENS + 1))), f"has {MAX_TOKENS + 1} tokens"),
        (changed(1, lambda v: v.update(ids=[1, -1])), "no whole numbers from 0 on"),
        (changed(1, lambda v: v.update(ids=v["ids"][:59])), "slot 0 has 60 positions for 59 tokens"),
        (changed(1, lambda v: v.update(prompt_tokens=61)), "'prompt_tokens' is '61'"),
        (changed(1, lambda v: v.update(rows="*")), "'rows' is not base64"),
        (changed(1, lambda v: v.update(rows="AAAA")), "its numbers cannot be read"),
        (changed(1, lambda v: v.update(name=3)), "'name' is '3', str wanted"),
        (changed(1, lambda v: v.update(name="\ud800")), "line 2: 'name' is .* half a surrogate pair"),
        (changed(0, lambda v: v.update(dtype="\ud800")), "'dtype' is .* half a surrogate pair"),
        (changed(0, lambda v: v["target"].update(name="\udfff")), "'name' is .* half a surrogate pair"),
        (changed(0, lambda v: v.update(made_with={"a": "\ud800"})), "'made_with' is no object"),
        (changed(3, lambda v: v.update(end=3)), "line 4: it tells of 3 sequences, and 2 came"),
        ([*FILE.splitlines(), b"{}"], "line 5: there is something behind the last line"),
        ([FILE.splitlines()[0], b'{"end":0}'], "the file has no sequence"),
    ],
)
def test_what_makes_no_sense_is_named(lines: list[bytes], said: str) -> None:
    with pytest.raises(ReferenceFileError, match=said):
        read(lines)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"place": ["draft.soup"]}, "a place 'draft.soup' that is not known"),
        ({"slot": [reference_file.MAX_TRACKS]}, "slots that are not from 0 to 63"),
        ({"slot": [-1]}, "slots that are not from 0 to 63"),
        ({"rms": [1]}, "column 'rms' holds something else"),
        ({"p7": [None]}, "column 'p7' holds something else"),
        ({"p7": None}, "lack the column 'p7'"),
    ],
)
def test_numbers_that_make_no_sense_are_named(change: dict[str, Any], said: str) -> None:
    row: dict[str, Any] = {"place": [hidden.FED], "slot": [0], "rms": [1.0]}
    row |= {f"p{j}": [0.5] for j in range(hidden.PROJECTIONS)}
    assert reference_file.unpack(columns.encode(row), 1)[0].rms.tolist() == [1.0]
    blob = columns.encode({name: value for name, value in (row | change).items() if value is not None})
    with pytest.raises(ReferenceFileError, match=said):
        reference_file.unpack(blob, 1)
    sequence = {"name": "a", "ids": [1], "prompt_tokens": 1, "rows": base64.b64encode(blob).decode()}
    with pytest.raises(ReferenceFileError, match=f"line 2: .*{said}"):
        read([FILE.splitlines()[0], json.dumps(sequence)])


def test_a_track_may_not_come_twice() -> None:
    one, other = passage(states()).tracks[:2]
    with pytest.raises(ReferenceFileError, match="one comes twice"):
        reference_file.unpack(reference_file.pack([one, other, one]), 60)


def test_a_few_tokens_do_not_inflate_to_many_rows() -> None:
    rows = reference_file.MAX_TRACKS + 1
    row: dict[str, Any] = {"place": [hidden.FED] * rows, "slot": [0] * rows, "rms": [0.0] * rows}
    row |= {f"p{j}": [0.0] * rows for j in range(hidden.PROJECTIONS)}
    with pytest.raises(ReferenceFileError, match="65 rows are over the limit of 64"):
        reference_file.unpack(columns.encode(row), 1)


def test_all_sequences_together_do_not_inflate_to_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_file, "MAX_ROWS", 240 + 59 + 21)
    assert len(read(FILE.splitlines())[1]) == 2
    monkeypatch.setattr(reference_file, "MAX_ROWS", 240 + 59 + 20)
    with pytest.raises(ReferenceFileError, match=r"line 3: there are more than 319 rows .* several files"):
        read(FILE.splitlines())
