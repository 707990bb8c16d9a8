"""Tensors of a checkpoint as they are in its files, without a model around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from specscope.reference import Problem
from specscope.reference.libraries import library
from specscope.reference_file import MAX_TEXTS, NORM_TYPES, Weight
from specscope.weight_values import values


def tensors(folder: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    """Yield (name, tensor) of the wanted names in a checkpoint's ``*.safetensors``, one at a time.

    Raises:
        Problem: a file is damaged or cut off.
    """
    safetensors = library("safetensors")
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - no mapping
                    if wanted(name):
                        yield name, file.get_tensor(name)
        except Exception as error:  # safetensors has an error of its own, and others come through
            raise Problem(f"cannot read the tensors of {path}: {error}") from error


def norms(folder: Path) -> dict[str, str]:
    """Return hashes of the weights of norms, by name, in the types of :data:`NORM_TYPES`, a space between.

    An engine tells such hashes of some tensors that it holds. Those of norms can be compared: no rank holds a
    part of one, and no engine fuses them.
    """
    torch = library("torch")
    found: dict[str, str] = {}
    for name, tensor in tensors(folder, lambda name: name.endswith("norm.weight")):
        if tensor.dim() == 1 and tensor.is_floating_point() and len(found) < MAX_TEXTS:
            found[name] = " ".join(values(tensor.to(getattr(torch, kind))).hash for kind in NORM_TYPES)
    return found


FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Tensors that SGLang and vLLM lay one below the other, in this order."""


def weights(folder: Path) -> tuple[Weight, ...]:
    """Return what every tensor of numbers of a draft's checkpoint holds, fused ones as an engine has them.

    One that holds a value that is not finite is left out.

    Raises:
        Problem: a file is damaged or cut off.
    """
    torch = library("torch")
    floats = {name: one for name, one in tensors(folder, lambda _: True) if one.is_floating_point()}
    groups: dict[tuple[str, ...], Any] = {}
    for name in list(floats):
        for parts in FUSED.values():
            if parts[0] in name:
                names = tuple(name.replace(parts[0], part) for part in parts)
                if all(one in floats for one in names):
                    groups[names] = torch.cat([floats.pop(one) for one in names])
    groups |= {(name,): one for name, one in floats.items()}
    found: list[Weight] = []
    for source, tensor in groups.items():
        told = values(tensor.float())
        if told.mean is None or told.std is None or told.max_abs is None or told.nonfinite:
            continue
        hashes = " ".join(values(tensor.to(getattr(torch, kind))).hash for kind in NORM_TYPES)
        shape = tuple(int(size) for size in tensor.shape)
        found.append(Weight(source, shape, hashes, told.mean, told.std, told.max_abs))
    return tuple(found[:MAX_TEXTS])
