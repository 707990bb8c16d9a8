"""The numbers of the pages: each with its unit, formula and counts, or why it is undefined."""

from __future__ import annotations

from dataclasses import dataclass

from specscope.rollup import Counts

from specscope_server.store.told import RequestTotals
from specscope_server.web import format as f


@dataclass(frozen=True, slots=True)
class Stat:
    """One number. ``working`` is the formula with its counts; ``why`` says why ``value`` is a dash."""

    label: str
    value: str
    unit: str = ""
    formula: str = ""
    working: str = ""
    why: str = ""

    @property
    def defined(self) -> bool:
        """Say whether there is a value."""
        return self.value != f.DASH


LENGTH_FORMULA = "(accepted + bonus) ÷ verify steps"
RATE_FORMULA = "accepted ÷ drafted positions"
ZERO_FORMULA = "verify steps that accepted nothing ÷ verify steps that drafted"
YIELD_FORMULA = "accepted ÷ drafted nodes"
DEPTH_FORMULA = "drafted positions ÷ verify steps"
POSITION_FORMULA = "steps that accepted position d ÷ steps that drafted position d"
SPEEDUP_FORMULA = "acceptance length × time of a plain decode pass ÷ time of a speculative pass"
CONDITIONAL_FORMULA = "steps that accepted position d ÷ steps that accepted position d − 1"

FORMULAS = {
    "length": LENGTH_FORMULA,
    "rate": RATE_FORMULA,
    "zero": ZERO_FORMULA,
    "yield": YIELD_FORMULA,
    "depth": DEPTH_FORMULA,
    "position": POSITION_FORMULA,
    "conditional": CONDITIONAL_FORMULA,
    "speedup": SPEEDUP_FORMULA,
}
"""Formulas by short name, for the templates."""

NO_STEPS = "undefined: no verify step ran"
NO_DRAFTS = "undefined: nothing was drafted"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The counts behind acceptance, whatever they are summed over."""

    steps: int
    drafted_depth: int
    drafted_nodes: int
    accepted: int
    bonus: int
    zero_steps: int
    drafting_steps: int | None

    @classmethod
    def of_counts(cls, counts: Counts) -> Acceptance:
        """Take the sums of rollups."""
        return cls(
            counts.steps,
            counts.drafted_depth,
            counts.drafted_nodes,
            counts.accepted,
            counts.bonus,
            counts.zero_steps,
            counts.steps - counts.undrafted_steps,
        )

    @classmethod
    def of_totals(cls, totals: RequestTotals) -> Acceptance:
        """Take the totals of a request; how many of its steps drafted is not among them."""
        return cls(
            totals.verify_steps,
            totals.drafted_depth,
            totals.drafted_nodes,
            totals.accepted,
            totals.bonus,
            totals.zero_accept_steps,
            None,
        )

    @property
    def length(self) -> float | None:
        """Return (accepted + bonus) / verify steps."""
        return (self.accepted + self.bonus) / self.steps if self.steps else None

    @property
    def rate(self) -> float | None:
        """Return accepted / drafted positions."""
        return self.accepted / self.drafted_depth if self.drafted_depth else None


def length_stat(counts: Acceptance | None, no_data: str) -> Stat:
    """Return the acceptance length; ``no_data`` says why there are no counts at all."""
    label, unit = "Acceptance length", "tokens / verify step"
    if counts is None or counts.length is None:
        return Stat(label, f.DASH, unit, LENGTH_FORMULA, why=no_data if counts is None else NO_STEPS)
    working = f"({f.count(counts.accepted)} + {f.count(counts.bonus)}) ÷ {f.count(counts.steps)}"
    return Stat(label, f.decimal(counts.length), unit, LENGTH_FORMULA, working)


def rate_stat(counts: Acceptance | None, no_data: str) -> Stat:
    """Return the acceptance rate."""
    label, unit = "Acceptance rate", "of drafted positions"
    if counts is None or counts.rate is None:
        return Stat(label, f.DASH, unit, RATE_FORMULA, why=no_data if counts is None else NO_DRAFTS)
    working = f"{f.count(counts.accepted)} ÷ {f.count(counts.drafted_depth)}"
    return Stat(label, f.share(counts.rate), unit, RATE_FORMULA, working)


def zero_stat(counts: Acceptance | None, no_data: str) -> Stat:
    """Return the share of drafting steps that accepted nothing."""
    label, unit = "Steps accepting nothing", "of drafting steps"
    if counts is None or not counts.drafting_steps:
        return Stat(label, f.DASH, unit, ZERO_FORMULA, why=no_data if counts is None else NO_DRAFTS)
    working = f"{f.count(counts.zero_steps)} ÷ {f.count(counts.drafting_steps)}"
    return Stat(label, f.share(counts.zero_steps / counts.drafting_steps), unit, ZERO_FORMULA, working)


def depth_stat(counts: Acceptance | None, no_data: str) -> Stat:
    """Return the mean drafted depth."""
    label, unit = "Drafted depth", "positions / verify step"
    if counts is None or not counts.steps:
        return Stat(label, f.DASH, unit, DEPTH_FORMULA, why=no_data if counts is None else NO_STEPS)
    working = f"{f.count(counts.drafted_depth)} ÷ {f.count(counts.steps)}"
    return Stat(label, f.decimal(counts.drafted_depth / counts.steps), unit, DEPTH_FORMULA, working)


def yield_stat(counts: Acceptance) -> Stat | None:
    """Return the node yield where drafts are trees; for chains it equals the rate and is left out."""
    if counts.drafted_nodes == counts.drafted_depth or not counts.drafted_nodes:
        return None
    working = f"{f.count(counts.accepted)} ÷ {f.count(counts.drafted_nodes)}"
    value = f.share(counts.accepted / counts.drafted_nodes)
    return Stat("Node yield", value, "of drafted tree nodes", YIELD_FORMULA, working)
