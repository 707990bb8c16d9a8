"""Expectation: the draft accepts less than was promised of it. A measured effect, not a cause by itself.

The promise comes from training (declared) or from a period that a person confirmed (learned), of all traffic
or of one workload; see :mod:`specscope_server.diagnosis.promise` for the odds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from specscope import convention as c
from specscope.rollup import Counts

from specscope_server.diagnosis import facts
from specscope_server.diagnosis.engine_evidence import Expectation
from specscope_server.diagnosis.model import (
    CERTAIN,
    OBSERVATION,
    WARNING,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.promise import Held, hold, odds_words
from specscope_server.diagnosis.sprt import ALPHA
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "expectation"
MIN_LOST: Final = 0.15
"""Share of the promised gain that must be missing: a promise is measured on other prompts than are served."""
MIN_STEPS: Final = 200
"""Verify steps from which a floor is held against the acceptance length."""
LOG_ALPHA: Final = math.log(ALPHA)
LN_10: Final = math.log(10)


@dataclass(frozen=True, slots=True)
class Answer:
    """One expectation, and what is served of it; ``held`` ``None``: nothing of it is served now."""

    expectation: Expectation
    held: Held | None
    steps: int
    length: float | None = None
    """Acceptance length of all positions; of a slice that is not counted by position ``held`` knows one."""

    @property
    def below_floor(self) -> bool:
        """Say whether the acceptance length is under the floor, over enough steps."""
        floor = self.expectation.floor
        return (
            floor is not None and self.length is not None and self.steps >= MIN_STEPS and self.length < floor
        )

    @property
    def broken(self) -> bool:
        """Say whether clearly less is served than promised."""
        if self.held is None:
            return False
        return self.held.lost >= MIN_LOST and self.held.odds(below=True)[0] <= LOG_ALPHA


def answers(evidence: Evidence) -> list[Answer]:
    """Return every expectation that holds of the engine with what is served of it."""
    found: list[Answer] = []
    if evidence.expectation is not None:
        found.append(_answer(evidence, evidence.expectation, evidence.positions, evidence.counts))
    sliced = {f"{one.dimension}={one.value}": one for one in evidence.slices}
    for one in evidence.workload_expectations:
        of = sliced.get(one.workload)
        positions = () if of is None else of.positions or first_position(of.counts)
        found.append(_answer(evidence, one, positions, None if of is None else of.counts))
    return found


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether less is accepted than was promised, or less than the floor."""
    told = answers(evidence)
    if not told:
        return Unknown("nothing was promised of this engine (specscope baseline)")
    served = [one for one in told if one.held is not None]
    if not served:
        return Unknown(f"no verify step of what is expected was reported {facts.window_text(evidence)}")
    worst = min(
        (one for one in served if one.broken or one.below_floor),
        key=lambda one: one.held.odds(below=True)[0] if one.held is not None else 0.0,
        default=None,
    )
    return CLEAR if worst is None or worst.held is None else _finding(evidence, found, worst, worst.held)


def promise_words(expectation: Expectation) -> str:
    """Say in words what was promised by whom."""
    source = (
        f"learned from {expectation.steps} verify steps" if expectation.source == "learned" else "declared"
    )
    by = f" by {expectation.who}" if expectation.who else ""
    of = f" for {expectation.workload}" if expectation.workload else ""
    return f"{source}{by}{of}"


def odds_sentence(held: Held) -> str:
    """Say the odds of what is served under what was promised in plain words."""
    odds, place = held.odds(below=True)
    if place is None:
        return "No position is accepted less often than promised."
    return (
        f"If the draft were as good as promised, chance alone would show so little with odds of"
        f" {odds_words(odds)} (worst at position {place.position + 1}: {place.served:.1%} of"
        f" {place.reached}, promised {place.promised:.1%})."
    )


def first_position(counts: Counts) -> tuple[tuple[int, int], ...]:
    """Return [drafted, accepted] of position 0 of a slice that is not counted by position."""
    drafted = counts.steps - counts.undrafted_steps
    return ((drafted, drafted - counts.zero_steps),) if drafted > 0 else ()


def _answer(
    evidence: Evidence, one: Expectation, positions: Sequence[tuple[int, int]], counts: Counts | None
) -> Answer:
    requests = max(evidence.window_requests.get(c.KIND_USER, 0), 1)
    steps = positions[0][0] if positions else 0
    held = hold(positions, one.per_position, steps / requests)
    length = (counts.accepted + counts.bonus) / counts.steps if counts is not None and counts.steps else None
    return Answer(one, held, steps, length)


def _finding(evidence: Evidence, found: tuple[Finding, ...], worst: Answer, held: Held) -> Finding:
    root = next((one for one in found if one.confidence == CERTAIN), None)
    promise = worst.expectation
    title = "Less is accepted than promised" if worst.broken else "Acceptance is below its floor"
    floor = f" Its floor is {promise.floor:.2f}." if worst.below_floor and promise.floor is not None else ""
    because = (
        f" Another finding explains it: {root.title.lower()}."
        if root is not None
        else " This names no cause: the draft, the engine or the prompts may be others than the promise was"
        " measured with."
    )
    place = facts.link(evidence)
    return Finding(
        kind=KIND,
        fault_class="",
        severity=WARNING,
        confidence=OBSERVATION,
        title=title,
        sentence=(
            f"Acceptance length {held.length:.2f} {facts.window_text(evidence)}, where {held.promised:.2f}"
            f" was promised ({promise_words(promise)}).{floor} {odds_sentence(held)}{because}"
        ),
        numbers=(
            Number("acceptance length", round(held.length, 3), round(held.promised, 3), "tokens", place),
            *(
                Number(
                    f"accepted at position {one.position + 1}, of those that reached it",
                    round(one.served, 4),
                    round(one.promised, 4),
                    "",
                    place,
                )
                for one in held.places
            ),
            Number("verify steps", worst.steps, None, "steps", place),
            *facts.examples(evidence),
        ),
        ruled_out=(Ruled("chance", f"odds of {odds_words(held.odds(below=True)[0])}"),)
        if worst.broken
        else (),
        next_check="A/B: serve the prompts that the promise was measured with. If they are accepted as"
        " promised, the traffic differs (F23), and specscope baseline learn --workload takes note of it; if"
        " not, the draft or the engine does",
        fix="Fix the cause named before it; where the promise was wrong: specscope baseline set.",
        root="" if root is None else root.kind,
    )
