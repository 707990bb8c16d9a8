"""Whether the draft's attention looks back as far as its checkpoint states: a setting, and its cost. Pure.

A window that the checkpoint does not state may be wanted, and cost nothing where no text looks back that far.
So the setting alone is no fault: with it come states of the draft that are wrong, and only behind the
shorter of both windows, or acceptance that suffers where a draft looks back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specscope_server.diagnosis import draft_state, facts, inventory
from specscope_server.diagnosis.draft_state import Side
from specscope_server.diagnosis.model import Evidence, Number

ARGUMENT: Final = "speculative_draft_window_size"
"""SGLang's setting: the draft attends to so many tokens before, whatever its checkpoint states
(``models/llama_eagle3.py``)."""

ODD: Final = 0.02
"""Share of wrong tokens that may be odd ones, where both windows see the same."""


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens that the draft sees as served and as its checkpoint states; ``None``: all of them."""

    served: int | None
    stated: int | None
    argument: bool
    """Whether a setting of the engine is the cause."""

    @property
    def shorter(self) -> int:
        """Return the tokens of context up to which both windows see the same."""
        return min(one for one in (self.served, self.stated) if one is not None)

    @property
    def words(self) -> str:
        """Say both."""
        served, stated = (
            "all tokens before" if one is None else f"the last {one} tokens"
            for one in (self.served, self.stated)
        )
        by = f" ({ARGUMENT})" if self.argument else ""
        return f"the draft's attention sees {served}{by}, and {stated} by its checkpoint"

    def number(self, evidence: Evidence) -> Number:
        """Return both as evidence."""
        return Number(
            "tokens before that the draft's attention sees",
            "all" if self.served is None else self.served,
            "all" if self.stated is None else self.stated,
            "(checkpoint)",
            f"{facts.link(evidence)}#differences",
        )


def other(evidence: Evidence) -> Window | None:
    """Return the draft's window where it is told not to be the one that its checkpoint states."""
    own = _length(facts.setting(evidence.config, "draft", "sliding_window"))
    asked = _length(facts.setting(evidence.config, "arguments", ARGUMENT))
    if asked is not None and asked != own:
        return Window(asked, own, argument=True)
    for line in facts.entries(evidence.config, "differences"):
        if line.get("field") == "sliding_window" and line.get("level") == inventory.CHECK:
            built, stated = _length(line.get("draft")), _length(line.get("checkpoint"))
            if built != stated:
                return Window(built, stated, argument=False)
    return None


def states(evidence: Evidence, window: Window) -> Side | None:
    """Return the states of the draft that are wrong where the two windows differ and nowhere else."""
    told = draft_state.elsewhere(evidence)
    if told is None:
        return None
    # Counted from 0, the token at a position has so many before it.
    within = sum(one.position < window.shorter for one in told.wrong)
    return told if within <= ODD * len(told.wrong) else None


def _length(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
