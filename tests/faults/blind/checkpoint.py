"""A checkpoint as an exporter has it in its hands: ``config.json`` and named tensors, read and written."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

CONFIG, WEIGHTS = "config.json", "model.safetensors"


@dataclass
class Tensor:
    """One stored tensor: ``dtype`` as safetensors names it, ``data`` its bytes, row by row."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def values(self) -> Array:
        """float32 of a BF16 tensor, int64 of an I64 one.

        Raises KeyError: another dtype.
        """
        if self.dtype == "BF16":
            high = np.frombuffer(self.data, np.uint16).astype(np.uint32)
            return (high << 16).view(np.float32).reshape(self.shape)
        return np.frombuffer(self.data, {"I64": np.int64}[self.dtype]).reshape(self.shape).copy()

    def with_values(self, values: Array) -> Tensor:
        """A tensor of the same dtype and of the values' own shape; BF16 rounds to nearest."""
        if self.dtype == "BF16":
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
            finite = np.isfinite(values)
            rounded = np.where(finite, bits + 0x7FFF + ((bits >> 16) & 1), bits)
            data = (rounded >> 16).astype(np.uint16).tobytes()
        else:
            data = np.ascontiguousarray(values, np.int64).tobytes()
        return Tensor(self.dtype, tuple(values.shape), data)


@dataclass
class Checkpoint:
    """What an edit works on: ``config`` is the JSON object, ``tensors`` by their stored names."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]

    def change(self, name: str, edit: Callable[[Array], Array]) -> None:
        """Store ``edit(values)`` under ``name``.

        Raises KeyError: no such tensor.
        """
        old = self.tensors[name]
        self.tensors[name] = old.with_values(edit(old.values()))


def read(folder: Path) -> Checkpoint:
    """The checkpoint in ``folder``, one safetensors file."""
    raw = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header: dict[str, Any] = json.loads(raw[8 : 8 + length])
    block = raw[8 + length :]
    tensors = {
        name: Tensor(entry["dtype"], tuple(entry["shape"]), block[slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }
    return Checkpoint(json.loads((folder / CONFIG).read_text("utf-8")), tensors)


def write(checkpoint: Checkpoint, source: Path, destination: Path) -> None:
    """Copy ``source`` to the new folder ``destination``, with this configuration and these tensors.

    Raises FileExistsError: ``destination`` is there already.
    """
    shutil.copytree(source, destination)
    (destination / CONFIG).write_text(json.dumps(checkpoint.config, indent=2) + "\n", "utf-8")
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in checkpoint.tensors.items():
        end = offset + len(tensor.data)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    block = b"".join(tensor.data for tensor in checkpoint.tensors.values())
    (destination / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + block)
