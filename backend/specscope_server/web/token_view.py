"""View model of a request's output: each token with how it came, and what the draft had said instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specscope import convention as c

from specscope_server.store.model import RequestRow, TokenizerRow
from specscope_server.tokens import committed as how
from specscope_server.tokens.committed import Gap, Instead, Token
from specscope_server.tokens.runs import Run, runs, text_of
from specscope_server.tokens.vocabulary import Vocabulary
from specscope_server.web import format as f

DEPTHS: Final = 5
"""Depths with a shade of their own; deeper ones share the last."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a token came: its word in class names, what it is called, and what that says."""

    mark: str
    name: str
    says: str


KINDS: Final[Mapping[str, Kind]] = {
    how.ACCEPTED: Kind(
        "ac", "accepted", "drafted, and accepted by the target; fainter the deeper in the draft"
    ),
    how.BONUS: Kind(
        "bo", "bonus", "the target's own, behind a draft, or a branch of it, of which all was accepted"
    ),
    how.CORRECTION: Kind(
        "co", "after a rejection", "the target's own, where it refused what the draft had said"
    ),
    how.UNDRAFTED: Kind("un", "not drafted", "the target's own, in a step for which nothing was drafted"),
    how.PREFILL: Kind("pr", "from prefill", "the target's own, from a prefill"),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """One token: its classes, and the number of its verify step (from 1)."""

    classes: str
    id: int
    step: int
    depth: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one or more tokens, or (``gap``) why some are missing."""

    text: str
    kind: str
    marks: tuple[Mark, ...]
    cut: int = 0
    gap: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the draft had said at one place, and what the target said; empty or ``None``: not recorded."""

    step: int
    target: str
    said: str
    instead: Instead


@dataclass(frozen=True, slots=True)
class TokenView:
    """The output in a window of steps. ``why`` says that ids are shown, or why nothing is."""

    pieces: tuple[Piece, ...]
    refusals: tuple[Refusal, ...]
    legend: tuple[tuple[Kind, int], ...]
    tokens: int
    tokenizer: TokenizerRow | None
    why: str


def build(
    request: RequestRow,
    steps: Sequence[Mapping[str, Any]],
    told: str,
    found: tuple[TokenizerRow, Vocabulary] | None,
) -> TokenView:
    """Return the view of these steps; ``told`` is the hash of the engine's tokenizer, empty if not told."""
    tokens = how.committed(steps)
    vocabulary = None if found is None else found[1]
    counts = Counter(token.how for token in tokens if isinstance(token, Token))
    if not counts:
        return TokenView((), (), (), 0, None, _why_none(request, steps))
    refusals = [
        Refusal(
            token.step + 1,
            text_of([token.id], vocabulary),
            _drafts(token.instead, vocabulary),
            token.instead,
        )
        for token in tokens
        if isinstance(token, Token) and token.instead is not None
    ]
    return TokenView(
        tuple(map(_piece, runs(tokens, vocabulary))),
        tuple(refusals),
        tuple((kind, counts[name]) for name, kind in KINDS.items() if counts[name]),
        counts.total(),
        None if found is None else found[0],
        "" if found is not None else _why_ids(told),
    )


def _piece(one: Run | Gap) -> Piece:
    if isinstance(one, Gap):
        steps = f"{f.count(one.steps)} verify step{'s' if one.steps != 1 else ''}"
        why = "did not arrive or were dropped" if one.why == how.LOST else "without recorded tokens"
        return Piece("", "gap", (), gap=f"{steps} {why}")
    return Piece(one.text, one.kind, tuple(map(_mark, one.tokens)), one.cut)


def _mark(token: Token) -> Mark:
    classes = KINDS[token.how].mark
    if token.depth:
        classes += f" d{min(token.depth, DEPTHS)}"
    return Mark(classes, token.id, token.step + 1, token.depth)


def _drafts(instead: Instead, vocabulary: Vocabulary | None) -> str:
    if not instead.ids:
        return ""
    shown = [quoted(text_of([number], vocabulary)) for number in instead.ids[:4]]
    more = len(instead.ids) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def quoted(text: str) -> str:
    """Return text on one line, in quotes so that its spaces are seen."""
    return f"“{text.replace(chr(10), '').replace(chr(9), '')}”"


def _why_ids(told: str) -> str:
    if not told:
        return (
            "Ids, because the engine told no tokenizer hash: its tracer found no tokenizer files in the "
            "target's folder, or is of a version that does not look."
        )
    return (
        f"Ids, because no tokenizer of hash {told} is registered: "
        "specscope tokenizer add with the target's folder makes text of them."
    )


def _why_none(request: RequestRow, steps: Sequence[Mapping[str, Any]]) -> str:
    if not request.totals.verify_steps:
        return "No verify step ran for this request."
    if request.detail in (c.DETAIL_SUMMARY, c.DETAIL_STEPS):
        return (
            f"Token ids are not recorded at detail level {request.detail}: "
            "set SPECSCOPE_DETAIL=tokens or full at the engine."
        )
    return "No step shown has its tokens." if steps else "The verify steps of this request did not arrive."
