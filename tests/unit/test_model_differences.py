"""What a checkpoint states, and where draft, checkpoint and target differ: from literals."""

from __future__ import annotations

from typing import Any

import pytest
from specscope.model_differences import CHECK, NOTE, Difference, differences
from specscope.model_facts import stated

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 4096,
    "num_hidden_layers": 1,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
BUILT = stated(LLAMA) | {"head_vocab": 32000, "map": True, "fc_in": 12288}
TARGET = stated(LLAMA | {"num_hidden_layers": 32, "draft_vocab_size": None}) | {
    "aux_layers": [1, 15, 28],
    "max_served": 8192,
}


def found(
    checkpoint: dict[str, Any] | None = None,
    built: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
) -> dict[str, Difference]:
    """The differences of the healthy pair with these changes, by field."""
    all_three = (stated(LLAMA) | (checkpoint or {}), BUILT | (built or {}), TARGET | (target or {}))
    return {one.field: one for one in differences(*all_three)}


def test_a_healthy_pair_has_notes_only() -> None:
    healthy = found()
    assert {name: one.level for name, one in healthy.items()} == {
        "aux_layer_ids": NOTE,
        "draft_vocabulary": NOTE,
    }
    assert (healthy["draft_vocabulary"].draft, healthy["draft_vocabulary"].target) == (32000, 128256)


@pytest.mark.parametrize(
    ("field", "checkpoint", "built", "target", "says"),
    [
        ("rope_theta", None, {"rope_theta": 10000.0}, None, "built the draft otherwise"),
        ("rope_theta", {"rope_theta": 1e4}, {"rope_theta": 1e4}, None, "different bases"),
        ("rope_scaling", None, {"rope_scaling": {"type": "default"}}, None, "F13"),
        ("norm_eps", None, {"norm_eps": 1e-6}, None, "another epsilon"),
        ("norm_flags", {"norm_flags": ["norm_before_fc"]}, None, None, "F06"),
        ("num_hidden_layers", None, {"num_hidden_layers": 2}, None, "F08"),
        ("vocab_size", None, {"vocab_size": 128000}, None, "F11"),
        ("draft_vocabulary", None, {"map": False}, None, "no map (d2t)"),
        ("draft_vocabulary", None, {"head_vocab": 130000}, None, "out of range"),
        ("max_positions", None, {"max_positions": 2048}, None, "serves up to 8192 tokens"),
        ("dtype", None, {"dtype": "float16"}, None, "F12"),
        ("dtype", None, None, {"dtype": "float16"}, "cast between them"),
        ("quantization", {"quantization": "fp8"}, None, None, "another method"),
        ("aux_layer_ids", {"aux_layer_ids": [1, 15, 27]}, None, None, "other layers"),
        ("aux_layer_ids", {"aux_layer_ids": [2, 16, 29]}, None, {"aux_layers": [2, 16, 29]}, "*inputs*"),
        ("aux_layer_ids", None, None, {"aux_layers": [1, 1, 28]}, "twice"),
        ("aux_layer_ids", None, None, {"aux_layers": []}, "no aux hidden states"),
        ("use_aux_hidden_state", {"use_aux": False}, None, None, "fc takes"),
    ],
)  # fmt: skip
def test_each_fault_is_a_difference_to_check(
    field: str,
    checkpoint: dict[str, Any] | None,
    built: dict[str, Any] | None,
    target: dict[str, Any] | None,
    says: str,
) -> None:
    one = found(checkpoint, built, target)[field]
    assert one.level == CHECK
    assert says in f"{one.why} {one.draft}"


def test_what_is_not_known_is_no_difference() -> None:
    nothing = stated({})
    unknown = {
        "rope_scaling": None, "quantization": None, "norm_flags": None,
        "head_vocab": None, "map": None, "aux_layers": None,
    }  # fmt: skip
    assert differences(nothing | unknown, BUILT | unknown, nothing | unknown) == []
    assert differences({}, {}, {}) == []


def test_a_wider_type_and_a_quantised_target_are_notes() -> None:
    wider = found(built={"dtype": "float32"}, target={"dtype": "float32"})["dtype"]
    assert (wider.checkpoint, wider.draft, wider.level) == ("bfloat16", "float32", NOTE)
    quantised = found(target={"quantization": "fp8"})["quantization"]
    assert (quantised.draft, quantised.target, quantised.level) == ("none", "fp8", NOTE)


def test_stated_reads_each_way_of_writing_a_configuration() -> None:
    eagle = stated(
        LLAMA | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3], "norm_output": True}}
    )
    assert (eagle["aux_layer_ids"], eagle["norm_flags"], eagle["use_aux"]) == (
        [1, 2, 3],
        ["norm_output"],
        None,
    )
    assert eagle["rope_scaling"] == {"type": "llama3", "factor": 8.0}
    nested = stated(
        {
            "transformer_layer_config": {
                **LLAMA,
                "rope_parameters": {"rope_type": "default", "rope_theta": 7.0},
            },
            "eagle_aux_hidden_state_layer_ids": [2, 16, 29],
            "draft_vocab_size": 64,
            "dtype": "torch.float16",
            "quantization_config": {"quant_method": "fp8"},
        }
    )
    assert (nested["rope_theta"], nested["rope_scaling"]) == (7.0, {"type": "default"})
    assert (nested["aux_layer_ids"], nested["draft_vocab_size"]) == ([2, 16, 29], 64)
    assert (nested["dtype"], nested["quantization"], nested["hidden_size"]) == ("float16", "fp8", 4096)
    assert stated({"rope_scaling": {"type": "linear", "factor": 2}})["rope_scaling"] == {
        "type": "linear",
        "factor": 2,
    }
    assert stated({"quantization_config": {"bits": 4}})["quantization"] == "unnamed"
