"""Inventories of draft weights from literals, and the engine records that carry them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specscope import model_differences, weight_report
from specscope import weights as w
from specscope.load_watch import Name
from specscope.model_facts import stated
from specscope.weight_values import Values

VALUES = Values(
    elements=16384, read=16384, mean=0.001, std=0.13, max_abs=1.5, nonfinite=0, zeros=0, hash="00" * 8
)
NORM = replace(VALUES, elements=128, read=128, mean=1.7, hash="11" * 8)

HEALTHY = w.Inventory(
    model="LlamaForCausalLMEagle3",
    reason="",
    names={
        "fc.weight": Name((128, 384), "bfloat16", read=True, into=["model.fc.weight"]),
        "norm.weight": Name((128,), "bfloat16", read=True, into=["model.norm.weight"]),
        "d2t": Name((320,), "int64", read=True),
        "t2d": Name((512,), "bool"),
    },
    ignored=frozenset({"t2d"}),
    tensors=(
        w.Tensor(
            "model.embed_tokens.weight", (512, 128), "float32", w.SHARED,
            shared_with="model.embed_tokens.weight", values=VALUES,
        ),
        w.Tensor("model.fc.weight", (128, 384), "float32", w.LOADED, ("fc.weight",), 1.0, values=VALUES),
        w.Tensor("model.norm.weight", (128,), "float32", w.LOADED, ("norm.weight",), 1.0, values=NORM),
    ),
    init_std=0.02,
)  # fmt: skip
"""Everything of a small EAGLE-3 draft where it belongs."""

LOST = replace(
    HEALTHY,
    names={**HEALTHY.names, "midlayer.self_attn.out_proj.weight": Name((128, 128), "bfloat16")},
    tensors=(
        *HEALTHY.tensors,
        w.Tensor(
            "model.layers.0.self_attn.o_proj.weight", (128, 128), "float32", w.MISSING, filled=0.0,
            values=replace(VALUES, mean=0.0, std=0.0, max_abs=0.0, zeros=16384),
        ),
        w.Tensor(
            "model.layers.0.self_attn.qkv_proj.weight", (256, 256), "float32", w.PARTLY,
            ("midlayer.self_attn.q_proj.weight", "midlayer.self_attn.v_proj.weight"), 0.75,
            values=replace(VALUES, read=1024, elements=65536),
        ),
    ),
)  # fmt: skip
"""One name dropped, one tensor left as it was made, another in part."""


def told(
    inventory: w.Inventory, version: int = 0, event: dict[str, Any] | None = None, mapped: bool = True
) -> dict[str, Any]:
    """The parts of an engine's configuration that tell of weights."""
    draft = weight_report.as_json(inventory) | {"load_format": "auto", "map": None}
    if mapped:
        draft["map"] = {"rows": 320, "least": 1, "largest": 510, "hash": "22" * 8, "in_use": True}
    checkpoint = stated({"draft_vocab_size": 320, "torch_dtype": "bfloat16", "rope_theta": 10000.0})
    built = checkpoint | {"dtype": "float32", "head_vocab": 320, "map": mapped, "fc_in": 384}
    target = stated({"vocab_size": 512, "torch_dtype": "float32", "hidden_size": 128})
    target |= {"aux_layers": [1, 3, 4]}
    return {
        "weights": {"version": version, "event": event or {}, "drafts": [draft], "target": {"tensors": {}}},
        "differences": model_differences.as_json(model_differences.differences(checkpoint, built, target)),
    }
