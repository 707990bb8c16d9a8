"""Weights of a real engine: at load, shared, missing, after updates, and what memory release does to them."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from in_torch_runs import run_checks
from otlp_receiver import Receiver, Told
from sglang_engine import CHAIN, Server, speculation
from sglang_runs import REFERENCES, traced
from specscope import convention as c
from specscope import weights as w
from tiny_prompts import TINY, references

from scripts.variants import WEIGHTS, read_tensors, write_variant

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

Tensors = dict[str, tuple[str, list[int], bytes]]
FC = "draft 0: model.fc.weight"


IN_TORCH = Path(__file__).with_name("weights_in_torch.py")
CHECKS = [
    name for name in re.findall(r"^def (\w+)\(\) -> None:", IN_TORCH.read_text(), re.M) if name != "main"
]


@pytest.fixture(scope="module")
def in_torch() -> dict[str, str]:
    return run_checks(IN_TORCH)


@pytest.mark.parametrize("name", CHECKS)
def test_in_torch(name: str, in_torch: dict[str, str]) -> None:
    assert in_torch[name] == ""


def stored(folder: Path, *names: str) -> Tensors:
    header, data = read_tensors(folder / WEIGHTS)
    found: Tensors = {}
    for name in names:
        start, end = header[name]["data_offsets"]
        found[name] = (header[name]["dtype"], header[name]["shape"], data[start:end])
    return found


def store(folder: Path, tensors: Tensors) -> Path:
    """Write a checkpoint of these tensors alone, with the target's configuration beside it."""
    folder.mkdir()
    (folder / "config.json").write_bytes((TINY / "target" / "config.json").read_bytes())
    header: dict[str, Any] = {}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


@dataclass(frozen=True)
class Updated:
    """A healthy engine that took an update which empties fc, and then one which brings it back."""

    told: Told
    answers: dict[str, dict[str, Any]]
    lines: list[str]


PROMPT = "ref-13"


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> Updated:
    folder = tmp_path_factory.mktemp("weights")
    of_target = stored(TINY / "target", "model.layers.3.mlp.down_proj.weight")
    fc = stored(TINY / "draft", "fc.weight")
    dtype, shape, raw = fc["fc.weight"]
    emptied = store(folder / "emptied", {"fc.weight": (dtype, shape, bytes(len(raw))), **of_target})
    restored = store(folder / "restored", {**fc, **of_target})
    receiver = Receiver()
    answers: dict[str, dict[str, Any]] = {}

    def ask(rid: str) -> None:
        answers[rid] = server.generate(rid, REFERENCES[PROMPT])
        server.settle()

    with Server(folder, speculation(CHAIN), traced(receiver)) as server:
        ask("at-first")
        assert server.post("/update_weights_from_disk", {"model_path": str(emptied)})["success"]
        ask("emptied")
        assert server.post("/update_weights_from_disk", {"model_path": str(restored)})["success"]
        ask("restored")
        server.post("/release_memory_occupation", {"tags": ["weights"]})
        server.post("/resume_memory_occupation", {"tags": ["weights"]})
        ask("resumed")
        receiver.settled(list(answers))
        told = receiver.wait("five engine spans", lambda t: len(t.events) == 5)
        lines = server.ours()
    receiver.close()
    return Updated(told, answers, lines)


def by_name(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in config["weights"]["drafts"][0]["tensors"]}


def test_a_healthy_draft_is_whole_and_shares_its_embedding(updated: Updated) -> None:
    assert len(updated.lines) == 1, "nothing is said of symbols that do not fit"
    start = updated.told.engines[0]
    (draft,) = start["weights"]["drafts"]
    assert (draft["observed"], draft["load_format"], draft["own_checkpoint"]) == (True, "auto", True)
    assert draft["statuses"] == {w.LOADED: 10, w.SHARED: 1}
    header, _ = read_tensors(TINY / "draft" / WEIGHTS)
    names = draft["names"]
    assert names["all"] == len(set(header) - {"__metadata__"}) == 15
    assert (names["loaded"], names["used"], names["ignored"]) == (13, ["d2t"], ["t2d"])
    assert (names["unused"], draft["missing"], draft["oddities"]) == ([], [], [])
    tensors = by_name(start)
    embedding = tensors["model.embed_tokens.weight"]
    assert embedding["shared_with"] == "model.embed_tokens.weight"
    target = start["weights"]["target"]["tensors"]
    assert embedding["hash"] == target["model.embed_tokens.weight"]["hash"]
    assert tensors["lm_head.weight"]["hash"] != target["lm_head.weight"]["hash"]
    assert sorted(tensors["model.layers.0.self_attn.qkv_proj.weight"]["from"]) == [
        f"midlayer.self_attn.{part}_proj.weight" for part in "kqv"
    ]
    assert 1 < tensors["model.norm.weight"]["mean"] < 2
    assert all(one["std_to_init"] > 3 for one in tensors.values() if len(one["shape"]) > 1)
    known = draft["map"]
    assert (known["rows"], known["in_use"]) == (640, True)
    assert 0 <= known["least"] < known["largest"] < 1024
    assert (known["distinct"], known["as_checkpoint"], known["outside_t2d"]) == (640, True, 0)


def test_differences_of_a_healthy_pair_are_notes(updated: Updated) -> None:
    found = {one["field"]: one for one in updated.told.engines[0]["differences"]}
    assert {name: one["level"] for name, one in found.items()} == {
        "aux_layer_ids": "note", "draft_vocabulary": "note", "dtype": "note",
    }  # fmt: skip
    assert found["aux_layer_ids"]["target"] == [1, 3, 4], "outputs: the inputs of 2, 4 and 5"
    assert (found["dtype"]["checkpoint"], found["dtype"]["draft"]) == ("bfloat16", "float32")


def test_each_change_is_an_event_and_steps_carry_its_version(updated: Updated) -> None:
    told = updated.told
    assert told.events == [
        c.EVENT_START, c.EVENT_WEIGHT_UPDATE, c.EVENT_WEIGHT_UPDATE,
        c.EVENT_MEMORY_RELEASE, c.EVENT_MEMORY_RESUME,
    ]  # fmt: skip
    assert [one["weights"]["version"] for one in told.engines] == [0, 1, 2, 2, 3]
    for rid, version in (("at-first", 0), ("emptied", 1), ("restored", 2), ("resumed", 3)):
        steps = told.requests[rid].steps
        assert steps and {step.weight_version for step in steps} == {version}
    expected = references()[int(PROMPT.removeprefix("ref-"))]
    assert {tuple(one["output_ids"]) for one in updated.answers.values()} == {tuple(expected.continuation)}
    accepted = {rid: sum(step.accepted for step in told.requests[rid].steps) for rid in updated.answers}
    assert accepted["at-first"] == accepted["restored"] == accepted["resumed"] == sum(expected.accepted)
    assert accepted["emptied"] < accepted["at-first"]


def test_an_update_is_told_by_what_it_changed(updated: Updated) -> None:
    start, emptied, restored, released, resumed = updated.told.engines
    event = emptied["weights"]["event"]
    assert (event["how"], event["success"], event["changed"]) == ("from disk", True, [FC])
    assert event["model_path"].endswith("/emptied") and event["seconds"] >= 0
    (load,) = event["draft_loads"]
    assert (load["names"], load["into"], load["error"]) == (2, ["model.fc.weight"], "")
    assert load["unused"] == ["model.layers.3.mlp.down_proj.weight"], (
        "the target's own, also offered to the draft"
    )
    draft = emptied["weights"]["drafts"][0]
    assert [(one["kind"], one["name"]) for one in draft["oddities"]] == [("all zero", "model.fc.weight")]
    assert draft["statuses"] == start["weights"]["drafts"][0]["statuses"], "what an update leaves alone stays"
    assert restored["weights"]["event"]["changed"] == [FC]
    assert by_name(restored) == by_name(start)
    assert released["weights"]["event"]["tags"] == ["weights"]
    assert all("hash" not in one for one in by_name(released).values()), "released memory is not read"
    assert released["weights"]["target"]["tensors"] == {}
    assert resumed["weights"]["event"]["changed"] == []
    assert by_name(resumed) == by_name(start)


def test_lost_weights_and_a_lost_map_are_named(tmp_path: Path) -> None:
    draft = write_variant("lost-weights", tmp_path / "draft", write_variant("no-d2t", tmp_path / "no-d2t"))
    receiver = Receiver()
    with Server(tmp_path, speculation(CHAIN, draft), traced(receiver)):
        told = receiver.wait("the engine", lambda t: bool(t.engines))
    receiver.close()
    start = told.engines[0]
    found = start["weights"]["drafts"][0]
    assert found["missing"] == ["model.layers.0.self_attn.o_proj.weight"]
    assert found["names"]["unused"] == ["midlayer.self_attn.out_proj.weight"]
    assert (found["names"]["used"], found["map"]) == ([], None)
    assert found["statuses"] == {w.LOADED: 8, w.PARTLY: 1, w.MISSING: 1, w.SHARED: 1}
    attention = by_name(start)["model.layers.0.self_attn.qkv_proj.weight"]
    assert (attention["status"], attention["filled"]) == (w.PARTLY, 0.75)
    levels = {(one["kind"], one["name"]): one["level"] for one in found["oddities"]}
    assert levels["missing", "model.layers.0.self_attn.o_proj.weight"] == "check"
    assert levels["partly loaded", "model.layers.0.self_attn.qkv_proj.weight"] == "check"
    assert levels["unused", "midlayer.self_attn.out_proj.weight"] == "check"
    vocabulary = next(one for one in start["differences"] if one["field"] == "draft_vocabulary")
    assert (vocabulary["level"], vocabulary["draft"], vocabulary["target"]) == ("check", 640, 1024)
