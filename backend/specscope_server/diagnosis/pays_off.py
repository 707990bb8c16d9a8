"""Does speculation pay? Tokens a second with it against without, from measured times and acceptance.

At a batch of b requests a speculative step takes T_step(b) and gives each request L(b) tokens; a plain decode
pass takes T_decode(b) and gives one: speed-up = L(b) * T_decode(b) / T_step(b). Where no plain pass was ever
timed, the target's forward over the drafts bounds it (CPU alone): it computes at least what a plain pass
does, so the speed-up is at most L(b) * T_verify(b) / (T_draft(b) + T_verify(b)).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specscope import convention as c
from specscope.rollup import BATCH, Counts

from specscope_server.diagnosis import facts
from specscope_server.diagnosis.engine_evidence import PassTime
from specscope_server.diagnosis.model import CERTAIN, OBSERVATION, WARNING, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "pays_off"
MIN_PASSES: Final = 50
MIN_STEPS: Final = 100
MARGIN: Final = 0.95
"""A speed-up below this is a loss: means of host times are good to some per cent."""


@dataclass(frozen=True, slots=True)
class AtBatch:
    """Speed-up at one slice of the batch; ``bound``: it is at most that much."""

    batch_size: int
    steps: int
    length: float
    step_ms: float
    plain_ms: float
    bound: bool
    plain_of: str

    @property
    def speedup(self) -> float:
        """Return tokens a second with speculation to those without."""
        return self.length * self.plain_ms / self.step_ms


@dataclass(frozen=True, slots=True)
class Assessment:
    """All slices of the batch that are known, and what they add up to by the time spent in each."""

    batches: tuple[AtBatch, ...]

    @property
    def bound(self) -> bool:
        """Say whether any of it is an upper bound only."""
        return any(one.bound for one in self.batches)

    @property
    def speedup(self) -> float:
        """Return the time that plain decode would take for what was served, to the time taken."""
        took = sum(one.steps / one.batch_size * one.step_ms for one in self.batches)
        return sum(one.steps / one.batch_size * one.step_ms * one.speedup for one in self.batches) / took

    @property
    def words(self) -> str:
        """Return it in a few words."""
        if self.speedup < MARGIN:
            return f"slows down to {self.speedup:.2f} x" + (" at best" if self.bound else "")
        if self.bound:
            return f"not known: speeds up {self.speedup:.1f} x at best, plain decode was not timed"
        return f"speeds up {self.speedup:.1f} x"


def assess(evidence: Evidence) -> Assessment | str:
    """Return what speculation brings, or why that is not known."""
    if not evidence.times:
        return "the engine's passes are not timed"
    times = {(one.kind, one.batch_size): one for one in evidence.times if one.passes >= MIN_PASSES}
    found = [
        known
        for one in evidence.slices
        if one.dimension == BATCH and one.counts.steps >= MIN_STEPS
        if (known := _at(int(one.value.partition("-")[0]), one.counts, times)) is not None
    ]
    if not found:
        return (
            f"no batch size has {MIN_STEPS} verify steps {facts.window_text(evidence)} and {MIN_PASSES} timed"
            " passes with and without a draft: serve the same model once without speculation to know"
        )
    return Assessment(tuple(found))


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether speculation slows the engine down."""
    told = assess(evidence)
    if isinstance(told, str):
        return Unknown(told)
    if told.bound:
        # Told, and no finding: on a CPU the host's work around a small draft is most of a step, which says
        # little of the deployment that people would decide about by it.
        return Unknown(told.words)
    if told.speedup >= MARGIN:
        return CLEAR
    root = next((one for one in found if one.confidence == CERTAIN), None)
    place = facts.link(evidence)
    others = sorted({one.plain_of for one in told.batches if one.plain_of})
    against = f"plain decode on engine {', '.join(others)}" if others else "its own plain decode"
    return Finding(
        kind=KIND,
        fault_class="",
        severity=WARNING,
        confidence=OBSERVATION,
        title="Speculation does not pay",
        sentence=f"Speculation {told.words} against {against} {facts.window_text(evidence)}.",
        numbers=tuple(
            Number(f"speed-up at batch {one.batch_size}", round(one.speedup, 3), ">= 1", "x", place)
            for one in told.batches
        ),
        ruled_out=(Ruled("queues and prefill", "only passes that follow each other are timed"),),
        next_check="A/B: serve the same requests with and without speculation and compare tokens a second",
        fix="Fix the cause named before it; else draft fewer tokens, or none at large batches.",
        root="" if root is None else root.kind,
    )


def _at(batch: int, counts: Counts, times: Mapping[tuple[str, int], PassTime]) -> AtBatch | None:
    step, plain = times.get((c.PASS_STEP, batch)), times.get((c.PASS_DECODE, batch))
    verify, draft = times.get((c.PASS_VERIFY, batch)), times.get((c.PASS_DRAFT, batch))
    length = (counts.accepted + counts.bonus) / counts.steps
    if step is not None and plain is not None:
        return AtBatch(batch, counts.steps, length, step.mean_ms, plain.mean_ms, False, plain.engine)
    if verify is None or draft is None or batch < 1:
        return None
    whole = verify.mean_ms + draft.mean_ms
    return AtBatch(batch, counts.steps, length, whole, verify.mean_ms, True, "")
