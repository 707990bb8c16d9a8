"""Hidden states of an engine against an earlier period of the same engine. Pure.

Sizes are compared as octaves (log2) between geometric means of the looks' rms: a factor is the same distance
up and down, and a few huge looks do not drown the others. The standard error takes the looks as independent.
Those of one request resemble each other, so where few requests made all looks the true error is larger.

Who calls says which period was healthy; what the engine accepted in it is told beside the answer, so that a
period that was broken itself is seen. *Unknown* is an answer: too few looks, or an error too large to decide,
is never *same*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from specscope.hidden_rollup import Key
from specscope.rollup import Counts

from specscope_server.diagnosis.hidden_evidence import HiddenEvidence

SAME: Final = "same"
MOVED: Final = "moved"
UNKNOWN: Final = "unknown"
MIN_LOOKS: Final = 8
"""Looks in each period below which nothing is said."""
OCTAVES: Final = 0.5
"""Difference of sizes, as a power of two (a factor of 1.41), that counts as moved."""
SHARE: Final = 0.1
"""Difference of shares that counts as moved."""
ERRORS: Final = 3.0
"""Standard errors that a difference must be clear of its bound by, on either side of it."""
HEALTHY_LENGTH: Final = 1.2
"""Acceptance length below which a period is not known to be healthy: a draft without a use has 1."""

SHARES: Final = ("zero_share", "equal_share")


@dataclass(frozen=True, slots=True)
class Share:
    """A share of rows in both periods."""

    name: str
    now: float | None
    baseline: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Drift:
    """One place, slot and draft step in both periods.

    ``log2_ratio`` is in octaves: now over baseline; ``standard_error`` its error. ``verdict`` is ``same``,
    ``moved`` or ``unknown``, over sizes and shares together, and ``reason`` says what decided.
    """

    key: Key
    looks: int
    baseline_looks: int
    log2_ratio: float | None
    standard_error: float | None
    shares: tuple[Share, ...]
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All places. ``baseline_healthy`` False: the baseline proves nothing, for ``baseline_reason``."""

    drifts: tuple[Drift, ...]
    baseline_steps: int
    baseline_length: float | None
    baseline_healthy: bool
    baseline_reason: str


def compare(
    now: Iterable[HiddenEvidence], baseline: Iterable[HiddenEvidence], counts: Counts | None
) -> Comparison:
    """Return how each place of either period moved; ``counts`` are the verify steps of the baseline."""
    current, before = _by_key(now), _by_key(baseline)
    drifts = tuple(
        _drift(key, current.get(key), before.get(key)) for key in dict.fromkeys((*current, *before))
    )
    steps = counts.steps if counts is not None else 0
    length = (counts.accepted + counts.bonus) / counts.steps if counts is not None and counts.steps else None
    reason = _why_not_healthy(length)
    return Comparison(drifts, steps, length, not reason, reason)


def _why_not_healthy(length: float | None) -> str:
    if length is None:
        return "no verify step ran in the baseline window, so the baseline is not known to be healthy"
    if length < HEALTHY_LENGTH:
        return (
            f"the acceptance length in the baseline window was {length:.2f}, below {HEALTHY_LENGTH:g}, so the"
            " baseline is not known to be healthy"
        )
    return ""


def _by_key(evidence: Iterable[HiddenEvidence]) -> Mapping[Key, HiddenEvidence]:
    return {one.key: one for one in evidence}


def _drift(key: Key, now: HiddenEvidence | None, before: HiddenEvidence | None) -> Drift:
    looks, baseline_looks = (0 if one is None else one.looks for one in (now, before))
    if now is None or before is None or min(looks, baseline_looks) < MIN_LOOKS:
        reason = f"{looks} looks now and {baseline_looks} in the baseline, {MIN_LOOKS} of each are needed"
        return Drift(key, looks, baseline_looks, None, None, (), UNKNOWN, reason)
    ratio, error = _log2_ratio(now, before)
    size = UNKNOWN if ratio is None or error is None else _verdict(ratio, error, OCTAVES)
    shares = tuple(share for name in SHARES if (share := _share(name, now, before)) is not None)
    parts = {"size": size, **{share.name: share.verdict for share in shares}}
    if bool(now.nonfinite_per_row) is not bool(before.nonfinite_per_row):
        parts["values not finite"] = MOVED  # sizes and shares leave them out
    verdict = next((word for word in (MOVED, UNKNOWN) if word in parts.values()), SAME)
    named = ", ".join(name.replace("_share", " rows") for name, word in parts.items() if word == verdict)
    told = "no size in enough looks" if ratio is None else f"{ratio:+.2f} ± {error:.2f} octaves"
    return Drift(key, looks, baseline_looks, ratio, error, shares, verdict, f"{told}; {verdict}: {named}")


def _log2_ratio(now: HiddenEvidence, before: HiddenEvidence) -> tuple[float | None, float | None]:
    """Return (octaves, standard error); ``None`` where too few looks have a size."""
    if now.geometric_rms is None or before.geometric_rms is None:
        return None, None
    if min(now.levelled, before.levelled) < MIN_LOOKS:
        return None, None
    variance = sum(
        (one.deviation or 0.0) ** 2 / (one.levelled - 1) for one in (now, before)
    )  # of the mean, from the deviation of the population
    return math.log2(now.geometric_rms) - math.log2(before.geometric_rms), math.sqrt(variance)


def _share(name: str, now: HiddenEvidence, before: HiddenEvidence) -> Share | None:
    """Compare a share of rows; its error is taken from the looks, since rows of one look move together.

    ``None`` where neither period has it: of looks with one row each none has a row before it.
    """
    told: tuple[float | None, float | None] = getattr(now, name), getattr(before, name)
    current, earlier = told
    if current is None and earlier is None:
        return None
    if current is None or earlier is None:
        return Share(name, current, earlier, UNKNOWN)
    # Who makes sums up may make up shares above 1, which have no variance.
    told_by = ((current, now.looks), (earlier, before.looks))
    variance = sum(max(0.0, share * (1 - share)) / looks for share, looks in told_by)
    return Share(name, current, earlier, _verdict(current - earlier, math.sqrt(variance), SHARE))


def _verdict(difference: float, error: float, bound: float) -> str:
    """Say on which side of the bound a difference is, if its error leaves no doubt."""
    if abs(difference) - ERRORS * error > bound:
        return MOVED
    return SAME if abs(difference) + ERRORS * error < bound else UNKNOWN
