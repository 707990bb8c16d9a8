"""Places where hidden states are looked at, in words: what each is, and why one was not looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from specscope import convention as c
from specscope import hidden

from specscope_server.store.model import BoundaryState

DOES: Final = {
    hidden.AUX_CAPTURE: "what the target packed for the draft, slot by slot",
    hidden.FED: "what the draft was fed, slot by slot",
    hidden.FC_IN: "what reached the draft's fc, slot by slot",
    hidden.FC_OUT: "what fc made of it",
    hidden.EMBEDDING: "embeddings of the draft's input tokens",
    hidden.CARRY: "the state that the draft hands to its next step",
    hidden.START: "the state that a proposal starts from: what the pass before left",
}
"""What a place is to a newcomer; a slot is one aux layer."""
SLOTTED: Final = (hidden.AUX_CAPTURE, hidden.FED, hidden.FC_IN)
BOUNDARIES: Final = {
    hidden.AUX_CAPTURE: c.AUX_CAPTURE,
    hidden.FED: c.DRAFT_EXTEND,
    hidden.FC_IN: c.DRAFT_FC,
    hidden.FC_OUT: c.DRAFT_FC,
    hidden.EMBEDDING: c.DRAFT_FORWARD,
    hidden.CARRY: c.DRAFT_FORWARD,
    hidden.START: c.DRAFT_PROPOSE,
}
EXPECTED: Final = (
    *((place, c.TARGET_FED) for place in hidden.PLACES),
    (hidden.EMBEDDING, c.SELF_FED),
    (hidden.CARRY, c.SELF_FED),
)
"""(place, source) that a drafting engine has."""
_OUTSIDE: Final = tuple((place, c.TARGET_FED) for place in (hidden.FED, hidden.CARRY, hidden.START))
"""Seen beside a captured graph, however it is replayed."""
SOURCES: Final = {c.TARGET_FED: "target-fed", c.SELF_FED: "self-fed"}


def which(place: str, source: str, draft_step: int, slot: int) -> str:
    """Return which of a place's tensors is meant: its slot, its draft step, or what fed the pass."""
    parts = [f"slot {slot}"] if slot or place in SLOTTED else []
    if draft_step or place == hidden.CARRY:
        parts.append(f"draft step {draft_step}")
    return ", ".join(parts) or SOURCES.get(source, source)


_SHORT: Final = {
    hidden.FED: "",
    hidden.FC_OUT: "fc out",
    hidden.EMBEDDING: "embed",
    hidden.CARRY: "carry",
    hidden.START: "start",
}


def short_name(place: str, draft_step: int, slot: int) -> str:
    """Return a tensor in a few fixed characters, for a figure: ``slot 2``, ``carry 1``.

    ``place`` is one of ours.
    """
    parts = [_SHORT.get(place, place)]
    if slot or place in SLOTTED:
        parts.append(f"slot {slot}")
    if draft_step or place == hidden.CARRY:
        parts.append(str(draft_step))
    return " ".join(part for part in parts if part)


def why_not(place: str, source: str, ledger: Sequence[BoundaryState], detail: str) -> str:
    """Say why nothing was looked at, from the boundary that the place belongs to."""
    if detail == c.DETAIL_SUMMARY:
        return "not taken at detail level summary"
    boundary = BOUNDARIES[place]
    lines = [line for line in ledger if line.boundary == boundary and line.source in (source, c.NO_SOURCE)]
    unseen = next((line for line in lines if not line.armed), None)
    if unseen is not None:
        return f"not observable: {unseen.reason or 'no reason given'}"
    if not ledger:
        return "not told, and no boundary counts that say why"
    if not any(line.expected or line.observed_total for line in lines):
        return f"not on this path: no crossing of {boundary} was expected"
    modes = {mode for line in lines for mode, number in line.observed.items() if number}
    if not modes:
        return f"{boundary} never ran, so there was nothing to look at"
    if c.EAGER not in modes and (place, source) not in _OUTSIDE:
        more = "" if detail == c.DETAIL_FULL else f" at detail level {detail or 'as told'}"
        return f"not observable in a replayed graph{more}"
    return "not taken here: each prefill and every n-th engine step is looked at (SPECSCOPE_SAMPLE_EVERY)"
