"""Tensors of a checkpoint as they are in its files, without a model around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from specscope.reference import Problem
from specscope.reference.libraries import library
from specscope.reference_file import MAX_TEXTS, NORM_TYPES
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
