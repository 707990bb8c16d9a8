"""Statistics of the hidden states that the draft receives, per request, from tensors in host memory."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specscope.records import HiddenStats

if TYPE_CHECKING:
    from specscope.engines.sglang.passes import Extend


def on_host(tensor: Any) -> bool:
    """Say whether reading ``tensor`` needs no device synchronisation."""
    return tensor is not None and tensor.device.type == "cpu"


def look(extend: Extend, states: Any, starts: Sequence[int], lengths: Sequence[int]) -> None:
    """Put into ``extend`` what is to be told of its states [rows, width] of one request after the other."""
    found = rows(states)
    if found is None:
        extend.hidden = statistics(states, starts, lengths)
    else:
        extend.row_stats, extend.spans = found, (tuple(starts), tuple(lengths))


def rows(hidden: Any) -> bytes | None:
    """Return mean, variance and largest absolute value of each row: float32 [3, rows] as bytes.

    ``hidden`` is a torch tensor [rows, width] in host memory. ``None``: it holds values that are not finite,
    see :func:`statistics`. Variance is that of the population.
    """
    torch: Any = importlib.import_module("torch")
    values = hidden.float()
    variance, mean = torch.var_mean(values, dim=-1, correction=0)
    peak = torch.linalg.vector_norm(values, ord=math.inf, dim=-1)
    found = torch.stack((mean, variance, peak))
    # A sum is finite only if all its parts are: one number tells for all rows.
    return found.numpy().tobytes() if math.isfinite(float(peak.sum())) else None


def statistics(hidden: Any, starts: Sequence[int], lengths: Sequence[int]) -> tuple[HiddenStats | None, ...]:
    """Return one entry a request over its rows ``hidden[start : start + length]``; ``None`` for no rows.

    Slow and exact: for states of which some are not finite.
    """
    torch: Any = importlib.import_module("torch")
    values = hidden.float()
    return tuple(
        _with_nonfinite(torch, values[start : start + length]) if length > 0 else None
        for start, length in zip(starts, lengths, strict=True)
    )


def _with_nonfinite(torch: Any, values: Any) -> HiddenStats:
    finite = torch.isfinite(values)
    kept = values[finite].double()
    count = int(kept.numel())
    average = float(kept.mean()) if count else 0.0
    spread = float(kept.var(correction=0)) if count else 0.0
    return HiddenStats(
        rows=int(values.shape[0]),
        mean=average,
        std=math.sqrt(spread),
        rms=math.sqrt(spread + average * average),
        max_abs=float(kept.abs().max()) if count else 0.0,
        nonfinite=int(values.numel()) - count,
        zero_rows=int((values == 0).all(dim=-1).sum()),
    )
