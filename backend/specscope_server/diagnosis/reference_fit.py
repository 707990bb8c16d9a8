"""Whether a reference is one of the target that an engine serves: sizes, and hashes of norms. Pure.

Which layers the reference took and which the engine captures plays no part: a difference there is a fault
that the comparison is to find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from specscope_server.diagnosis.facts import setting

_SAME: Final = (
    ("hidden_size", "hidden_size"),
    ("layers", "num_hidden_layers"),
    ("vocab_size", "vocab_size"),
)


def misfits(facts: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return why a reference does not fit an engine, in words; empty: it does, as far as is known.

    ``facts`` are :class:`specscope.reference_file.Facts` as JSON, ``config`` is the engine's configuration as
    it last told it.
    """
    wanted = cast("Mapping[str, Any]", facts.get("target") or {})
    told: object = config.get("target")
    if not isinstance(told, Mapping):
        return ["the engine has not told which target it serves"]
    target = cast("Mapping[str, Any]", told)
    found = [
        f"its target's {name} is {wanted.get(name)}, the engine's {target[theirs]}"
        for name, theirs in _SAME
        if isinstance(target.get(theirs), int) and target[theirs] != wanted.get(name)
    ]
    classes = target.get("architectures")
    named = str(cast("Sequence[object]", classes)[0]) if isinstance(classes, list) and classes else ""
    if named and wanted.get("architecture") and named != wanted["architecture"]:
        found.append(f"its target is a {wanted['architecture']}, the engine's a {named}")
    return found or _other_weights(wanted, config)


def _other_weights(wanted: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the weights: norms are whole on every rank, so their hashes must be there."""
    tensors: object = setting(config, "weights", "target", "tensors")
    if not isinstance(tensors, Mapping):
        return []
    norms = cast("Mapping[str, str]", wanted.get("norms") or {})
    for name, values in cast("Mapping[str, object]", tensors).items():
        told = cast("Mapping[str, object]", values).get("hash") if isinstance(values, Mapping) else None
        if name in norms and isinstance(told, str) and told not in norms[name].split():
            return [f"its target's weights are others than the engine's: {name} has another hash"]
    return []
