"""F22: verification itself is wrong: it refuses what the target says, or accepts what it does not.

* *Never*: nothing was accepted at all, though drafts equal the tokens that the target then committed at the
  same places, or the target rated the refused drafts highest.
* *Always*: every draft was accepted, though the draft itself held its favourite for uncertain.
* *Only greedy*: accepted at temperature 0 and practically never when sampling, though sampling no hotter
  than 1 leaves a draft the probability that the target gives its token.
"""

from __future__ import annotations

import math
from typing import Final

from specscope import convention as c
from specscope.rollup import TEMPERATURE

from specscope_server.diagnosis import facts, slice_compare, sprt, statistics
from specscope_server.diagnosis.model import (
    CERTAIN,
    CRITICAL,
    SUSPECTED,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.promise import odds_words
from specscope_server.diagnosis.statistics import Share
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "verify_wrong"
FAULT: Final = "F22"
MIN_STEPS: Final = 100
MIN_REQUESTS: Final = 5
ALL: Final = 0.98
UNSURE: Final = 0.8
"""Mean probability of its favourite below which a draft that is always right is not believed. Copied text,
rightly accepted, is drafted with more; a sound draft that is held for 0.45 is accepted in 0.69 to 0.8."""
_CHECK: Final = (
    "A/B: the same prompts at temperature 0 with and without speculation: any difference in the answers shows"
    " that tokens are committed which the target would not say"
)


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether what verification accepts can be what the target says."""
    counts = evidence.counts
    first = slice_compare.first_token(counts) if counts is not None else None
    if counts is None or first is None:
        return Unknown(f"no verify step drafted anything {facts.window_text(evidence)}")
    if first.of < MIN_STEPS:
        return Unknown(f"{first.of:.0f} verify steps drafted, {MIN_STEPS} are needed")
    if not counts.accepted:
        return _never(evidence, first, found)
    if counts.accepted >= ALL * counts.drafted_depth:
        return _always(evidence, counts.accepted, counts.drafted_depth, found)
    return _only_greedy(evidence, found)


def _never(evidence: Evidence, first: Share, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    shift = next((one for one in evidence.steps.shifts if one.offset == 0 and one.of >= MIN_STEPS), None)
    equal = Share(shift.hits, shift.of) if shift is not None else None
    refusal = evidence.steps.refusal
    rank = refusal.target_rank if refusal is not None and refusal.steps >= MIN_STEPS else None
    if equal is None and rank is None:
        return Unknown("which tokens the target preferred is not recorded (detail tokens and up tells it)")
    right = equal is not None and equal.value >= sprt.P0
    best = rank is not None and rank < 1
    if not right and not best:
        return CLEAR  # the drafts themselves are wrong
    said: list[str] = []
    numbers = [Number("accepted drafts", 0, None, f"of {first.of:.0f} steps", facts.link(evidence))]
    if equal is not None:
        numbers.append(
            Number("drafts equal to the committed token", round(equal.value, 3), 0, f"of {equal.of:.0f}")
        )
        if right:
            said.append(
                f"{equal.value:.0%} of the drafts are the very token that was then committed at their place"
            )
            odds = _weighed(evidence, first).of * math.log1p(-min(equal.value, 1 - 1e-9))
            numbers.append(Number("odds of no accept by chance", odds_words(odds)))
    if rank is not None:
        numbers.append(Number("tokens the target rated above the refused draft, median", rank, "> 0"))
        if best:
            said.append("the target rated the refused drafts highest of all tokens")
    return _finding(
        evidence,
        found,
        CERTAIN if right and best and not slice_compare.root(found) else SUSPECTED,
        "Right drafts are refused",
        f"Not one draft was accepted {facts.window_text(evidence)}, yet {' and '.join(said)}. The draft is"
        " well; what compares it with the target is not.",
        tuple(numbers),
        (Ruled("F08 to F11 the draft's head or map", "its tokens are those of the target"),) if right else (),
    )


def _always(
    evidence: Evidence, accepted: int, drafted: int, found: tuple[Finding, ...]
) -> Finding | Clear | Unknown:
    users = evidence.window_requests.get(c.KIND_USER, 0)
    told = [one for one in evidence.steps.certainty if one.steps > 0]
    if users < MIN_REQUESTS:
        return Unknown(f"{users} requests are too few to call their acceptance too good")
    if sum(one.steps for one in told) < MIN_STEPS:
        return Unknown("how sure the draft was is not recorded, and sure drafts are rightly accepted")
    share = Share(accepted, drafted)
    per_request = drafted / users
    low, _ = statistics.always_valid(statistics.effective(share, per_request), sprt.ALPHA)
    top1 = sum(one.top1 * one.steps for one in told) / sum(one.steps for one in told)
    # As many at once as the draft itself holds for certain is earned; the interval must be beyond that.
    if top1 > UNSURE or low <= top1:
        return CLEAR
    return _finding(
        evidence,
        found,
        SUSPECTED,
        "More is accepted than the draft itself believes",
        f"{accepted} of {drafted} drafts were accepted {facts.window_text(evidence)}, though the draft gave"
        f" its favourite a probability of {top1:.2f} on average. A guess that unsure is not always right;"
        " verification may accept what the target would not say (a comparison with NaN accepts all), and"
        " then the answers are wrong.",
        (
            Number(
                "drafts accepted", round(share.value, 4), f"< {ALL}", f"of {drafted}", facts.link(evidence)
            ),
            Number("mean probability of the draft's favourite", round(top1, 3), f"> {UNSURE}"),
            Number("least true acceptance", round(low, 3), f"<= {top1:.3f}"),
        ),
        (Ruled("copied text", "a draft that copies is sure of it"),),
    )


def _only_greedy(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    values = slice_compare.by_value(evidence, TEMPERATURE)
    mild = [values[name] for name in ("<=0.5", "<=1") if name in values]
    if "0" not in values or not mild:
        return CLEAR
    greedy, sampled = (
        slice_compare.first_token(values["0"]),
        slice_compare.first_token(slice_compare.total(mild)),
    )
    if greedy is None or sampled is None or min(greedy.of, sampled.of) < MIN_STEPS:
        return CLEAR
    _, most = statistics.always_valid(_weighed(evidence, sampled), sprt.ALPHA)
    least, _ = statistics.always_valid(_weighed(evidence, greedy), sprt.ALPHA)
    if sampled.value > sprt.P1 or most >= least:
        return CLEAR
    return _finding(
        evidence,
        found,
        SUSPECTED,
        "Sampled requests accept nothing",
        f"{facts.window_text(evidence).capitalize()} the first draft token was accepted in"
        f" {greedy.value:.0%} of {greedy.of:.0f} greedy verify steps and in {sampled.value:.0%} of"
        f" {sampled.of:.0f} sampled ones (temperature up to 1). Sampling costs some acceptance, not all.",
        (
            Number("first-token acceptance, greedy", round(greedy.value, 3), None, f"of {greedy.of:.0f}"),
            Number("first-token acceptance, sampled", round(sampled.value, 3), f"> {sprt.P1}"),
        ),
        (),
        "A/B: one prompt at temperature 0 and at 0.1, where the target says nearly always the same: a draft"
        " refused only at 0.1 is refused by the sampler",
    )


def _finding(
    evidence: Evidence,
    found: tuple[Finding, ...],
    confidence: str,
    title: str,
    sentence: str,
    numbers: tuple[Number, ...],
    ruled: tuple[Ruled, ...],
    check: str = _CHECK,
) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=ruled,
        next_check=check,
        fix="Serve without speculation until that check has passed; report the engine's version, sampling"
        " backend and the request.",
        boundary=c.TARGET_VERIFY,
        root=slice_compare.root(found),
    )


def _weighed(evidence: Evidence, share: Share) -> Share:
    return statistics.effective(share, slice_compare.steps_a_request(evidence) or share.of)
