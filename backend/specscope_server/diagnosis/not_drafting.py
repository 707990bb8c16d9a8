"""Passes that draft nothing because the engine is set so: at large batches a draft may cost too much.

SGLang's adaptive speculation has a table of draft steps by batch size (``--speculative-adaptive-config``;
``srt/speculative/adaptive_spec_params.py``, whose default allows none from 8 requests at once on and has
none from 64 on). The ledger then expects nothing of the draft, so these passes leave no gap; they are no
fault, and no acceptance of 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from specscope import convention as c
from specscope.rollup import BATCH

from specscope_server.diagnosis import facts
from specscope_server.diagnosis.model import Evidence

NOTED: Final = 0.01
"""Share of the steps that must have drafted nothing to be worth a sentence."""
MOST: Final = 0.5
"""And the share from which it is what there is to say of the engine, where nothing else is known."""


@dataclass(frozen=True, slots=True)
class NotDrafting:
    """``undrafted`` of ``steps`` verify steps drafted nothing, as set; ``why`` says by what, in words."""

    undrafted: int
    steps: int
    why: str

    @property
    def share(self) -> float:
        """Return the share of steps without a draft."""
        return self.undrafted / self.steps

    def sentence(self, evidence: Evidence) -> str:
        """Say it with its numbers."""
        return (
            f"{self.undrafted} of {self.steps} verify steps {facts.window_text(evidence)} drafted nothing"
            f" because the engine is set so, which is no fault and no acceptance of 0: {self.why}."
        )


def table(evidence: Evidence) -> dict[int, tuple[int, ...]]:
    """Return the numbers of draft steps that are allowed, by the least batch size that they hold for.

    Empty: the steps do not depend on the batch, or it was not told.
    """
    told: object = facts.setting(evidence.config, "speculative", "steps_by_batch")
    if not isinstance(told, Mapping):
        return {}
    found: dict[int, tuple[int, ...]] = {}
    for size, steps in cast("Mapping[Any, Any]", told).items():
        listed = cast("list[Any]", steps) if isinstance(steps, list | tuple) else []
        if str(size).isdecimal() and listed and all(type(one) is int for one in listed):
            found[int(size)] = tuple(listed)
    return dict(sorted(found.items()))


def of(evidence: Evidence) -> NotDrafting | None:
    """Return which steps of the window drafted nothing on purpose; ``None``: none, or it is not known why."""
    counts = evidence.counts
    if counts is None or counts.steps <= 0 or counts.undrafted_steps <= 0:
        return None
    allowed = table(evidence)
    why = _by_table(evidence, allowed) if allowed else _by_slices(evidence)
    return NotDrafting(counts.undrafted_steps, counts.steps, why) if why else None


def never_by_table(allowed: Mapping[int, tuple[int, ...]]) -> bool:
    """Say whether a table has no draft steps at the smallest batches: there a draft gains most."""
    return bool(allowed) and not any(allowed[min(allowed)])


def _by_table(evidence: Evidence, allowed: Mapping[int, tuple[int, ...]]) -> str:
    least = min((size for size, steps in allowed.items() if 0 in steps), default=None)
    if least is None or never_by_table(allowed):
        return ""
    silent = [one.value for one in evidence.slices if one.dimension == BATCH and one.counts.undrafted_steps]
    if any(_last(value) < least for value in silent):
        return ""
    always = min((size for size, steps in allowed.items() if not any(steps)), default=None)
    where = (
        f"has none from {_requests(least)} at once on"
        if always == least
        else f"may come down to none from {_requests(least)} at once on"
        + ("" if always is None else f" and has none from {always} on")
    )
    return f"its table of draft steps by batch size {where}"


def _by_slices(evidence: Evidence) -> str:
    batches = [one for one in evidence.slices if one.dimension == BATCH and one.counts.steps > 0]
    silent = [one.value for one in batches if one.counts.undrafted_steps == one.counts.steps]
    drafting = [one.value for one in batches if one.counts.undrafted_steps == 0]
    if not silent or not drafting or not _fewer_expected(evidence):
        return ""
    return (
        f"at batches of {', '.join(silent)} requests it asked its draft for nothing, at batches of"
        f" {', '.join(drafting)} it drafts"
    )


def _fewer_expected(evidence: Evidence) -> bool:
    """Say whether fewer passes had to propose than had to verify: then some were set to draft nothing."""
    expected = {line.boundary: line.expected for line in evidence.window}
    return expected.get(c.DRAFT_PROPOSE, 0) < expected.get(c.TARGET_VERIFY, 0)


def _last(value: str) -> int:
    """Return the largest number of a power-of-two slice; 0 where it is none."""
    last = value.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"
