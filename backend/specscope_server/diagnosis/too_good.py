"""Too good: more is accepted than any draft earns. A suspicion against the verifier or the counters (F22).

A draft is a small model: on text that does not copy its own context it cannot know what the target will say
next almost always. Where it seems to, what is suspected is not the draft but what verifies it.
"""

from __future__ import annotations

from typing import Final

from specscope.rollup import COPY_LIKE, Counts

from specscope_server.diagnosis import facts
from specscope_server.diagnosis.model import SUSPECTED, WARNING, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "too_good"
MOST: Final = 0.98
"""Share of drafts accepted, on steps that do not copy, above which it is looked into. A judgement: healthy
drafts of the tiny pair accept 0.69 to 0.79 of first positions (models/tiny/fault-table.md)."""
MIN_STEPS: Final = 200
MIN_REQUESTS: Final = 5


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether practically every draft is accepted where the text copies nothing."""
    if any(one.fault_class == "F22" for one in found):
        return CLEAR  # named by the rule that sees verification itself
    plain = _not_copying(evidence)
    if plain is None:
        return Unknown("which steps copy their context is not told, and copied text is rightly accepted")
    requests = sum(evidence.window_requests.values())
    if plain.steps < MIN_STEPS or requests < MIN_REQUESTS:
        return Unknown(
            f"{plain.steps} verify steps that copy nothing of {requests} requests: {MIN_STEPS} and"
            f" {MIN_REQUESTS} are needed"
        )
    share = plain.accepted / plain.drafted_depth if plain.drafted_depth else 0.0
    if share < MOST:
        return CLEAR
    place = facts.link(evidence)
    return Finding(
        kind=KIND,
        fault_class="F22",
        severity=WARNING,
        confidence=SUSPECTED,
        title="Nearly every draft is accepted",
        sentence=(
            f"{share:.1%} of the drafts were accepted {facts.window_text(evidence)} on {plain.steps} verify"
            " steps whose text copies nothing: no small model knows its target that well. If the verifier"
            " accepts what the target would not say, the answers are wrong."
        ),
        numbers=(
            Number("drafts accepted, not copying", round(share, 4), f"< {MOST}", "", place),
            Number("verify steps, not copying", plain.steps, None, "steps", place),
            *facts.examples(evidence),
        ),
        ruled_out=(Ruled("copied text", "steps whose context repeats itself are left out"),),
        next_check="A/B: send the same prompts at temperature 0 with and without speculation: any difference"
        " in the answers shows that drafts are accepted which the target would not say",
        fix="Serve without speculation until that check has passed.",
    )


def _not_copying(evidence: Evidence) -> Counts | None:
    """Return the counts of the steps whose context does not repeat itself; ``None``: not told."""
    found = [one.counts for one in evidence.slices if (one.dimension, one.value) == (COPY_LIKE, "no")]
    return found[0] if found else None
