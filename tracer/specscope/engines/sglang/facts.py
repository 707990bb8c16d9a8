"""The engine's configuration, once per process: versions, arguments, models, and how they were joined."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from specscope.engines.sglang.loaded import Loaded
from specscope.records import EngineFacts
from specscope.settings import without_userinfo

ENGINE: Final = "sglang"
TESTED_VERSION: Final = "0.5.23"

_SECRET = re.compile(
    r"_?key(_[a-z])?$|admin|secret|password|credential|ssl_|auth|private|cookie|header|watermark"
    r"|(access|bearer|hf)_?token",
    re.I,
)
_ARGUMENT_CHARS: Final = 500

MODEL_FIELDS: Final = (
    "architectures",
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "draft_vocab_size",
    "target_hidden_size",
    "num_aux_hidden_states",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rms_norm_eps",
    "hidden_act",
    "tie_word_embeddings",
    "norm_before_residual",
    "norm_before_fc",
    "norm_output",
    "fc_norm",
    "use_aux_norm",
    "eagle_config",
    "dtype",
    "quantization_config",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)


def version() -> str:
    """Return the version of the SGLang installed here, empty when it is not told."""
    return _version("sglang")


def engine_facts(loaded: Loaded) -> EngineFacts:
    """Return the facts of an engine that is about to serve."""
    config: dict[str, Any] = {
        "versions": {
            "sglang": version(),
            "torch": _version("torch"),
            "transformers": _version("transformers"),
            "python": platform.python_version(),
        },
        "device": str(loaded.target_runner.device),
        "arguments": arguments(loaded.server_args),
        "target": _model(loaded.target_runner),
        "speculative": {"algorithm": loaded.algorithm},
    }
    if loaded.eagle3:
        config.update(_draft(loaded))
    served = getattr(loaded.server_args, "served_model_name", None) or loaded.server_args.model_path
    return EngineFacts(
        t_ns=time.monotonic_ns(),
        event="start",
        model=str(served),
        engine_name=ENGINE,
        engine_version=version(),
        speculation=not loaded.scheduler.spec_algorithm.is_none(),
        config=config,
    )


def arguments(server_args: Any) -> dict[str, Any]:
    """Return the server's arguments that are set, without anything that may be a secret."""
    found: dict[str, Any] = {}
    for name, value in sorted(_fields(server_args)):
        if not name.startswith("_") and not _SECRET.search(name):
            plain = _plain(value)
            if plain is not None:
                found[name] = plain
    return found


def _draft(loaded: Loaded) -> dict[str, Any]:
    worker = loaded.worker
    inner = getattr(loaded.target_runner.model, "model", None)
    layers = _plain(getattr(inner, "layers_to_capture", None))
    count = len(cast("list[int]", layers)) if isinstance(layers, list) and loaded.target_captures else 0
    return {
        "draft": _model(loaded.draft_runner),
        "speculative": {
            "algorithm": loaded.algorithm,
            "num_steps": worker.speculative_num_steps,
            "topk": worker.topk,
            "num_draft_tokens": worker.speculative_num_draft_tokens,
        },
        # SGLang captures at the input of these layers: the output of the layer before.
        "capture": {"layer_ids": layers, "aux_states": count, "enabled": loaded.target_captures},
        "fc": None if loaded.fc is None else {"in": loaded.fc_in, "out": loaded.fc_out},
        "d2t": {"present": loaded.map_present, "draft_vocab": loaded.draft_vocab},
        "vocab_size": loaded.target_runner.model_config.vocab_size,
    }


def _model(runner: Any) -> dict[str, Any]:
    config = runner.model_config.hf_config
    found: dict[str, Any] = {
        "path": str(runner.model_config.model_path),
        "class": type(runner.model).__name__,
    }
    for name in MODEL_FIELDS:
        value = _plain(getattr(config, name, None))
        if value is not None:
            found[name] = value
    found["loaded_dtype"] = str(runner.dtype).removeprefix("torch.")
    return found


def _fields(owner: object) -> list[tuple[str, Any]]:
    named = getattr(owner, "__dataclass_fields__", None) or getattr(owner, "__struct_fields__", None)
    names = cast("Iterable[str]", named or vars(owner))
    return [(name, getattr(owner, name, None)) for name in names]


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON-able builtins, ``None`` where it is something else."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        if value.lstrip().startswith("{"):  # settings of a part of the engine, as JSON
            try:
                return _plain(json.loads(value))
            except ValueError:
                return None
        return without_userinfo(value)[:_ARGUMENT_CHARS]
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): _plain(one) for key, one in items if not _SECRET.search(str(key))}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in cast("Iterable[Any]", value)]
    name = str(value)
    return name.removeprefix("torch.") if name.startswith("torch.") else None


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
