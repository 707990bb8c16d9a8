"""The engine's configuration, once per process: versions, arguments, models, and how they were joined."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from specscope import convention as c
from specscope import tokenizer_facts
from specscope.engines.sglang.loaded import Loaded, draft_ids
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
_TABLE_ROWS: Final = 64

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


def engine_facts(
    loaded: Loaded, *, event: str = c.EVENT_START, more: Mapping[str, Any] | None = None
) -> EngineFacts:
    """Return the facts of an engine as it is now; ``more`` is added to its configuration."""
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
        "speculative": _speculative(loaded),
        "vocab_size": loaded.target_runner.model_config.vocab_size,
    }
    if loaded.draft_runner is not None:
        config.update(_draft(loaded))
        # Of one rank of a group: a large file takes some hundred MiB for a moment while it is read.
        if loaded.emits and (tokenizers := _tokenizers(loaded)):
            config["tokenizers"] = tokenizers
    served = getattr(loaded.server_args, "served_model_name", None) or loaded.server_args.model_path
    return EngineFacts(
        t_ns=time.monotonic_ns(),
        event=event,
        model=str(served),
        engine_name=ENGINE,
        engine_version=version(),
        speculation=not loaded.scheduler.spec_algorithm.is_none(),
        config=config if more is None else {**config, **more},
        draft_ids=draft_ids(loaded),
    )


def text(value: str) -> str:
    """Return a text of the engine's that may be told: shortened, and a URL without its user."""
    return without_userinfo(value)[:_ARGUMENT_CHARS]


def arguments(server_args: Any) -> dict[str, Any]:
    """Return the server's arguments that are set, without anything that may be a secret."""
    found: dict[str, Any] = {}
    for name, value in sorted(_fields(server_args)):
        if not name.startswith("_") and not _SECRET.search(name):
            plain = _plain(value)
            if plain is not None:
                found[name] = plain
    return found


def _speculative(loaded: Loaded) -> dict[str, Any]:
    """Return the algorithm and, where this process drafts, its shape: attributes that it does not have
    are left out.
    """
    found: dict[str, Any] = {"algorithm": loaded.algorithm}
    for name, attribute in (
        ("num_steps", "speculative_num_steps"),
        ("topk", "topk"),
        ("num_draft_tokens", "speculative_num_draft_tokens"),
    ):
        value = getattr(loaded.worker, attribute, None)
        if isinstance(value, int):
            found[name] = value
    if table := _steps_by_batch(loaded.worker):
        found["steps_by_batch"] = table
    return found


def _steps_by_batch(worker: Any) -> dict[str, list[int]]:
    """Return the numbers of draft steps that adaptive speculation may choose, by least batch size.

    Empty where steps do not adapt. ``AdaptiveSpeculativeParams._slots``
    (``srt/speculative/adaptive_spec_params.py``) is private: an engine version without it tells no table.
    """
    slots: Any = getattr(
        getattr(getattr(worker, "adaptive_controller", None), "params", None), "_slots", None
    )
    if not isinstance(slots, dict):
        return {}
    found: dict[str, list[int]] = {}
    for size, slot in sorted(cast("dict[int, Any]", slots).items())[:_TABLE_ROWS]:
        found[str(size)] = [int(one) for one in slot.candidate_steps]
    return found


def _draft(loaded: Loaded) -> dict[str, Any]:
    found: dict[str, Any] = {
        "draft": _model(loaded.draft_runner),
        "fc": None if loaded.fc is None else {"in": loaded.fc_in, "out": loaded.fc_out},
        "d2t": {"present": loaded.map_present, "draft_vocab": loaded.draft_vocab},
    }
    if loaded.eagle3:
        inner = getattr(loaded.target_runner.model, "model", None)
        layers = _plain(getattr(inner, "layers_to_capture", None))
        count = len(cast("list[int]", layers)) if isinstance(layers, list) and loaded.target_captures else 0
        # SGLang captures at the input of these layers: the output of the layer before.
        found["capture"] = {"layer_ids": layers, "aux_states": count, "enabled": loaded.target_captures}
    return found


def _tokenizers(loaded: Loaded) -> dict[str, Any]:
    """Return what the tokenizer files of the target and of the draft count, of those that have some.

    A draft's checkpoint often has none: it is given the target's ids. Where it has, they say what it was
    trained with.
    """
    target = getattr(loaded.server_args, "tokenizer_path", None) or _folder(loaded.target_runner)
    found = {"target": tokenizer_facts.of(str(target))}
    if (draft := _folder(loaded.draft_runner)) != _folder(loaded.target_runner):
        found["draft"] = tokenizer_facts.of(draft)
    return {name: dict(told) for name, told in found.items() if told is not None}


def _folder(runner: Any) -> str:
    return str(runner.model_config.model_path)


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
        return text(value)
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
