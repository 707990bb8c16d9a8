"""F07, F06: the draft goes on from another state than its last pass left it.

The first draft token comes from what the draft extend before left, and so does the state that the second one
is made from. Between the two passes both lie in a slot, wait for a batch, or travel to another engine. What
arrives must be what was left, to the last bit: a token of a request has one state there, so no workload
and no rounding of other passes can make a difference, and no reference is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from specscope_server.diagnosis import facts
from specscope_server.diagnosis.engine_evidence import HandOver
from specscope_server.diagnosis.model import CERTAIN, CRITICAL, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.slice_compare import first_token
from specscope_server.diagnosis.step_evidence import SINCE_PREFILL
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "hand_over"
TRANSPORT: Final = "F07"
CARRY: Final = "F06"
SAME: Final = 0.1
OTHER: Final = 0.3
"""Relative error below which one row is what was left (a copy has 0, one through bfloat16 0.004), and from
which on it is another: 8 projections tell one row to a quarter. Between them it counts for neither."""
LEAST: Final = 4
"""Requests with a state that arrived as another: one odd pair of rows proves nothing."""
SHARE: Final = 0.25
"""Share of the hand-overs of a kind that must be wrong."""
ALL: Final = 0.98
"""Share of right hand-overs after verify steps, of those that are right or wrong, where only prefills lose
it; and of wrong ones where all are lost."""
_ROOTS: Final = ("draft_silent", "fc_bypassed", "weights_not_finite")


@dataclass(frozen=True, slots=True)
class _Kind:
    """The hand-overs after one kind of pass."""

    name: str
    all: Sequence[HandOver]
    right: Sequence[HandOver]
    wrong: Sequence[HandOver]

    @property
    def lost(self) -> bool:
        return len({one.request for one in self.wrong}) >= LEAST and len(self.wrong) >= SHARE * len(self.all)

    @property
    def sound(self) -> bool:
        return len(self.right) >= ALL * (len(self.right) + len(self.wrong))

    @property
    def words(self) -> str:
        return f"{len(self.wrong)} of {len(self.all)} after {self.name}"


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether proposals start from what the draft extends before them left."""
    if any(one.kind in _ROOTS for one in found):
        return CLEAR
    if not evidence.hand_overs:
        return Unknown("no state was looked at both when it was left and when a proposal started from it")
    prefill, verify = (_of(evidence, after) for after in ("prefill", "verify"))
    if prefill.lost and verify.sound:
        return _finding(evidence, TRANSPORT, prefill, verify)
    if verify.lost and len(verify.wrong) >= ALL * (len(verify.right) + len(verify.wrong)):
        return _finding(evidence, CARRY, verify, prefill)
    if verify.lost or prefill.lost:
        return Unknown(
            f"some proposals start from another state than was left ({prefill.words}s, {verify.words} steps),"
            " and neither those after prefills alone nor all of them do"
        )
    return CLEAR


def _of(evidence: Evidence, after: str) -> _Kind:
    of_it = [one for one in evidence.hand_overs if one.after == after]
    return _Kind(
        after,
        of_it,
        [one for one in of_it if one.relative_error < SAME],
        [one for one in of_it if one.relative_error >= OTHER],
    )


def _finding(evidence: Evidence, fault: str, bad: _Kind, other: _Kind) -> Finding:
    transport = fault == TRANSPORT
    scales = [one.scale for one in bad.wrong]
    how = (
        "nothing but zeros arrives"
        if not any(scales)
        else "as large, and of another token or request"
        if all(0.5 <= scale <= 2 for scale in scales)
        else "of another size"
    )
    place = facts.link(evidence, "draft.propose")
    worst = max(bad.wrong, key=lambda one: one.relative_error)
    return Finding(
        kind=KIND,
        fault_class=fault,
        severity=CRITICAL,
        confidence=CERTAIN,
        title="Drafting starts from another state than the prefill left"
        if transport
        else "Drafting goes on from another state than was left",
        sentence=(
            f"Of the hand-overs looked at, {bad.words} gave the next proposal another state than the draft"
            f" had left for the same token: {how}. "
            + (
                f"Of those after verify steps {len(other.wrong)} of {len(other.all)} did: the first verify"
                " step of a request suffers, and later ones recover."
                if transport
                else "Every proposal starts so: what the draft hands to its own next step is changed between"
                " its passes."
            )
        ),
        numbers=(
            Number(f"states that arrived as others, after {bad.name}", len(bad.wrong), 0,
                   f"of {len(bad.all)}", place),
            Number(f"states that arrived as others, after {other.name}", len(other.wrong), 0,
                   f"of {len(other.all)}", place),
            Number(f"relative error of the state at token {worst.position}", round(worst.relative_error, 3),
                   f"< {SAME:g}", "", f"/requests/{worst.request}"),
            *_acceptance(evidence, place),
        ),
        ruled_out=(
            Ruled("F23 workload", "whatever the prompt, a state is handed over as it is"),
            Ruled("F05 to F06 in the pass that left it", "what was left is the measure, not a reference"),
        ),
        next_check="A/B: the same prompts on one engine that prefills and decodes by itself, one at a time,"
        " at SPECSCOPE_DETAIL=full: there draft.start must equal draft.carry",
        fix="Look at what keeps or carries the draft's state from a prefill to the first verify step:"
        " disaggregated prefill and decode, migration, the slots of the overlap schedule, plugins."
        if transport
        else "Look for what changes the draft's state between its passes (a norm, a cast, a plugin) and take"
        " it out.",
        boundary="draft.propose",
    )  # fmt: skip


def _acceptance(evidence: Evidence, place: str) -> tuple[Number, ...]:
    """Return how the first verify step of requests fares beside the second."""
    values = evidence.steps.slices.get(SINCE_PREFILL, {})
    told = [first_token(values[name]) if name in values else None for name in ("0", "1")]
    return tuple(
        Number(f"first-token acceptance in the {name} verify step of requests", round(share.value, 3), None,
               f"of {share.of:.0f} steps", place)
        for name, share in zip(("first", "second"), told, strict=True)
        if share is not None
    )  # fmt: skip
