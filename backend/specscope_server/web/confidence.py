"""How sure the draft was of what the target accepted and refused, and what the target thought of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Final, cast

from specscope_server.web import format as f
from specscope_server.web.stats import Stat

PARTS: Final = 10_000
"""Probabilities are told in 1/10000, entropies in 1/1000 nat (docs/reference/wire.md)."""
MILLI: Final = 1_000

MAX_POSITIONS: Final = 256
"""Positions shown at most: the list comes from an engine, and a packed one may be a million long."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """The drafts of one position that had one fate: how many, mean top-1 probability and entropy (nats)."""

    drafts: int
    top1: float | None
    entropy: float | None


@dataclass(frozen=True, slots=True)
class Position:
    """A drafted position, counted from 1: drafts that were accepted there, and those refused first there."""

    number: int
    accepted: Side
    refused: Side


@dataclass(frozen=True, slots=True)
class Confidence:
    """Of the steps in which it was taken; ``steps`` of them."""

    steps: int
    positions: tuple[Position, ...]
    facts: tuple[Stat, ...]


def confidence(steps: Sequence[Values]) -> Confidence | None:
    """Sum up the steps that tell of it, ``None`` where none does."""
    told = [one for one in steps if one.get("draft_top1")]
    refused = [one for one in steps if one.get("target_rank") is not None]
    labelled = [one for one in steps if one.get("outside_draft_vocab") is not None]
    grammar = [one for one in steps if one.get("accepted_free") is not None]
    if not (told or refused or labelled or grammar):
        return None
    deepest = min(MAX_POSITIONS, max((len(one["draft_top1"]) for one in told), default=0))
    return Confidence(
        steps=len(told),
        positions=tuple(_position(told, number) for number in range(1, deepest + 1)),
        facts=(*_refused(refused), *_labelled(labelled), *_grammar(grammar)),
    )


def _position(told: Sequence[Values], number: int) -> Position:
    reached = [one for one in told if int(one.get("accepted") or 0) >= number - 1]
    taken = [one for one in reached if int(one.get("accepted") or 0) >= number]
    left = [one for one in reached if int(one.get("accepted") or 0) == number - 1]
    return Position(number, _side(taken, number), _side(left, number))


def _side(steps: Sequence[Values], number: int) -> Side:
    top1 = _known(steps, "draft_top1", number, PARTS)
    entropy = _known(steps, "draft_entropy", number, MILLI)
    return Side(len(top1), mean(top1) if top1 else None, mean(entropy) if entropy else None)


def _known(steps: Sequence[Values], name: str, number: int, parts: int) -> list[float]:
    lists = [cast("list[int]", one.get(name) or []) for one in steps]
    return [one[number - 1] / parts for one in lists if len(one) >= number and one[number - 1] >= 0]


def _refused(steps: Sequence[Values]) -> list[Stat]:
    if not steps:
        return []
    ranks = [int(one["target_rank"]) + 1 for one in steps]
    looked = f"of {f.count(len(steps))} refused drafts"
    found = [
        Stat("Target's rank, median", f.significant(float(median(ranks))), looked),
        Stat("Target's probability, mean", _mean(steps, "target_prob"), looked),
    ]
    own = [one for one in steps if one.get("draft_prob") is not None]
    if own:
        what = f"of the target's choice, known {f.count(len(own))} times"
        found.append(Stat("Draft's probability, mean", _mean(own, "draft_prob"), what))
    return found


def _mean(steps: Sequence[Values], name: str) -> str:
    told = [float(one[name]) for one in steps if one.get(name) is not None]
    known = [one for one in told if 0 <= one <= 1]  # an engine may send anything, NaN too
    return f.significant(mean(known)) if known else f.DASH


def _labelled(steps: Sequence[Values]) -> list[Stat]:
    if not steps:
        return []
    outside = sum(int(one["outside_draft_vocab"]) for one in steps)
    unit = f"of {f.count(len(steps))} refusals: the target's token is none the draft can propose"
    return [Stat("Could never be accepted", f.count(outside), unit)]


def _grammar(steps: Sequence[Values]) -> list[Stat]:
    if not steps:
        return []
    free = sum(int(one["accepted_free"]) for one in steps)
    really = sum(int(one.get("accepted") or 0) for one in steps)
    unit = f"accepted without the grammar, {f.count(really)} with it"
    return [Stat("Grammar", f.count(free), unit)]
