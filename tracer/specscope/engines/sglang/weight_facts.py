"""Draft and target as SGLang built them: their weights now, and how their configurations differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from specscope import model_differences, model_facts, token_map, weight_report, weights
from specscope.engines.sglang import weight_load
from specscope.engines.sglang.loaded import Loaded, find_fc
from specscope.model_facts import Facts
from specscope.weight_values import Values, values

PROBES: Final = 6
"""Further tensors of the target that are hashed, so that an update of it shows."""
_MAP: Final = "hot_token_id"
"""What SGLang calls the map from draft ids to target ids that it makes of d2t."""
_MAX_CONFIG_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Taken:
    """What was read of an engine's weights: as JSON, and hashes by ``draft 0: name`` and ``target: name``."""

    drafts: list[dict[str, Any]]
    target: dict[str, Any]
    hashes: dict[str, str] = field(default_factory=dict[str, str])


def take(loaded: Loaded, *, readable: bool = True) -> Taken:
    """Read the weights of an engine whose forward does not run; ``readable``: they are in memory.

    Bounded by :data:`specscope.weight_values.MAX_READ` elements a tensor, in drafts and a few tensors of
    the target. On a device this waits for it, so it is called before serving and inside update calls only.
    """
    target = loaded.target_runner.model
    found = _target_values(target) if readable else {}
    by_address = weights.pointers(target)
    hashes = {f"target: {name}": one.hash for name, one in found.items()}
    drafts: list[dict[str, Any]] = []
    for number, runner in enumerate(loaded.draft_runners):
        watched = weight_load.of(runner.model)
        inventory = weights.take(
            runner.model,
            load=None if watched is None else watched.whole,
            reason="the draft was made before the tracer's hook" if watched is None else watched.reason,
            target=by_address,
            target_hashes={name: one.hash for name, one in found.items()},
            init_std=_init_std(runner),
            ignores=weight_load.ignores,
            readable=readable,
        )
        own = str(runner.model_config.model_path) != str(loaded.target_runner.model_config.model_path)
        drafts.append(
            weight_report.as_json(inventory, own_checkpoint=own, parts=len(loaded.draft_runners))
            | {"load_format": "" if watched is None else watched.load_format}
            | {"map": _map(loaded, runner) if readable else None}
        )
        hashes |= {f"draft {number}: {name}": digest for name, digest in inventory.hashes.items()}
    as_json = {name: weight_report.values_as_json(one) for name, one in found.items()}
    return Taken(drafts, {"model": type(target).__name__, "tensors": as_json}, hashes)


def differences(loaded: Loaded) -> list[dict[str, Any]]:
    """Return how the (first) draft differs from its checkpoint and from its target; none without a draft."""
    if not loaded.draft_runners:
        return []
    runner = loaded.draft_runners[0]
    draft = built(runner)
    draft["map"] = loaded.map_present
    draft["fc_in"] = loaded.fc_in if find_fc(runner.model) is not None else None
    target = built(loaded.target_runner)
    target["max_served"] = getattr(loaded.server_args, "context_length", None) or getattr(
        loaded.target_runner.model_config, "context_len", None
    )
    target["aux_layers"] = _captured(loaded)
    checkpoint = model_facts.stated(checkpoint_config(runner))
    return model_differences.as_json(model_differences.differences(checkpoint, draft, target))


def built(runner: Any) -> Facts:
    """Return a model as it was built: its configuration, corrected by what its modules really hold."""
    config = runner.model_config
    facts = model_facts.stated(config.hf_config.to_dict())
    model = runner.model
    facts["dtype"] = str(runner.dtype).removeprefix("torch.")
    method = getattr(config, "quantization", None)
    stated = facts["quantization"]
    if method is not None and not (stated != "none" and str(method).startswith(stated)):
        facts["quantization"] = str(method)
    for module in model.modules():
        base, rotated = getattr(module, "base", None), getattr(module, "rotary_dim", None)
        if isinstance(base, float | int) and isinstance(rotated, int):
            facts["rope_theta"] = float(base)
            break
    for module in model.modules():
        epsilon = getattr(module, "variance_epsilon", None)
        if isinstance(epsilon, float):
            facts["norm_eps"] = epsilon
            break
    facts["head_vocab"] = _rows(getattr(model, "lm_head", None))
    return facts


def checkpoint_config(runner: Any) -> dict[str, Any]:
    """Return the ``config.json`` beside the weights as it is written, empty where it is not on this disk."""
    try:
        file = Path(str(runner.model_config.model_path)) / "config.json"
        if file.is_file() and file.stat().st_size <= _MAX_CONFIG_BYTES:
            found: object = json.loads(file.read_text("utf-8"))
            return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    except (OSError, ValueError):
        pass
    return {}


def _target_values(target: Any) -> dict[str, Values]:
    """Return embedding, head and some further tensors of the target, evenly chosen in its order."""
    named: dict[str, Any] = {}
    for name, parameter in target.named_parameters():
        named.setdefault(name, parameter)
    ends = [name for name in named if "embed_tokens" in name or "lm_head" in name]
    others = [name for name in named if name not in ends]
    step = max(1, len(others) // PROBES)
    found: dict[str, Values] = {}
    for name in (*ends[:4], *others[::step][:PROBES]):
        try:
            found[name] = values(named[name].data)
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            continue
    return found


def _map(loaded: Loaded, runner: Any) -> dict[str, Any] | None:
    """Return the draft's token map: how many ids, the least and the largest, its hash.

    ``in_use`` is whether the worker maps by the same values: SGLang copies the map once, at start. What it
    maps by is held against the checkpoint of the start (:func:`.token_map.held_against`).
    """
    own, used = getattr(runner.model, _MAP, None), getattr(loaded.draft_worker, _MAP, None)
    one = used if own is None else own
    if one is None:
        return None
    digest = values(one).hash
    return {
        "rows": int(one.shape[0]),
        "least": int(one.min()),
        "largest": int(one.max()),
        "hash": digest,
        "in_use": used is not None and values(used).hash == digest,
        **token_map.held_against(
            one if used is None else used, token_map.of_checkpoint(str(runner.model_config.model_path))
        ),
    }


def _captured(loaded: Loaded) -> list[int] | None:
    """Return the layers whose outputs the target hands over; SGLang keeps them as inputs of the next."""
    if not loaded.eagle3:
        return None
    if not loaded.target_captures:
        return []
    inner = getattr(loaded.target_runner.model, "model", None)
    inputs = getattr(inner, "layers_to_capture", None)
    if not isinstance(inputs, list | tuple):
        return None
    return [int(one) - 1 for one in cast("list[int]", inputs)]


def _init_std(runner: Any) -> float | None:
    value = getattr(runner.model_config.hf_config, "initializer_range", None)
    return float(value) if isinstance(value, float | int) and value > 0 else None


def _rows(head: Any) -> int | None:
    """Return the rows of an output head without padding, all ranks together."""
    for name in ("org_vocab_size", "num_embeddings", "out_features"):
        value = getattr(head, name, None)
        if isinstance(value, int):
            return value
    return None


def merged(config: Mapping[str, Any], taken: Taken, version: int, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an engine's configuration with the weights in it."""
    found = {"version": version, "event": dict(event), "drafts": taken.drafts, "target": taken.target}
    return {**config, "weights": found}
