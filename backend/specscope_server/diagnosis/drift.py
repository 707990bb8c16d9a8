"""Drift: acceptance falls slowly and steadily. A measured change; its cause is not claimed."""

from __future__ import annotations

from typing import Final

from specscope_server.diagnosis import change_point, collapse, facts, what_changed
from specscope_server.diagnosis.model import CERTAIN, OBSERVATION, WARNING, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "drift"
MIN_LOST: Final = 0.3
"""Share of the gain lost over the history from which a slope is told: traffic that changes with the hour
moves it by less (tiny pair: kinds of prompts differ by a third)."""
MIN_MINUTES: Final = 30
"""Minutes of history: what is shorter is a jump or nothing."""


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether acceptance fell steadily over the history."""
    told = change_point.usable(evidence.history)
    if len(told) < MIN_MINUTES:
        return Unknown(f"{len(told)} minutes of traffic are known, {MIN_MINUTES} are needed for a slope")
    if any(one.kind == collapse.KIND for one in found):
        return CLEAR
    change = change_point.slope(told)
    if change is None or change.lost < MIN_LOST:
        return CLEAR
    half = len(told) // 2
    mix = what_changed.mix_shift(told[:half], told[half:])
    depth = max(one.counts.drafted_depth / (one.counts.steps - one.counts.undrafted_steps) for one in told)
    # The halves' means are half as far apart as the ends of a slope.
    if mix is not None and what_changed.explains(mix, (change.before - change.after) / 2, depth):
        return Unknown(
            f"acceptance fell by {change.lost:.0%} over {len(told)} minutes, and the traffic changed with it"
            f" ({mix.words}): that can bring it about, so it is no sign of a fault"
        )
    root = next((one for one in found if one.confidence == CERTAIN), None)
    place = facts.link(evidence)
    span = f"since {what_changed.when(change.at)}"
    return Finding(
        kind=KIND,
        fault_class="",
        severity=WARNING,
        confidence=OBSERVATION,
        title="Acceptance drifts down",
        sentence=(
            f"The tokens accepted a verify step fell steadily {span}, from about {change.before:.2f} to"
            f" {change.after:.2f} ({change.lost:.0%} of the gain). What falls with uptime is what the engine"
            " accumulates (a cache, positions), or traffic that moves away from the draft's training."
        ),
        numbers=(
            Number("accepted a step at first", round(change.before, 3), None, "tokens", place),
            Number("accepted a step now", round(change.after, 3), round(change.before, 3), "tokens", place),
            Number("minutes", len(told), None, "minutes", place),
            Number("standard deviations", round(change.z, 1), f"< {change_point.MIN_Z}", "", place),
        ),
        ruled_out=(Ruled("a jump", "one moment of change explains the minutes worse than a slope does"),),
        next_check="restart one replica and send both the same prompts: if the new one accepts more, the"
        " engine accumulates the loss; if not, the traffic moved",
        fix="None before the check has decided; a restart helps for a while where the engine accumulates it.",
        root="" if root is None else root.kind,
    )
