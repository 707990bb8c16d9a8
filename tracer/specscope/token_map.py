"""The map from draft ids to target ids: what the engine uses, held against what the checkpoint states.

An EAGLE-3 checkpoint has ``d2t`` (target id minus draft id, one a draft id) and usually ``t2d`` (one flag a
target id: the draft can name it). Engines turn d2t into a map of target ids by adding the index (SGLang
0.5.23: ``llama_eagle3.py``, ``load_weights``). torch and safetensors are imported only when a map is there.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

MAX_IDS: Final = 1 << 21
"""Rows of d2t or t2d that are read at most: 16 MiB of int64."""
OFFSETS: Final = "d2t"
NAMED: Final = "t2d"


def of_checkpoint(folder: str | Path) -> dict[str, Any]:
    """Return ``d2t`` and ``t2d`` as tensors, from the safetensors files of a checkpoint in ``folder``.

    What is not there, too large or in a file that cannot be read is left out: it is not known.
    """
    found: dict[str, Any] = {}
    try:
        files = sorted(Path(folder).glob("*.safetensors")) if Path(folder).is_dir() else []
        for file in files:
            found |= _read(file)
    except (ImportError, OSError, RuntimeError, ValueError):
        return {}
    return found


def _read(file: Path) -> dict[str, Any]:
    safetensors: Any = importlib.import_module("safetensors")
    try:
        # Maps the file: only the header and the named tensors are read.
        with safetensors.safe_open(str(file), framework="pt") as opened:
            names = [name for name in opened.keys() if name in (OFFSETS, NAMED)]  # noqa: SIM118
            shapes = {name: opened.get_slice(name).get_shape() for name in names}
            return {
                name: opened.get_tensor(name)
                for name, shape in shapes.items()
                if len(shape) == 1 and 0 < shape[0] <= MAX_IDS
            }
    except safetensors.SafetensorError:
        return {}


def held_against(used: Any, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return facts of the map ``used``, an integer tensor [draft ids] of target ids.

    ``distinct`` counts its target ids, ``as_checkpoint`` says whether it is the checkpoint's d2t plus index,
    ``outside_t2d`` counts ids that the checkpoint's t2d does not name; what the checkpoint does not tell is
    left out. Waits for a device that holds the map.
    """
    torch: Any = importlib.import_module("torch")
    ids = used.detach().reshape(-1).cpu().to(torch.int64)
    found: dict[str, Any] = {"distinct": int(torch.unique(ids).numel())}
    offsets, named = checkpoint.get(OFFSETS), checkpoint.get(NAMED)
    if offsets is not None:
        stated = offsets.to(torch.int64) + torch.arange(offsets.shape[0])
        found["as_checkpoint"] = bool(torch.equal(stated, ids))
    if named is not None:
        inside = (ids >= 0) & (ids < named.shape[0])
        known = named.to(torch.bool)[ids.clamp(0, named.shape[0] - 1)]
        found["outside_t2d"] = int((~(inside & known)).sum())
    return found
