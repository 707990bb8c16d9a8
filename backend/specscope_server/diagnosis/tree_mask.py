"""F17 in a tree: the target's own states are right in prefill and others in verify steps.

A tree is verified in one pass, and its mask lets a node see the nodes on its own path alone. Where siblings
are visible too, the target computes other states, and other tokens, for the nodes behind them; a prefill has
no siblings. What is wrong with layers, scale or a hand-over is wrong after prefills as well.
"""

from __future__ import annotations

from typing import Final

from specscope import hidden

from specscope_server.diagnosis import deviation, facts
from specscope_server.diagnosis.deviation import Deviation
from specscope_server.diagnosis.model import CERTAIN, CRITICAL, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "tree_mask"
FAULT: Final = "F17"
RIGHT: Final = 0.02
"""Error of every slot after prefills below which the target computes as its reference (measured 0.005)."""
WRONG: Final = 0.08
"""Error of every slot after verify steps from which on it does not: a run in bfloat16 has 0.006, a sound
tree 0.005. Measured 0.11 to 0.17: nodes on the first path have few siblings before them."""


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the nodes of a tree see what they must not."""
    topk = facts.setting(evidence.config, "speculative", "topk")
    if not isinstance(topk, int) or topk < 2:
        return CLEAR  # a chain has no siblings
    prefill, verify = (_held(evidence, after) for after in ("prefill", "verify"))
    if prefill is None or verify is None:
        return Unknown("no reference tells of the target's states both after prefills and after verify steps")
    if max(slot.error for slot in prefill.slots) >= RIGHT or min(s.error for s in verify.slots) < WRONG:
        return CLEAR
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=CERTAIN,
        title="Nodes of the tree see their siblings",
        sentence=(
            "At the same tokens the target's states equal those of a reference run after every prefill, and"
            f" are off by {min(s.error for s in verify.slots):.0%} and more in every slot after verify steps,"
            f" which run a tree (top-k {topk}) in one pass. The mask of that pass lets nodes see tokens that"
            " are not on their path: what the target says there is not what it would say, so the text may be"
            " wrong too."
        ),
        numbers=(
            *_numbers(evidence, verify, "after verify steps"),
            *_numbers(evidence, prefill, "after prefills"),
            *facts.examples(evidence),
        ),
        ruled_out=(
            Ruled("F05 other layers", "the same layers are right after prefills"),
            Ruled("F23 workload", "at the same tokens a target has the same states, whatever the prompt"),
        ),
        next_check="A/B: the same prompts at temperature 0 with --speculative-eagle-topk 1 (a chain has no"
        " siblings) and without speculation: where the tree's answers differ from both, its mask is wrong",
        fix="Serve a chain (--speculative-eagle-topk 1), or another attention backend, until the engine's"
        " mask of the tree is mended.",
        boundary="target.verify",
    )


def _held(evidence: Evidence, after: str) -> Deviation | None:
    places = (hidden.AUX_CAPTURE, hidden.FED)
    told = [deviation.of_reference(evidence.reference, place, WRONG, after) for place in places]
    return next((one for one in told if one is not None), None)


def _numbers(evidence: Evidence, told: Deviation, when: str) -> tuple[Number, ...]:
    return tuple(
        Number(
            f"relative error of slot {slot.slot} to the reference {when} ({slot.rows} rows)",
            round(slot.error, 3),
            f"< {RIGHT:g}",
            "",
            facts.link(evidence, "target.verify"),
        )
        for slot in told.slots
    )
