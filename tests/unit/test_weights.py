"""What is odd about an inventory, and that it stays small: from literals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from specscope import weights as w
from specscope.load_watch import Load, Name, Parameter
from specscope.model_differences import CHECK, NOTE
from specscope.weight_report import MAX_NAMES, MAX_TENSORS, as_json, oddities
from specscope.weight_values import MAX_READ, stride_of
from wirekit.weights import HEALTHY, LOST, NORM, VALUES


def odd(tensor: w.Tensor, init_std: float | None = 0.02) -> dict[str, str]:
    """The kinds of what is odd about one tensor, with their levels."""
    return {one.kind: one.level for one in oddities(replace(HEALTHY, tensors=(tensor,), init_std=init_std))}


def matrix(status: str = w.LOADED, **more: Any) -> w.Tensor:
    given: dict[str, Any] = {"values": VALUES, **more}
    return w.Tensor("model.fc.weight", (128, 128), "float32", status, **given)


def test_a_healthy_draft_has_nothing_odd() -> None:
    assert oddities(HEALTHY) == []
    assert (HEALTHY.unused, HEALTHY.used) == ([], ["d2t"])


def test_what_was_lost_comes_first() -> None:
    found = [(one.kind, one.name) for one in oddities(LOST) if one.level == CHECK]
    assert found == [
        ("missing", "model.layers.0.self_attn.o_proj.weight"),
        ("all zero", "model.layers.0.self_attn.o_proj.weight"),
        ("partly loaded", "model.layers.0.self_attn.qkv_proj.weight"),
        ("unused", "midlayer.self_attn.out_proj.weight"),
    ]
    assert [one.kind for one in oddities(LOST, own_checkpoint=False)] == [
        "missing",
        "all zero",
        "partly loaded",
    ]


@pytest.mark.parametrize(
    ("tensor", "kinds"),
    [
        (matrix(w.MISSING), {"missing": CHECK}),
        (matrix(w.PARTLY, filled=0.5), {"partly loaded": CHECK}),
        (matrix(w.UNSEEN), {}),
        (matrix(w.UNKNOWN), {}),
        (matrix(w.SHARED, shared_with="x"), {}),
        (matrix(w.SHARED, shared_with="x", sources=("fc.weight",)), {"replaced by the target's": NOTE}),
        (
            replace(matrix(w.SHARED, shared_with="x", sources=("lm_head.weight",)), name="lm_head.weight"),
            {"replaced by the target's": CHECK},
        ),
        (matrix(equal_to="x"), {"copy of the target's": NOTE}),
        (matrix(values=None), {}),
        (matrix(values=replace(VALUES, nonfinite=3)), {"not finite": CHECK}),
        (matrix(values=replace(VALUES, zeros=16384)), {"all zero": CHECK}),
        (replace(matrix(values=replace(VALUES, zeros=16384)), name="fc.bias"), {}),
        (matrix(values=replace(VALUES, std=0.0201)), {"as initialised": NOTE}),
        (matrix(w.UNKNOWN, values=replace(VALUES, std=0.0201)), {"as initialised": CHECK}),
        (matrix(values=replace(VALUES, std=0.0201, read=100)), {}),
        (replace(matrix(), name="model.norm.weight", shape=(128,), values=NORM), {}),
        (
            replace(matrix(), name="model.norm.weight", shape=(128,), values=replace(NORM, mean=0.01)),
            {"norm near zero": CHECK},
        ),
    ],
)
def test_each_oddity_and_what_is_none(tensor: w.Tensor, kinds: dict[str, str]) -> None:
    assert odd(tensor) == kinds


def test_without_an_initialiser_nothing_is_untrained() -> None:
    untrained = matrix(values=replace(VALUES, std=0.02))
    assert odd(untrained, None) == {}
    assert "std_to_init" not in as_json(replace(HEALTHY, tensors=(untrained,), init_std=None))["tensors"][0]


def test_the_report_is_bounded_and_counts_the_rest() -> None:
    many = tuple(replace(matrix(w.MISSING), name=f"layer.{n}.weight") for n in range(3 * MAX_TENSORS))
    names = {f"lost.{n}": Name((1,), "float32") for n in range(3 * MAX_NAMES)}
    found = as_json(replace(HEALTHY, tensors=many, names=names))
    assert (len(found["tensors"]), found["tensors_left_out"]) == (MAX_TENSORS, 2 * MAX_TENSORS)
    assert (len(found["names"]["unused"]), found["names"]["unused_count"]) == (MAX_NAMES, 3 * MAX_NAMES)
    assert (len(found["missing"]), found["statuses"]) == (MAX_NAMES, {w.MISSING: 3 * MAX_TENSORS})
    assert len(found["oddities"]) + found["oddities_left_out"] == 3 * (MAX_TENSORS + MAX_NAMES)
    assert len(json.dumps(found)) < 128 << 10
    several = [as_json(replace(HEALTHY, tensors=many, names=names), parts=7) for _ in range(7)]
    assert sum(len(one["tensors"]) for one in several) <= MAX_TENSORS
    assert len(json.dumps(several)) < 128 << 10


def test_what_is_not_known_is_left_out_and_never_zero() -> None:
    unread = as_json(replace(HEALTHY, tensors=(matrix(values=None),)))["tensors"][0]
    assert unread == {"name": "model.fc.weight", "shape": [128, 128], "dtype": "float32", "status": w.LOADED}
    assert as_json(replace(HEALTHY, reason="load format dummy", names={}))["observed"] is False


def test_loads_of_one_model_are_told_together() -> None:
    assert w.together([]) is None
    first = Load(
        names={"a": Name((4,), "float32", True, ["x"])},
        parameters={"x": Parameter(4, 4, ["a"]), "y": Parameter(4, 0, [], False)},
    )
    update = Load(
        names={"b": Name((2,), "float32", True, ["x"])},
        parameters={"x": Parameter(4, 2, ["b"]), "y": Parameter(4, 0), "z": Parameter(1, 1, ["c"])},
    )
    whole = w.together([first, update])
    assert whole is not None
    assert list(whole.names) == ["a"], "an update's names are the update's"
    assert {name: fate.filled for name, fate in whole.parameters.items()} == {"x": 4, "y": 0, "z": 1}
    assert whole.parameters["x"].sources == ["a"], "a part does not unload the rest"


def test_changes_are_named_in_order() -> None:
    before = {"a": "1", "b": "2", "c": "3"}
    assert w.changed(before, {"a": "1", "b": "9", "d": "4"}) == ["b", "c", "d"]
    assert w.changed(before, dict(before)) == []


@pytest.mark.parametrize(
    "shape", [(1,), (4096,), (2048, 1024), (128256, 4096), (3, 5, 700001), (MAX_READ + 1,)]
)
def test_a_sample_is_bounded_and_meets_every_column(shape: tuple[int, ...]) -> None:
    elements = 1
    for size in shape:
        elements *= size
    stride = stride_of(shape)
    assert -(-elements // stride) <= MAX_READ
    if elements <= MAX_READ:
        assert stride == 1
    else:
        columns = {at * stride % shape[-1] for at in range(min(shape[-1], 5000))}
        assert len(columns) == min(shape[-1], 5000)
