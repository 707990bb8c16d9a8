"""Statistics of the hidden states that the draft receives, per request, from tensors in host memory."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from specscope.records import HiddenStats


def on_host(tensor: Any) -> bool:
    """Say whether reading ``tensor`` needs no device synchronisation."""
    return tensor is not None and tensor.device.type == "cpu"


def statistics(hidden: Any, starts: Sequence[int], lengths: Sequence[int]) -> tuple[HiddenStats | None, ...]:
    """Return one entry a request over its rows ``hidden[start : start + length]``; ``None`` for no rows.

    ``hidden`` is a torch tensor [rows, width] in host memory. Mean and variance of the rows are combined
    by the law of total variance, which stays exact when the mean is large against the deviation. Variance
    is that of the population.
    """
    torch: Any = importlib.import_module("torch")
    values = hidden.float()
    variance, mean = torch.var_mean(values, dim=-1, correction=0)
    peak = values.abs().amax(dim=-1)
    rows = torch.stack((mean, variance, peak)).double().numpy()
    found: list[HiddenStats | None] = []
    for start, length in zip(starts, lengths, strict=True):
        if length <= 0:
            found.append(None)
            continue
        mean_row, variance_row, peak_row = rows[:, start : start + length]
        top = float(peak_row.max())
        if not math.isfinite(top):
            found.append(_with_nonfinite(torch, values[start : start + length]))
            continue
        average = float(mean_row.mean())
        spread = float(variance_row.mean() + mean_row.var())
        found.append(
            HiddenStats(
                rows=length,
                mean=average,
                std=math.sqrt(spread),
                rms=math.sqrt(spread + average * average),
                max_abs=top,
                nonfinite=0,
                zero_rows=int((peak_row == 0).sum()),
            )
        )
    return tuple(found)


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
