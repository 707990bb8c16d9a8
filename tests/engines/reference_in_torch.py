"""Checks of ``specscope fingerprint`` where torch and transformers are, against the training's own loop.

Run by ``test_reference_in_torch.py`` under the interpreter that has torch. Prints a JSON object: the
traceback of each check, empty where it passed.
"""

from __future__ import annotations

import functools
import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from check_report import report
from specscope import hidden, reference_file, tensorstats
from specscope.reference import Problem, draft_layer, make, run
from specscope.reference.command import fingerprint
from specscope.reference.draft import Draft
from specscope.reference.make import Wanted
from specscope.reference.tensors import norms
from specscope.reference_file import Facts, Passage
from specscope.weight_values import values

torch: Any = importlib.import_module("torch")
safetensors: Any = importlib.import_module("safetensors.torch")
TINY = Path(__file__).resolve().parents[2] / "models" / "tiny"
PROMPTS = TINY / "prompts-with-references.json"
WANTED = Wanted(TINY / "target", TINY / "draft", PROMPTS, None, 0, "cpu", "float32")
SLOTS = (2, 4, 5)


def silent(_: str) -> None: ...
def unused(rows: Any, ids: Sequence[int]) -> None: ...


@contextmanager
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def made(wanted: Wanted) -> tuple[Facts, list[Passage]]:
    facts, stored = reference_file.read(make.make(wanted, silent))
    return facts, [one.passage() for one in stored]


@functools.cache
def whole() -> tuple[Facts, list[Passage]]:
    return made(WANTED)


@functools.cache
def loop() -> tuple[Any, Any]:
    """The target of the training's reference loop and its configuration."""
    sys.path.insert(0, str(TINY / "train"))
    config, target, _ = importlib.import_module("spec").load(str(TINY / "target"), str(TINY / "draft"))
    return config, target


def aux_of_loop(ids: tuple[int, ...]) -> Any:
    with torch.no_grad():
        _, states, _ = loop()[1](torch.tensor([list(ids)]), aux=set(SLOTS))
    return torch.cat([states[layer][0] for layer in SLOTS], dim=-1)


def near(passage: Passage, place: str, slot: int, rows: Any) -> None:
    """Check a track against rows [positions, H]."""
    (track,) = [one for one in passage.tracks if (one.place, one.slot) == (place, slot)]
    found = tensorstats.reduce(rows.float().contiguous(), 1, projections=True).numpy()[:, 0]
    rms = np.sqrt(found[:, 0] ** 2 + found[:, 1])
    assert track.rms.shape == rms.shape, (place, track.rms.shape, rms.shape)
    np.testing.assert_allclose(track.rms, rms, rtol=1e-4)
    np.testing.assert_allclose(track.projections, found[:, 6:], atol=float(1e-4 * rms.max()))


def aux_states_are_those_of_the_reference_loop() -> None:
    facts, passages = whole()
    assert facts.aux_layers == SLOTS
    assert len(passages) == 18
    for one in passages:
        states = aux_of_loop(one.ids)
        for slot, rows in enumerate(states.chunk(3, dim=-1)):
            near(one, hidden.FED, slot, rows)


def fc_and_embeddings_are_those_of_the_checkpoints() -> None:
    facts, passages = whole()
    weight = safetensors.load_file(TINY / "draft" / "model.safetensors")["fc.weight"].float()
    table = safetensors.load_file(TINY / "target" / "model.safetensors")["model.embed_tokens.weight"]
    for one in passages[::6]:
        near(one, hidden.FC_OUT, 0, aux_of_loop(one.ids) @ weight.T)
        near(one, hidden.EMBEDDING, 0, table[list(one.ids[1:])])
    assert facts.same_as == {hidden.AUX_CAPTURE: hidden.FED, hidden.FC_IN: hidden.FED}


def one_prompt(place: Path, draft: Path) -> Wanted:
    file = place / "one.json"
    file.write_text(json.dumps(json.loads(PROMPTS.read_text())[:1]))
    return replace(WANTED, draft=draft, prompts=file)


def carry_of_loop(ids: tuple[int, ...], draft: Path) -> tuple[Any, Any]:
    """What the training's own loop makes of a sequence: the carry of each position, and its final norm."""
    spec: Any = importlib.import_module("spec")
    config, target, front = spec.load(str(TINY / "target"), str(draft))
    with torch.no_grad():
        one = spec.Spec(config, target, front)
        fed = front.fc(aux_of_loop(ids)[:-1])
        _, carry = one.dlayer(torch.tensor(ids[1:]), fed, torch.arange(len(ids) - 1), [])
        return carry, front.norm(carry)


def the_drafts_layer_leaves_what_the_reference_loop_says() -> None:
    for one in whole()[1]:
        near(one, hidden.CARRY, 0, carry_of_loop(one.ids, TINY / "draft")[0])
    with folder() as place:
        _, (one,) = made(one_prompt(place, drafted(place, norm_output=True)))
        near(one, hidden.CARRY, 0, carry_of_loop(one.ids, TINY / "draft")[1])
        renamed = {
            name.replace("midlayer.", "model.layers.0."): tensor
            for name, tensor in safetensors.load_file(TINY / "draft" / "model.safetensors").items()
            if name.startswith("midlayer.")
        }
        old = tuple(name.replace("model.layers.0.", "midlayer.") for name in renamed)
        _, (other,) = made(one_prompt(place, drafted(place, renamed, old)))
        near(other, hidden.CARRY, 0, carry_of_loop(other.ids, TINY / "draft")[0])


def rope_is_that_of_the_drafts_configuration() -> None:
    scaled = {"rope_type": "linear", "factor": 4.0}
    with folder() as place:
        _, (one,) = made(one_prompt(place, drafted(place, rope_theta=500.0)))
        _, (two,) = made(one_prompt(place, drafted(place, rope_scaling=scaled)))
    spec: Any = importlib.import_module("spec")
    config, target, front = spec.load(str(TINY / "target"), str(TINY / "draft"))
    table: Any = importlib.import_module("tinylm").rope_tab
    with torch.no_grad():
        for passage, theta, step in ((one, 500.0, 1.0), (two, None, 0.25)):
            front.cos, front.sin = table(config, 512, theta)
            if step < 1:  # positions divided by four: those of a table four times as fine
                width = torch.arange(0, config.hd, 2).float() / config.hd
                angles = torch.outer(torch.arange(512).float() * step, config.theta**-width)
                front.cos, front.sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))
            fed = front.fc(aux_of_loop(passage.ids)[:-1])
            following, positions = torch.tensor(passage.ids[1:]), torch.arange(len(passage.ids) - 1)
            _, carry = spec.Spec(config, target, front).dlayer(following, fed, positions, [])
            near(passage, hidden.CARRY, 0, carry)


def a_layer_that_is_not_known_is_left_out_and_said() -> None:
    bias = {"midlayer.self_attn.q_proj.bias": torch.zeros(128)}
    with folder() as place:
        for said, draft in (
            ("model_type 'qwen2'", drafted(place, model_type="qwen2")),
            ("num_hidden_layers 2", drafted(place, num_hidden_layers=2)),
            ("hidden_act 'gelu'", drafted(place, hidden_act="gelu")),
            ("partial_rotary_factor 0.5", drafted(place, partial_rotary_factor=0.5)),
            ("kind 'dynamic'", drafted(place, rope_scaling={"rope_type": "dynamic", "factor": 2.0})),
            ("several dimensions", drafted(place, rope_scaling={"mrope_section": [8, 12, 12]})),
            ("no layers.0.mlp.up_proj.weight", drafted(place, left=("midlayer.mlp.up_proj.weight",))),
            ("has self_attn.q_proj.bias in its layers", drafted(place, bias)),
            ("makes it [256, 128]", drafted(place, {"midlayer.mlp.up_proj.weight": torch.zeros(99, 128)})),
            ("has no norm.weight", drafted(place, left=("norm.weight",), norm_output=True)),
        ):
            told: list[str] = []
            wanted = one_prompt(place, draft)
            _, stored = reference_file.read(make.make(wanted, told.append))
            assert told[0].startswith("without draft.carry: ") and said in told[0], told[0]
            found = {track.place for track in stored[0].passage().tracks}
            assert found == {hidden.FED, hidden.FC_OUT, hidden.EMBEDDING}


def pieces_of_a_sequence_give_what_the_whole_gives() -> None:
    before = run.CHUNK, draft_layer.CHUNK
    run.CHUNK, draft_layer.CHUNK = 7, 11  # pyright: ignore[reportAttributeAccessIssue]
    try:
        _, pieces = made(WANTED)
    finally:
        run.CHUNK, draft_layer.CHUNK = before  # pyright: ignore[reportAttributeAccessIssue]
    for one, other in zip(whole()[1], pieces, strict=True):
        for track, wanted in zip(other.tracks, one.tracks, strict=True):
            np.testing.assert_allclose(track.rms, wanted.rms, rtol=1e-4)
            np.testing.assert_allclose(
                track.projections, wanted.projections, atol=float(1e-4 * wanted.rms.max())
            )


def the_targets_own_continuation_is_the_references_and_ends_at_its_end() -> None:
    with folder() as place:
        given = json.loads(PROMPTS.read_text())[::5]
        file = place / "prompts.json"
        file.write_text(json.dumps([{"ids": one["prompt"]} for one in given]))
        _, passages = made(replace(WANTED, draft=None, prompts=file, more=12))
        for one, wanted in zip(passages, given, strict=True):
            assert list(one.ids) == [*wanted["prompt"], *wanted["ref"][:12]]
            assert one.prompt_tokens == len(wanted["prompt"])
            assert len(one.tracks[0].rms) == len(one.ids)
        target = run.Target(TINY / "target", "cpu", "float32")
        target.model.generation_config.eos_token_id = [given[0]["ref"][3]]
        assert target.walk(given[0]["prompt"], [2], 12, unused) == [
            *given[0]["prompt"],
            *given[0]["ref"][:4],
        ]


def texts_are_tokenised_by_the_targets_tokenizer() -> None:
    with folder() as place:
        file = place / "prompts.jsonl"
        text = "The licenses for most software are designed to"
        file.write_text(json.dumps({"text": text, "name": "a"}) + "\n")
        _, (one,) = made(replace(WANTED, prompts=file))
        transformers: Any = importlib.import_module("transformers")
        assert list(one.ids) == transformers.AutoTokenizer.from_pretrained(TINY / "target")(text)["input_ids"]
        assert one.name == "a"


def the_command_writes_the_same_file_each_time_and_leaves_an_old_one_when_it_fails() -> None:
    with folder() as place:
        told: list[str] = []
        for name in ("a", "b"):
            fingerprint(WANTED, place / name, None, "default", told.append)
        assert (place / "a").read_bytes() == (place / "b").read_bytes()
        assert told[0].startswith("1 of 18: 0, 73 tokens")
        old = (place / "a").read_bytes()
        refused(
            "cannot be captured",
            lambda: fingerprint(replace(WANTED, layers=(9,)), place / "a", None, "", silent),
        )
        broken = place / "prompts.json"
        broken.write_text('[{"ids": [1]}, {"ids": [5000]}]')
        refused(
            "has the token 5000",
            lambda: fingerprint(replace(WANTED, prompts=broken), place / "a", None, "", silent),
        )
        assert (place / "a").read_bytes() == old
        assert sorted(path.name for path in place.iterdir()) == ["a", "b", "prompts.json"]


def norms_have_the_hashes_that_an_engine_tells() -> None:
    found = norms(TINY / "target")
    assert len(found) == 17
    weight = safetensors.load_file(TINY / "target" / "model.safetensors")["model.norm.weight"]
    wanted = [values(weight.to(kind)).hash for kind in (torch.float32, torch.bfloat16, torch.float16)]
    assert found["model.norm.weight"].split() == wanted
    assert norms(TINY / "second" / "target")["model.norm.weight"] != found["model.norm.weight"]


def refused(said: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Problem as problem:
        assert said in str(problem), problem
    else:
        raise AssertionError(f"not refused: {said}")


def drafted(
    place: Path, tensors: dict[str, Any] | None = None, left: tuple[str, ...] = (), **config: Any
) -> Path:
    """A draft with other tensors and settings, less the names in ``left``."""
    draft = Path(shutil.copytree(TINY / "draft", place / f"draft-{len(list(place.iterdir()))}"))
    told = json.loads((draft / "config.json").read_text()) | config
    (draft / "config.json").write_text(json.dumps(told))
    found = safetensors.load_file(draft / "model.safetensors") | (tensors or {})
    safetensors.save_file(
        {name: tensor for name, tensor in found.items() if name not in left}, draft / "model.safetensors"
    )
    return draft


def norms_before_fc_are_applied() -> None:
    torch.manual_seed(0)
    rows = torch.randn(5, 384) * 20
    table = torch.randn(1024, 128)
    slots = [torch.rand(128) + 0.5 for _ in range(3)]
    over = torch.rand(384) + 0.5
    named = {f"fc_norm.{i}.weight": one for i, one in enumerate(slots)}
    old: dict[str, Any] = dict(
        zip(("aux_norm_low.weight", "aux_norm_mid.weight", "aux_norm_high.weight"), slots, strict=True)
    )

    def unit(x: Any, weight: Any) -> Any:
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-5)

    by_slot = torch.cat([unit(x, w) for x, w in zip(rows.chunk(3, -1), slots, strict=True)], -1)
    with folder() as place:
        for draft, wanted in (
            (drafted(place, named, fc_norm=True), by_slot),
            (drafted(place, old, use_aux_norm=True), by_slot),
            (
                drafted(place, {"input_norm.weight": over}, eagle_config={"norm_before_fc": True}),
                unit(rows, over),
            ),
        ):
            front = Draft(draft, "cpu", "float32", table)
            assert front.normed and front.slots(128) == 3
            torch.testing.assert_close(front.fc_in(rows), wanted)
            weight = safetensors.load_file(draft / "model.safetensors")["fc.weight"].float()
            torch.testing.assert_close(front.fc_out(front.fc_in(rows)), wanted @ weight.T)
        bias = torch.randn(128)
        front = Draft(drafted(place, {"fc.bias": bias}, bias=True), "cpu", "float32", table)
        torch.testing.assert_close(front.fc_out(rows * 0), bias.expand(5, 128))
        normed = replace(WANTED, draft=drafted(place, named, fc_norm=True))
        facts, (one, *_) = made(normed)
        assert facts.same_as == {hidden.AUX_CAPTURE: hidden.FED}
        assert {(t.place, t.slot) for t in one.tracks} >= {(hidden.FC_IN, slot) for slot in range(3)}


def a_drafts_own_embeddings_are_taken() -> None:
    own = torch.randn(1024, 128)
    with folder() as place:
        _, (one, *_) = made(replace(WANTED, draft=drafted(place, {"embed_tokens.weight": own})))
        near(one, hidden.EMBEDDING, 0, own[list(one.ids[1:])])
        short = replace(WANTED, draft=drafted(place, {"embed_tokens.weight": own[:100]}))
        refused("its embeddings have no row", lambda: made(short))


def what_is_not_known_of_a_draft_is_refused() -> None:
    with folder() as place:
        for said, draft in (
            ("a draft of class 'MimoMTP'", drafted(place, architectures=["MimoMTP"])),
            ("a quantised draft", drafted(place, quantization_config={"quant_method": "fp8"})),
            ("no fc.weight", drafted(place, left=("fc.weight",))),
            ("asks for fc.bias, and the checkpoint has none", drafted(place, bias=True)),
            ("asks for fc_norm.0.weight", drafted(place, fc_norm=True)),
            (
                "has fc.bias, and its configuration does not say",
                drafted(place, {"fc.bias": torch.zeros(128)}),
            ),
            ("has input_norm.weight", drafted(place, {"input_norm.weight": torch.ones(384)})),
            ("takes 100 values, which are no", drafted(place, {"fc.weight": torch.zeros(128, 100)})),
            (
                "takes 2 aux hidden states, and those of layers 2, 4, 5",
                drafted(place, {"fc.weight": torch.zeros(128, 256)}),
            ),
        ):
            refused(said, functools.partial(made, replace(WANTED, draft=draft)))


def what_cannot_run_is_refused() -> None:
    if not torch.cuda.is_available():
        refused("torch sees no GPU here", lambda: made(replace(WANTED, device="cuda")))
    with folder() as place:
        broken = Path(shutil.copytree(TINY / "target", place / "broken"))
        (broken / "model.safetensors").write_bytes(b"\0" * 100)
        refused("cannot read the tensors of", lambda: made(replace(WANTED, target=broken, draft=None)))
        unknown = Path(shutil.copytree(TINY / "target", place / "unknown"))
        config = json.loads((unknown / "config.json").read_text()) | {"model_type": "soup"}
        (unknown / "config.json").write_text(json.dumps(config))
        refused("transformers cannot load", lambda: made(replace(WANTED, target=unknown, draft=None)))


CHECKS = [
    aux_states_are_those_of_the_reference_loop,
    fc_and_embeddings_are_those_of_the_checkpoints,
    the_drafts_layer_leaves_what_the_reference_loop_says,
    rope_is_that_of_the_drafts_configuration,
    a_layer_that_is_not_known_is_left_out_and_said,
    pieces_of_a_sequence_give_what_the_whole_gives,
    the_targets_own_continuation_is_the_references_and_ends_at_its_end,
    texts_are_tokenised_by_the_targets_tokenizer,
    the_command_writes_the_same_file_each_time_and_leaves_an_old_one_when_it_fails,
    norms_have_the_hashes_that_an_engine_tells,
    norms_before_fc_are_applied,
    a_drafts_own_embeddings_are_taken,
    what_is_not_known_of_a_draft_is_refused,
    what_cannot_run_is_refused,
]


if __name__ == "__main__":
    report(CHECKS)
