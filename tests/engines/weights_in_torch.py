"""Checks of what needs torch: watching a load, reading tensors, taking an inventory.

Run by ``test_sglang_weights.py`` under the interpreter that has torch. Prints a JSON object: the traceback of
each check, empty where it passed.
"""

from __future__ import annotations

import importlib
import json
import math
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from check_report import report
from specscope import token_map
from specscope import weights as w
from specscope.load_watch import Load, LoadWatch
from specscope.weight_report import as_json, oddities
from specscope.weight_values import MAX_READ, stride_of, values

if TYPE_CHECKING:
    from specscope.recorder import Recorder

TINY = Path(__file__).parents[2] / "models" / "tiny"
torch: Any = importlib.import_module("torch")
nn: Any = torch.nn

Weights = Iterable[tuple[str, Any]]


class Model(nn.Module):
    """Loads as engines do: stacked parts, a transposed one, a map that is no parameter, names dropped."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.qkv = nn.Parameter(torch.zeros(12, 4))
        self.fc = nn.Linear(4, 4)
        self.norm = nn.Parameter(torch.ones(4))
        self.embed = nn.Parameter(torch.zeros(8, 4))
        self.map: Any = None

    def load_weights(self, weights: Weights) -> str:
        parameters = dict(self.named_parameters())
        for name, tensor in weights:
            if name == "d2t":
                self.map = tensor + torch.arange(tensor.shape[0])
            elif name in ("q", "k", "v"):
                parameters["qkv"].data.narrow(0, 4 * "qkv".index(name), 4).copy_(tensor)
            elif name == "fc.turned":
                parameters["fc.weight"].data.copy_(tensor.t().contiguous())
            elif name in parameters:
                parameters[name].data.copy_(tensor)
        return "done"


SHAPES = {
    "q": (4, 4),
    "k": (4, 4),
    "v": (4, 4),
    "d2t": (6,),
    "fc.turned": (4, 4),
    "fc.bias": (4,),
    "norm": (4,),
}


def checkpoint(*names: str) -> Iterator[tuple[str, Any]]:
    """Tensors made one after the other, each gone before the next: their memory is used again."""
    for name in names:
        yield name, torch.randn(SHAPES.get(name, (4, 4)))


def watched(weights: Weights, model: Model | None = None) -> tuple[Model, Load]:
    model = model or Model()
    watch = LoadWatch(model)
    assert watch.run(model.load_weights, weights) == "done"
    return model, watch.load


def inventory(model: Any, load: Load | None, **more: Any) -> w.Inventory:
    arguments: dict[str, Any] = {
        "reason": "", "target": {}, "target_hashes": {}, "init_std": 0.02, "ignores": "t2d".__eq__,
    }  # fmt: skip
    return w.take(model, load=load, **(arguments | more))


def each_name_has_its_fate() -> None:
    _, load = watched(
        checkpoint("q", "dropped", "k", "d2t", "also dropped", "v", "fc.turned", "fc.bias", "norm")
    )
    assert load.error == ""
    fates = {name: (fate.read, fate.into) for name, fate in load.names.items()}
    assert fates["q"] == fates["k"] == fates["v"] == (True, ["qkv"])
    assert fates["fc.turned"] == (True, ["fc.weight"]), "what was made of it has another address"
    assert fates["d2t"] == (True, []), "read, and it went into no parameter"
    assert fates["dropped"] == fates["also dropped"] == (False, [])
    assert load.parameters["qkv"].filled == load.parameters["qkv"].elements == 48
    assert load.parameters["embed"].filled == 0
    assert load.parameters["embed"].changed is False


def a_loader_that_collects_first_is_told_right() -> None:
    class Collecting(Model):
        def load_weights(self, weights: Weights) -> str:
            return super().load_weights(sorted(weights, key=lambda pair: pair[0]))

    _, load = watched(checkpoint("v", "unknown", "q", "k", "norm"), Collecting())
    assert {name: fate.into for name, fate in load.names.items()} == {
        "v": ["qkv"], "unknown": [], "q": ["qkv"], "k": ["qkv"], "norm": ["norm"],
    }  # fmt: skip
    assert not load.names["unknown"].read


def what_is_not_seen_written_is_compared() -> None:
    class Threaded(Model):
        def load_weights(self, weights: Weights) -> str:
            writer = threading.Thread(target=super().load_weights, args=(list(weights),))
            writer.start()
            writer.join()
            self.fc.bias.data = torch.full((4,), 7.0)
            return "done"

    model, load = watched(checkpoint("q", "k", "v", "norm"), Threaded())
    assert load.parameters["qkv"].filled == 0
    assert {name: fate.changed for name, fate in load.parameters.items()} == {
        "qkv": True, "norm": True, "fc.bias": True, "fc.weight": False, "embed": False,
    }  # fmt: skip
    found = inventory(model, load)
    assert found.named(w.UNSEEN) == ["qkv", "norm", "fc.bias"]
    assert found.named(w.MISSING) == ["embed", "fc.weight"]


def an_error_of_ours_does_not_touch_the_load() -> None:
    model = Model()
    watch = LoadWatch(model)

    def broken(*_: Any) -> None:
        raise RuntimeError("planted")

    setattr(watch, "_attribute", broken)  # noqa: B010 - a planted error, no attribute of the class
    plain = Model()
    torch.manual_seed(1)
    assert watch.run(model.load_weights, checkpoint("q", "k", "v", "norm")) == "done"
    torch.manual_seed(1)
    plain.load_weights(checkpoint("q", "k", "v", "norm"))
    assert torch.equal(model.qkv, plain.qkv) and torch.equal(model.norm, plain.norm)
    assert watch.load.error == "RuntimeError: planted"
    found = inventory(model, watch.load)
    assert {one.status for one in found.tensors} == {w.UNKNOWN}
    assert found.reason == "RuntimeError: planted"


def an_error_of_the_load_passes_through() -> None:
    model = Model()
    watch = LoadWatch(model)
    try:
        watch.run(model.load_weights, iter([("q", torch.zeros(3, 3))]))
    except RuntimeError as error:
        assert "size" in str(error)
    else:
        raise AssertionError("the load's own error was swallowed")
    assert watch.load.error.startswith("the load failed: RuntimeError")
    assert torch.zeros(2).add(1).sum() == 2, "no mode is left behind"


def an_inventory_tells_missing_partial_shared_and_copied() -> None:
    model, load = watched(checkpoint("q", "k", "dropped", "fc.bias", "norm", "t2d"))
    target = nn.ParameterDict(
        {"embed_tokens": nn.Parameter(torch.randn(8, 4)), "head": nn.Parameter(model.fc.weight.data.clone())}
    )
    model.embed = target["embed_tokens"]
    hashes = {name: values(one.data).hash for name, one in target.items()}
    found = inventory(model, load, target=w.pointers(target), target_hashes=hashes)
    by_name = {one.name: one for one in found.tensors}
    assert (by_name["embed"].status, by_name["embed"].shared_with) == (w.SHARED, "embed_tokens")
    assert (by_name["qkv"].status, by_name["qkv"].sources) == (w.PARTLY, ("q", "k"))
    assert by_name["qkv"].filled is not None and math.isclose(by_name["qkv"].filled, 2 / 3)
    assert (by_name["fc.weight"].status, by_name["fc.weight"].equal_to) == (w.MISSING, "head")
    assert (found.unused, sorted(found.ignored), found.used) == (["dropped"], ["t2d"], [])
    kinds = {(one.kind, one.name) for one in oddities(found)}
    assert {("missing", "fc.weight"), ("partly loaded", "qkv"), ("unused", "dropped")} <= kinds
    assert ("copy of the target's", "fc.weight") in kinds
    document = as_json(found)
    assert json.loads(json.dumps(document)) == document
    assert document["statuses"] == {w.LOADED: 2, w.PARTLY: 1, w.MISSING: 1, w.SHARED: 1}
    # The embedding that the checkpoint brought and the target's took the place of is told.
    replaced, own = watched(checkpoint("norm", "embed2"))
    own.parameters["embed"].sources.append("embed")
    replaced.embed = target["embed_tokens"]
    late = oddities(inventory(replaced, own, target=w.pointers(target), target_hashes=hashes))
    assert "replaced by the target's" in {one.kind for one in late}


def of_very_many_unused_names_some_are_kept_and_all_counted() -> None:
    model, load = watched(checkpoint("q", *(f"other.{n}" for n in range(2500)), "norm"))
    assert (len(load.names), load.more_unused) == (1002, 1500)
    names = as_json(inventory(model, load))["names"]
    assert (names["all"], names["unused_count"], names["loaded"]) == (2502, 2500, 2)


def an_update_adds_to_what_was_loaded() -> None:
    model, first = watched(checkpoint("q", "k", "v", "fc.turned", "fc.bias", "norm"))
    before = inventory(model, first)
    update = LoadWatch(model, probe=False)
    update.run(model.load_weights, checkpoint("norm", "nobody's"))
    whole = w.together([first, update.load])
    after = inventory(model, whole)
    assert after.named(w.MISSING) == before.named(w.MISSING) == ["embed"]
    assert after.named(w.LOADED) == before.named(w.LOADED)
    assert list(after.names) == list(before.names)
    assert w.changed(before.hashes, after.hashes) == ["norm"]
    assert w.changed(after.hashes, after.hashes) == []


def without_an_observed_load_nothing_is_missing() -> None:
    found = inventory(Model(), None, reason="load format dummy does not go through load_weights")
    assert {one.status for one in found.tensors} == {w.UNKNOWN}
    assert [one.kind for one in oddities(found) if one.kind in ("missing", "unused")] == []
    assert as_json(found)["observed"] is False
    unread = inventory(Model(), None, readable=False)
    assert all(one.values is None for one in unread.tensors) and unread.hashes == {}


def values_are_those_of_the_tensor() -> None:
    torch.manual_seed(3)
    tensor = torch.randn(64, 32) * 3 + 1
    read = values(tensor)
    assert (read.elements, read.read, read.nonfinite, read.zeros) == (2048, 2048, 0, 0)
    assert read.mean is not None and math.isclose(read.mean, float(tensor.double().mean()), rel_tol=1e-9)
    assert read.std is not None and math.isclose(
        read.std, float(tensor.double().std(correction=0)), rel_tol=1e-9
    )
    assert read.max_abs == float(tensor.abs().max())
    assert values(tensor.clone()).hash == read.hash
    assert values(tensor.view(32, 64)).hash != read.hash, "another shape"
    assert values(tensor.to(torch.float64)).hash != read.hash, "another type"
    tensor[5, 5] += 1
    assert values(tensor).hash != read.hash
    tensor[0, :3] = torch.tensor([float("nan"), float("inf"), 0.0])
    odd = values(tensor)
    assert (odd.nonfinite, odd.zeros) == (2, 1) and odd.mean is not None and math.isfinite(odd.mean)
    assert values(torch.full((3,), float("nan"))).mean is None
    assert values(torch.zeros(0, 4)).read == 0
    assert values(torch.tensor(2.5)).mean == 2.5
    assert (
        values(torch.ones(4, dtype=torch.bfloat16)).mean
        == values(torch.ones(4, dtype=torch.float8_e4m3fn)).mean
        == 1
    )
    assert values(torch.tensor([1, 2, 3])).mean == 2


def of_a_large_tensor_a_fixed_sample_is_read() -> None:
    torch.manual_seed(4)
    large = torch.randn(2048, 1024)
    stride = stride_of(large.shape)
    assert stride > 1 and math.gcd(stride, 1024) == 1, "every column is met"
    read = values(large)
    assert (read.elements, read.read) == (2048 * 1024, -(-2048 * 1024 // stride))
    assert read.read <= MAX_READ
    assert read.std is not None and abs(read.std - 1) < 0.01
    assert values(large.clone()).hash == read.hash
    large[0, 0] += 1  # the first element is always read
    assert values(large).hash != read.hash
    turned = values(torch.randn(1024, 4096).t())
    assert turned.read <= MAX_READ and turned.std is not None and abs(turned.std - 1) < 0.01


def untrained_and_shifted_weights_are_odd() -> None:
    model = Model()
    model.fc = nn.Linear(128, 128)
    nn.init.normal_(model.fc.weight, std=0.02)
    model.norm.data.zero_()
    model.qkv.data[0, 0] = float("nan")
    found = {(one.kind, one.name): one.level for one in oddities(inventory(model, None))}
    assert found["as initialised", "fc.weight"] == "check"
    assert found["norm near zero", "norm"] == "check"
    assert found["not finite", "qkv"] == "check"
    assert found["all zero", "embed"] == "check"
    nn.init.normal_(model.fc.weight, std=0.1)
    model.norm.data.fill_(1)
    left = {(one.kind, one.name) for one in oddities(inventory(model, None))}
    assert left == {("not finite", "qkv"), ("all zero", "embed")}


class Steps:
    """Stands for the path, whose steps carry the version."""

    weight_version = 0


class Heard:
    """A recorder that keeps what it is handed."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def emit(self, record: Any) -> None:
        self.records.append(record)

    def add_engine_time(self, _ns: int) -> None:
        pass

    def hook_failed(self, _name: str, error: BaseException) -> bool:
        raise AssertionError("a hook failed") from error


def lora_and_sessions_reach_us_through_the_dispatcher() -> None:
    """SGLang's own dispatcher and requests; LoRA itself needs pinned memory, which a CPU engine has not."""
    from specscope.engines.sglang import weight_events
    from specscope.engines.sglang.loaded import Loaded
    from specscope.identity import Ranks

    io: Any = importlib.import_module("sglang.srt.managers.io_struct")
    utils: Any = importlib.import_module("sglang.utils")
    lora = io.LoRAUpdateOutput
    answers = {
        io.LoadLoRAAdapterReqInput: [lora(success=True), lora(success=False, error_message="no such file")],
        io.UnloadLoRAAdapterReqInput: [lora(success=True)],
        io.UpdateWeightsFromTensorReqInput: [io.UpdateWeightsFromTensorReqOutput(success=True, message="")]
        * 3,
        io.EndWeightUpdateReqInput: [
            io.EndWeightUpdateReqOutput(success=True, message=""),
            io.EndWeightUpdateReqOutput(success=False, message="no weight-update session is open"),
        ],
    }

    def answer(kind: Any) -> Callable[[Any], Any]:
        return lambda _request: answers[kind].pop(0)

    dispatcher = utils.TypeBasedDispatcher([(kind, answer(kind)) for kind in answers])
    target = Model()
    config = SimpleNamespace(
        model_path="target", vocab_size=8, context_len=64, hf_config=SimpleNamespace(to_dict=dict)
    )
    loaded = Loaded(
        scheduler=SimpleNamespace(
            _request_dispatcher=dispatcher,
            weight_updater=SimpleNamespace(offload_tags=set()),
            spec_algorithm=SimpleNamespace(is_none=lambda: True),
        ),
        server_args=SimpleNamespace(model_path="target"),
        algorithm="NONE",
        ranks=Ranks(),
        emits=True,
        target_runner=SimpleNamespace(model=target, model_config=config, device="cpu", dtype=torch.float32),
    )
    heard, steps = Heard(), Steps()
    events = weight_events.WeightEvents(loaded, cast("Recorder", heard))
    events.config()
    refused = events.install(steps)
    assert [text.split()[4] for text in refused] == [
        name for name in weight_events.EVENTS if name not in {kind.__name__ for kind in answers}
    ]  # fmt: skip

    def newest() -> tuple[str, int, dict[str, Any]]:
        record = heard.records[-1]
        return record.event, record.config["weights"]["version"], record.config["weights"]["event"]

    adapter = io.LoadLoRAAdapterReqInput(lora_name="poet", lora_path="adapters/poet")
    assert dispatcher(adapter).success
    name, version, event = newest()
    assert (name, version, event["success"], event["lora_name"]) == ("lora_load", 1, True, "poet")
    assert not dispatcher(adapter).success
    name, version, event = newest()
    assert (version, event["success"], event["message"]) == (1, False, "no such file"), "nothing changed"
    dispatcher(io.UnloadLoRAAdapterReqInput(lora_name="poet"))
    assert newest()[:2] == ("lora_unload", 2)
    # An update in three parts is one event, and steps between the parts run on its version already.
    told = len(heard.records)
    for _ in range(3):
        dispatcher(io.UpdateWeightsFromTensorReqInput(serialized_named_tensors=[]))
        target.norm.data += 1
        assert (len(heard.records), steps.weight_version) == (told, 3)
    dispatcher(io.EndWeightUpdateReqInput())
    name, version, event = newest()
    assert (name, version, event["parts"], event["changed"]) == ("weight_update", 3, 3, ["target: norm"])
    assert not dispatcher(io.EndWeightUpdateReqInput()).success
    assert (len(heard.records), steps.weight_version) == (told + 1, 3), (
        "no session was open: nothing happened"
    )


def a_map_is_held_against_its_checkpoint() -> None:
    stated = token_map.of_checkpoint(TINY / "draft")
    offsets, right = stated["d2t"], stated["d2t"] + torch.arange(640)
    sound = {"distinct": 640, "as_checkpoint": True, "outside_t2d": 0}
    assert token_map.held_against(right, stated) == sound
    wrong = {
        "taken for absolute ids": offsets,
        "applied twice": right + torch.arange(640),
        "lost": torch.arange(640),
        "off by one": right.roll(1),
    }
    for name, one in wrong.items():
        assert not token_map.held_against(one, stated)["as_checkpoint"], name
    assert token_map.held_against(offsets, stated)["distinct"] == 148
    # A checkpoint whose own d2t holds absolute ids: only its t2d tells.
    absolute = {**stated, "d2t": right}
    told = token_map.held_against(right + torch.arange(640), absolute)
    assert told["as_checkpoint"], told
    assert told["outside_t2d"] > 300, told
    assert token_map.held_against(torch.tensor([-1, 5000]), stated)["outside_t2d"] == 2


def a_map_without_a_checkpoint_at_hand_is_told_alone() -> None:
    for folder in ("org/name", "/nowhere", str(TINY / "train")):
        assert token_map.of_checkpoint(folder) == {}, folder
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.safetensors").write_bytes(b"no safetensors at all")
        assert token_map.of_checkpoint(folder) == {}
    assert token_map.held_against(torch.arange(9), {}) == {"distinct": 9}


CHECKS: tuple[Callable[[], None], ...] = (
    a_map_is_held_against_its_checkpoint,
    a_map_without_a_checkpoint_at_hand_is_told_alone,
    each_name_has_its_fate,
    a_loader_that_collects_first_is_told_right,
    what_is_not_seen_written_is_compared,
    an_error_of_ours_does_not_touch_the_load,
    an_error_of_the_load_passes_through,
    an_inventory_tells_missing_partial_shared_and_copied,
    of_very_many_unused_names_some_are_kept_and_all_counted,
    an_update_adds_to_what_was_loaded,
    without_an_observed_load_nothing_is_missing,
    values_are_those_of_the_tensor,
    of_a_large_tensor_a_fixed_sample_is_read,
    untrained_and_shifted_weights_are_odd,
    lora_and_sessions_reach_us_through_the_dispatcher,
)


if __name__ == "__main__":
    report(CHECKS)
