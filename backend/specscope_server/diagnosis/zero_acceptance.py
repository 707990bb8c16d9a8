"""Zero acceptance: practically no draft token is accepted. An observation, not a fault with a cause.

Decided by the sequential test in :mod:`specscope_server.diagnosis.sprt`, never by one zero.
"""

from __future__ import annotations

from specscope import convention as c
from specscope.rollup import Counts

from specscope_server.diagnosis import facts, shapes, sprt
from specscope_server.diagnosis.model import (
    CERTAIN,
    OBSERVATION,
    WARNING,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND = "zero_acceptance"
MAX_LENGTH = 1.3
"""A window with an acceptance length from this on has a benefit, however rarely the first token is accepted
(block drafts may accept all or nothing)."""


def first_token(counts: Counts) -> sprt.Verdict | None:
    """Test the acceptance of the first draft token; ``None`` when no verify step drafted (undefined).

    A step accepted its first token when it drafted and was not a zero-accept step. Counts that contradict
    each other (more zero-accept steps than steps that drafted) decide nothing either.
    """
    drafted = counts.steps - counts.undrafted_steps
    accepted = drafted - counts.zero_steps
    return sprt.decide(drafted, accepted) if drafted > 0 and accepted >= 0 else None


def of_request(verify_steps: int, zero_steps: int) -> sprt.Verdict | None:
    """Test one request's first tokens, corrected for many requests; ``None``: it has no verify step.

    A step that drafted nothing counts as accepted here (a request's totals do not tell these apart), which
    only makes it harder to accuse.
    """
    if not 0 <= zero_steps <= verify_steps or not verify_steps:
        return None
    return sprt.decide(verify_steps, verify_steps - zero_steps, sprt.REQUEST_ALPHA)


def request_words(test: sprt.Verdict) -> str:
    """Say in words what the test of one request says."""
    few = f"in {test.accepted} of {test.steps} verify steps the first draft token was accepted"
    if test.decision == sprt.NO_BENEFIT:
        return (
            f"Speculation brought this request nothing: {few}. A draft that helps at all shows this less than"
            f" {sprt.FALSE_ALARMS_A_DAY:g} times in {sprt.REQUESTS_A_DAY:,} requests."
        )
    if test.decision == sprt.BENEFIT:
        return f"Speculation helped this request: {few}."
    return f"This request is too short to tell a benefit from none: {few}."


def judge(evidence: Evidence, roots: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft brings practically nothing in the window."""
    counts = evidence.counts
    if counts is None:
        return Unknown(f"no verify step was reported {facts.window_text(evidence)}: undefined, not 0")
    if not evidence.requests.get(c.KIND_USER, 0) and sum(evidence.requests.values()):
        return Unknown("only health checks and warm-ups arrived since the engine started")
    test = first_token(counts)
    if test is None:
        return Unknown(undefined(counts))
    if test.decision == sprt.UNDECIDED:
        return Unknown(undecided(test))
    if test.decision == sprt.BENEFIT or acceptance_length(counts) >= MAX_LENGTH:
        return CLEAR
    return _finding(evidence, counts, test, roots)


def acceptance_length(counts: Counts) -> float:
    """Return (accepted + bonus) / steps; ``counts.steps`` must not be 0."""
    return (counts.accepted + counts.bonus) / counts.steps


def undefined(counts: Counts) -> str:
    """Say in words why the first token cannot be tested at all."""
    drafted = counts.steps - counts.undrafted_steps
    if drafted:
        return (
            f"the counts contradict each other: {counts.steps} verify steps, {counts.undrafted_steps} without"
            f" a draft, {counts.zero_steps} that accepted nothing of theirs"
        )
    return f"none of {counts.steps} verify steps drafted anything, so the acceptance rate is undefined, not 0"


def undecided(test: sprt.Verdict) -> str:
    """Say in words that the test has not decided."""
    return (
        f"the draft's first token was accepted in {test.accepted} of {test.steps} verify steps: not enough to"
        f" tell a benefit ({sprt.P0:.0%} or more) from none ({sprt.P1:.0%} or less)"
    )


def _finding(evidence: Evidence, counts: Counts, test: sprt.Verdict, roots: tuple[Finding, ...]) -> Finding:
    root = next((f for f in roots if f.confidence == CERTAIN), None)
    share = (
        f"{facts.window_text(evidence).capitalize()} the target accepted the draft's first token in"
        f" {test.accepted} of {test.steps} verify steps ({test.accepted / test.steps:.1%}): speculation costs"
        " work and brings practically nothing."
    )
    if root is not None:
        because = f" This follows from another finding: {root.title.lower()}."
        title = "Zero acceptance, a consequence"
        check, fix = root.next_check, f"Fix the cause first: {root.fix}"
    else:
        because = (
            f" No benefit; cause not found in the engine{_healthy_path(evidence)}."
            if not roots
            else f" Suspected cause: {roots[0].title.lower()}."
        )
        title = "No benefit, cause not found" if not roots else "Zero acceptance"
        check = (
            "A/B: send prompts from the draft's training data. If they are accepted, the workload differs"
            " (F23); if not, compare the tensor names of the draft's checkpoint with the engine's log of"
            " loaded weights (F08, F09) and look for its token map d2t (F10)"
        )
        fix = "Serve without speculation until the cause is known: this draft only costs time."
    return Finding(
        kind=KIND,
        fault_class="",
        severity=WARNING,
        confidence=OBSERVATION,
        title=title,
        sentence=share + because,
        numbers=_numbers(evidence, counts, test),
        ruled_out=_ruled_out(evidence, test),
        next_check=check,
        fix=fix,
        root="" if root is None else root.kind,
    )


def _watched(evidence: Evidence) -> list[facts.Line]:
    found = [facts.line(evidence, boundary, source) for boundary in c.BOUNDARIES for source in c.SOURCES]
    return [line for line in found if line is not None]


def _healthy_path(evidence: Evidence) -> str:
    complete = [line for line in _watched(evidence) if not line.silent and not line.short]
    if not complete:
        return " (its boundaries cannot be observed here)"
    names = ", ".join(dict.fromkeys(line.boundary for line in complete))
    return f": crossed as often as they must be: {names}"


def _numbers(evidence: Evidence, counts: Counts, test: sprt.Verdict) -> tuple[Number, ...]:
    place = facts.link(evidence)
    numbers = [
        Number("steps whose first draft token was accepted", test.accepted, None, "steps", place),
        Number("verify steps that drafted", test.steps, None, "steps", place),
        Number("first-token acceptance", round(test.accepted / test.steps, 4), f">= {sprt.P0}", "", place),
        Number("acceptance length", round(acceptance_length(counts), 3), f">= {MAX_LENGTH}", "tokens", place),
        Number("log likelihood ratio", round(test.ratio, 1), f"< {sprt.UPPER:.1f}", "", place),
    ]
    shape = shapes.shape(evidence.positions)
    if shape.conditional:
        numbers.append(Number("acceptance over draft tokens", shape.words, None, "", place))
    dropped = sum(evidence.dropped.values())
    if dropped:
        numbers.append(Number("records the tracer dropped since start", dropped, 0, "records", place))
    return (*numbers, *facts.examples(evidence))


def _ruled_out(evidence: Evidence, test: sprt.Verdict) -> tuple[Ruled, ...]:
    ruled = [
        Ruled(
            "bad luck",
            f"a draft with {sprt.P0:.0%} would show this once in {1 / sprt.ALPHA:.0e} windows",
        )
    ]
    rivals = (
        ("F01 loaded, not active", c.DRAFT_PROPOSE, c.NO_SOURCE),
        ("F02 draft skipped", c.DRAFT_FORWARD, c.SELF_FED),
        ("F03 never verified", c.TARGET_VERIFY, c.NO_SOURCE),
        ("F04 fc bypassed", c.DRAFT_FC, c.TARGET_FED),
    )
    for fault, boundary, source in rivals:
        line = facts.line(evidence, boundary, source)
        if line is not None and not line.silent and not line.short:
            ruled.append(Ruled(fault, f"{boundary} crossed {line.observed} of {line.expected} times"))
    return tuple(ruled)
