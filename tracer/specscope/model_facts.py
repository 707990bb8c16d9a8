"""What a checkpoint's ``config.json`` states of a model, under one set of names whatever wrote the file.

The same names describe the draft and the target as built (:mod:`specscope.model_differences` compares the
three), so that what an engine made of a checkpoint can be held against it. ``None``: not stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

Facts = dict[str, Any]

NORM_FLAGS: Final = (
    "norm_before_residual",
    "norm_before_fc",
    "norm_output",
    "fc_norm",
    "use_aux_norm",
)
_SAME: Final = (
    "architectures",
    "model_type",
    "hidden_size",
    "target_hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "draft_vocab_size",
    "initializer_range",
    "partial_rotary_factor",
    "sliding_window",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)
_ROPE_PARTS: Final = ("rope_theta", "rope_type", "type")


def stated(config: Mapping[str, Any]) -> Facts:
    """Return what a configuration states: its own keys, those of its text model and of its EAGLE part.

    Keys: ``rope_theta``, ``rope_scaling`` (``{"type": "default"}`` for none), ``max_positions``,
    ``norm_eps``, ``norm_flags`` (those that are set), ``aux_layer_ids`` (as written), ``use_aux``,
    ``dtype``, ``quantization``, and further ones under their own name.
    """
    base = _text_model(config)
    eagle = _mapping(config.get("eagle_config")) | _mapping(base.get("eagle_config"))
    rope = _mapping(base.get("rope_parameters")) or _mapping(base.get("rope_scaling"))
    ids = _first(eagle, "eagle_aux_hidden_state_layer_ids")
    if ids is None:
        ids = _first(config, "eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids")
    facts: Facts = {name: _first(config, name) if name in config else base.get(name) for name in _SAME}
    facts |= {
        "rope_theta": rope.get("rope_theta", base.get("rope_theta")),
        "rope_scaling": scaling(rope),
        "max_positions": base.get("max_position_embeddings"),
        "norm_eps": _first(base, "rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon"),
        "norm_flags": sorted(n for n in NORM_FLAGS if eagle.get(n) or config.get(n) or base.get(n)),
        "aux_layer_ids": list(cast("list[int]", ids)) if isinstance(ids, list | tuple) else None,
        "use_aux": eagle.get("use_aux_hidden_state"),
        "dtype": _dtype(_first(config, "dtype", "torch_dtype") or _first(base, "dtype", "torch_dtype")),
        "quantization": quantization(config.get("quantization_config")),
    }
    return facts


def scaling(rope: Mapping[str, Any]) -> Facts:
    """Return a rope's scaling without its theta: ``{"type": "default"}`` where nothing is scaled."""
    kind = _first(rope, "rope_type", "type") or "default"
    rest = {key: value for key, value in rope.items() if key not in _ROPE_PARTS and value is not None}
    return {"type": kind} if kind == "default" else {"type": kind} | dict(sorted(rest.items()))


def quantization(config: object) -> str:
    """Return the method of a ``quantization_config``, ``none`` where there is none."""
    found = _mapping(config)
    method = _first(found, "quant_method", "quant_algo", "quantization_method")
    return str(method) if method else ("unnamed" if found else "none")


def _text_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part that describes the language model: speculators and multimodal files nest it."""
    for name in ("transformer_layer_config", "text_config", "language_config", "llm_config"):
        nested = _mapping(config.get(name))
        if nested:
            return nested
    return config


def _mapping(value: object) -> Facts:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _first(config: Mapping[str, Any], *names: str) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _dtype(value: object) -> str | None:
    return None if value is None else str(value).removeprefix("torch.")
