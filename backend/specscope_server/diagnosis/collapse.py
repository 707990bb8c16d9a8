"""Collapse: acceptance fell at one moment and stayed low. A measured change; its cause is not claimed.

Where the engine was changed at that moment, this is named, as a suspicion. A fall that another mix of
traffic could bring about is no regression and is not told.
"""

from __future__ import annotations

from typing import Final

from specscope_server.diagnosis import change_point, facts, what_changed
from specscope_server.diagnosis.change_point import Change
from specscope_server.diagnosis.engine_evidence import Event, Moment
from specscope_server.diagnosis.model import (
    CERTAIN,
    CRITICAL,
    OBSERVATION,
    SUSPECTED,
    WARNING,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "collapse"
MIN_LOST: Final = 0.2
"""Share of the gain (accepted tokens a step) lost from which a fall beside a change of the engine is told."""
MIN_LOST_ALONE: Final = 0.5
"""And of one that nothing known goes with: prompts of another kind cost a sound draft up to a third of its
gain (tiny pair: 1.78 to 2.62 accepted a step over three kinds)."""
FRESH_S: Final = 600
"""A history that ended longer ago says nothing of now."""


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether acceptance fell at one moment of the history, and is still low."""
    told = change_point.usable(evidence.history)
    if len(told) < 2 * change_point.MIN_SIDE:
        return Unknown(
            f"{len(told)} minutes of traffic are known, {2 * change_point.MIN_SIDE} are needed for a change"
        )
    if evidence.now - told[-1].start > FRESH_S:
        return Unknown(f"no traffic for {evidence.now - told[-1].start:.0f} s to compare with")
    change = change_point.jump(told)
    if change is None or change.lost < MIN_LOST:
        return CLEAR
    before = [one for one in told if one.start < change.at]
    after = [one for one in told if one.start >= change.at]
    if change_point.gain(after[-change_point.MIN_SIDE :]) > (change.before + change.after) / 2:
        return CLEAR  # it has recovered
    mix = what_changed.mix_shift(before, after)
    events = what_changed.events_near(evidence, change.at)
    if what_changed.explains(mix, change.before - change.after, _depth(told)):
        assert mix is not None
        return Unknown(
            f"acceptance fell by {change.lost:.0%} at {what_changed.when(change.at)}, and so did the traffic"
            f" change ({mix.words}): such a change can bring it about, so it is no sign of a fault"
        )
    if not events and change.lost < MIN_LOST_ALONE:
        return CLEAR
    return _finding(evidence, found, change, events, mix)


def _finding(
    evidence: Evidence,
    found: tuple[Finding, ...],
    change: Change,
    events: list[Event],
    mix: what_changed.MixShift | None,
) -> Finding:
    root = next((one for one in found if one.confidence == CERTAIN), None)
    fell = (
        f"At {what_changed.when(change.at)} the tokens accepted a verify step fell from {change.before:.2f}"
        f" to {change.after:.2f} ({change.lost:.0%} of the gain) and they are still that few."
    )
    if events:
        cause = f" What changed then: {what_changed.events_text(events)}."
        check = (
            "A/B: undo that change (the weights or the setting before it) and serve the same prompts; if"
            " acceptance comes back, it was the cause"
        )
    else:
        cause = (
            " No change of weights or configuration is known then: an untold one, or prompts of a kind that"
            " the draft was not trained for (F23), remain."
        )
        check = (
            "send the same prompts as before the fall again (specscope diagnose --since shows both"
            " stretches): if they are accepted as then, only the traffic is another"
        )
    place = facts.link(evidence)
    return Finding(
        kind=KIND,
        fault_class="",
        severity=CRITICAL if change.lost >= MIN_LOST_ALONE else WARNING,
        confidence=SUSPECTED if events else OBSERVATION,
        title="Acceptance collapsed" if change.lost >= MIN_LOST_ALONE else "Acceptance fell",
        sentence=fell
        + cause
        + ("" if root is None else f" Another finding explains it: {root.title.lower()}."),
        numbers=(
            Number("accepted a step before", round(change.before, 3), None, "tokens", place),
            Number("accepted a step since", round(change.after, 3), round(change.before, 3), "tokens", place),
            Number("changed at", what_changed.when(change.at), None, "", place),
            Number(
                "minutes before and since", f"{change.minutes[0]} and {change.minutes[1]}", None, "", place
            ),
            Number(
                "verify steps before and since", f"{change.steps[0]} and {change.steps[1]}", None, "", place
            ),
            Number("standard deviations", round(change.z, 1), f"< {change_point.MIN_Z}", "", place),
        ),
        ruled_out=_ruled_out(mix),
        next_check=check,
        fix="Go back to the weights or setting before the fall until its cause is known."
        if events
        else "None before the check has decided.",
        root="" if root is None else root.kind,
    )


def _ruled_out(mix: what_changed.MixShift | None) -> tuple[Ruled, ...]:
    chance = Ruled(
        "chance",
        f"minutes vary this much less than {change_point.FALSE_ALARMS_A_DAY:g} times a day on 1000 engines",
    )
    if mix is None:
        return (chance,)
    return (
        chance,
        Ruled("F23 another mix of traffic", f"it moved too little to do this: {mix.words} at most"),
    )


def _depth(told: list[Moment]) -> float:
    return max(one.counts.drafted_depth / (one.counts.steps - one.counts.undrafted_steps) for one in told)
