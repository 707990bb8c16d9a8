"""An inventory of weights as JSON, with what is odd about it in words. Pure functions of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from specscope import weights as w
from specscope.model_differences import CHECK, NOTE

MAX_TENSORS: Final = 200
MAX_NAMES: Final = 100
"""Tensors and names listed; the rest is counted. 200 tensors are about 60 KiB of JSON."""
SURE: Final = 4096
"""Elements from which on a standard deviation says something: its error is then about 1 %."""
NEAR_INIT: Final = 0.03
"""A deviation this near to the initialiser's, relative, is called untouched."""
NORM_ZERO: Final = 0.2
"""The mean of a norm's weights below which they look stored as w - 1."""


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something about one tensor or name that a person should know; ``level`` as for differences."""

    kind: str
    name: str
    level: str
    text: str


def oddities(inventory: w.Inventory, *, own_checkpoint: bool = True) -> list[Oddity]:
    """Return what is odd, that to check first.

    With ``own_checkpoint`` false the draft is read from the target's checkpoint, most of whose names are
    not for it.
    """
    found = [one for tensor in inventory.tensors for one in _of_tensor(tensor, inventory)]
    if own_checkpoint:
        text = "The checkpoint has it and the engine's loader dropped it without a word."
        found += [Oddity("unused", name, CHECK, text) for name in inventory.unused]
    return sorted(found, key=lambda one: one.level != CHECK)


def _of_tensor(tensor: w.Tensor, inventory: w.Inventory) -> Iterator[Oddity]:
    if tensor.status == w.MISSING:
        text = "No name of the checkpoint reached it: it is left as it was made, before any training (F08)."
        yield Oddity("missing", tensor.name, CHECK, text)
    elif tensor.status == w.PARTLY:
        share = f"{100 * (tensor.filled or 0):.3g} %"
        text = f"Only {share} of it was written, from {', '.join(tensor.sources)}: the rest is as made (F08)."
        yield Oddity("partly loaded", tensor.name, CHECK, text)
    elif tensor.status == w.SHARED and tensor.sources:
        text = (
            f"The checkpoint has its own ({', '.join(tensor.sources)}), and the engine put the target's "
            f"{tensor.shared_with} in its place (F09)."
        )
        head = "head" in tensor.name
        yield Oddity("replaced by the target's", tensor.name, CHECK if head else NOTE, text)
    if tensor.equal_to:
        text = f"Holds the same as the target's {tensor.equal_to}, in memory of its own."
        yield Oddity("copy of the target's", tensor.name, NOTE, text)
    yield from _of_values(tensor, inventory.init_std)


def _of_values(tensor: w.Tensor, init_std: float | None) -> Iterator[Oddity]:
    values = tensor.values
    if values is None:
        return
    if values.nonfinite:
        text = f"{values.nonfinite} of the {values.read} values read are NaN or infinite (F08)."
        yield Oddity("not finite", tensor.name, CHECK, text)
    bias = tensor.name.endswith("bias")
    if values.zeros == values.read and values.read and not bias and not tensor.norm:
        yield Oddity("all zero", tensor.name, CHECK, "Every value read is 0 (F08).")
    if tensor.norm and values.mean is not None and abs(values.mean) < NORM_ZERO:
        text = f"Its weights have the mean {values.mean:.3g}: stored as w - 1, or not loaded (F06)."
        yield Oddity("norm near zero", tensor.name, CHECK, text)
    ratio = std_to_init(tensor, init_std)
    if ratio is not None and values.read >= SURE and abs(ratio - 1) < NEAR_INIT:
        text = f"Its deviation is {ratio:.3g} times the initialiser's {init_std:g}: it looks untrained."
        level = NOTE if tensor.status in (w.LOADED, w.SHARED) else CHECK
        yield Oddity("as initialised", tensor.name, level, text)


def std_to_init(tensor: w.Tensor, init_std: float | None) -> float | None:
    """Return a weight matrix's deviation by the initialiser's, ``None`` where that says nothing."""
    values = tensor.values
    if values is None or values.std is None or not init_std or len(tensor.shape) < 2:
        return None
    return values.std / init_std


def as_json(inventory: w.Inventory, *, own_checkpoint: bool = True, parts: int = 1) -> dict[str, Any]:
    """Return the inventory as plain values; ``None`` and empty texts are left out.

    With several ``parts``, inventories of one record, each lists its share of :data:`MAX_TENSORS` and
    :data:`MAX_NAMES`: a record that is too large is refused whole.
    """
    tensors_most, names_most = max(1, MAX_TENSORS // parts), max(1, MAX_NAMES // parts)
    names = inventory.names
    found = oddities(inventory, own_checkpoint=own_checkpoint)
    return {
        "model": inventory.model,
        "observed": not inventory.reason,
        "reason": inventory.reason,
        "own_checkpoint": own_checkpoint,
        "names": {
            "all": len(names) + inventory.more_unused,
            "loaded": sum(1 for fate in names.values() if fate.into),
            "used": inventory.used[:names_most],
            "unused": inventory.unused[:names_most],
            "unused_count": len(inventory.unused) + inventory.more_unused,
            "ignored": sorted(inventory.ignored)[:names_most],
        },
        "statuses": {s: n for s in w.STATUSES if (n := len(inventory.named(s)))},
        "missing": inventory.named(w.MISSING)[:names_most],
        "init_std": inventory.init_std,
        "tensors": [_tensor(one, inventory.init_std) for one in inventory.tensors[:tensors_most]],
        "tensors_left_out": max(0, len(inventory.tensors) - tensors_most),
        "oddities": [asdict(one) for one in found[:names_most]],
        "oddities_left_out": max(0, len(found) - names_most),
    }


def _tensor(tensor: w.Tensor, init_std: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "status": tensor.status,
    }
    more: dict[str, Any] = {
        "from": list(tensor.sources),
        "filled": _short(tensor.filled) if tensor.status == w.PARTLY else None,
        "shared_with": tensor.shared_with,
        "equal_to": tensor.equal_to,
        "std_to_init": _short(std_to_init(tensor, init_std)),
    }
    if tensor.values is not None:
        more |= values_as_json(tensor.values)
    return found | {name: value for name, value in more.items() if value not in (None, "", [])}


def values_as_json(values: w.Values) -> dict[str, Any]:
    """Return the values of a tensor; ``read`` only where that was not all of it."""
    found: dict[str, Any] = {
        "mean": _short(values.mean),
        "std": _short(values.std),
        "max_abs": _short(values.max_abs),
        "nonfinite": values.nonfinite or None,
        "zeros": values.zeros or None,
        "hash": values.hash,
        "read": values.read if values.read != values.elements else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
