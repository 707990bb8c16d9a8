"""Where the draft's own layer leaves another state than the reference, though fed the right ones. Pure.

A sound draft's state is a function of the tokens alone, so where it runs, what is cached and what came before
cannot matter, and no workload can make a token wrong: sound engines are within 0.05 at every token (SGLang
0.5.23 in float32). How *many* tokens a fault of the cache makes wrong is a matter of the text, though: where
a draft's attention looks at nothing earlier it loses nothing (on the tiny pair a lost prompt moves 72 % of
the states after a prefill, and 15 % of the later ones). So two conditions are told apart by **the same
tokens in both** (a sequence of the reference and a position): right in one and wrong in the other, which is
no difference of texts. Where no tokens are the same, shares are compared and the answer is less sure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

from specscope import hidden

from specscope_server.diagnosis import deviation, facts
from specscope_server.diagnosis.carry_rows import PREFILL
from specscope_server.diagnosis.engine_evidence import DraftState
from specscope_server.diagnosis.model import Evidence, Number

RIGHT: Final = 0.1
"""Error of one token below which its state is the reference's: :data:`deviation.EQUAL`."""
WRONG: Final = 0.3
"""Error from which on it is another: six times what a sound engine has at its worst token, and twice what is
noticed of a slot (:data:`deviation.NOTICED`), since 8 projections tell one token's error to about a quarter.
Between the two a token counts for neither."""
MIN_TOKENS: Final = 8
MIN_REQUESTS: Final = 4
"""Tokens, and requests that they are of, that a side needs: one odd request proves nothing."""
MIN_PAIRED: Final = 2
"""Requests of which the same tokens must be right in one condition and wrong in the other: no text can be
the cause there, and one odd request still proves nothing."""
ONE_CAUSE: Final = 0.9
"""Share of the wrong tokens that must be a neighbour's for all of it to be one shift. Faults of the cache and
of what it is written from leave none that is: 0 of 775 measured on four mechanisms, all 98 of the shift."""
SOUND: Final = 0.98
"""Share of right tokens, of those that are right or wrong, on the side that is well."""
MANY: Final = 0.1
"""Share of tokens that need be no more than noticeably off (:data:`deviation.NOTICED`): attention that looks
a little elsewhere moves many states a little. The worst of 1,500 tokens of sound engines is off by 0.02."""
CHANCE: Final = 1e-4
"""Chance below which wrong tokens of other texts are not on one side by luck: Fisher's exact test."""


@dataclass(frozen=True, slots=True)
class Side:
    """The tokens of one condition, by what is wrong with them."""

    name: str
    states: tuple[DraftState, ...]
    least: float = WRONG
    """Error from which on a token is wrong."""

    @property
    def right(self) -> tuple[DraftState, ...]:
        """Return those that are the reference's."""
        return tuple(one for one in self.states if one.error < RIGHT)

    @property
    def wrong(self) -> tuple[DraftState, ...]:
        """Return those that are not."""
        return tuple(one for one in self.states if one.error >= self.least)

    @property
    def well(self) -> bool:
        """Say whether there is enough of it, and it is right."""
        return _enough(self.right) and len(self.right) >= SOUND * (len(self.right) + len(self.wrong))

    @property
    def words(self) -> str:
        """Say how many are wrong."""
        return f"{len(self.wrong)} of {len(self.states)} {self.name}"


@dataclass(frozen=True, slots=True)
class Split:
    """``good`` is right and ``bad`` is not; ``same`` counts tokens right in one and wrong in the other.

    ``paired``: enough of these, so that no difference of texts can be the cause.
    """

    good: Side
    bad: Side
    same: int
    paired: bool

    @property
    def words(self) -> str:
        """Say both sides."""
        told = (
            f"against the reference draft, {self.bad.words} are wrong (relative error {WRONG:g} and more),"
            f" and {self.good.words}"
        )
        return told + (
            f"; {self.same} of the wrong ones are tokens that are right there" if self.paired else ""
        )

    def numbers(self, evidence: Evidence) -> tuple[Number, ...]:
        """Return both sides as evidence, and a request with a wrong token."""
        place = facts.link(evidence, "draft.forward")
        worst = max(self.bad.wrong, key=lambda one: one.error)
        return (
            Number(f"draft states that are not the reference's, {self.bad.name}", len(self.bad.wrong), 0,
                   f"of {len(self.bad.states)} tokens", place),
            Number(f"draft states that are not the reference's, {self.good.name}", len(self.good.wrong), 0,
                   f"of {len(self.good.states)} tokens", place),
            Number("the same tokens, right in one and wrong in the other", self.same, 0, "tokens", place),
            Number(f"relative error of the draft's state at token {worst.position}", round(worst.error, 3),
                   f"< {RIGHT:g}", "", f"/requests/{worst.request}"),
        )  # fmt: skip


def elsewhere(evidence: Evidence) -> Side | None:
    """Return the tokens at which the draft leaves another state than the reference's; ``None``: not shown."""
    if not inputs_right(evidence):
        return None
    every = Side("tokens", evidence.draft_states)
    if _enough(every.wrong):
        return every
    many = Side("tokens", evidence.draft_states, deviation.NOTICED)
    return many if _enough(many.wrong) and len(many.wrong) >= MANY * len(many.states) else None


def inputs_right(evidence: Evidence) -> bool:
    """Say whether what the draft's layer leaves is its own doing: a wrong state has no other cause before it.

    The states that it is fed, fc's output and the embeddings equal the reference, each compared, and what is
    wrong is not merely the state of a neighbouring token. Else the rules of these tell what there is to tell.
    """
    return _fed_right(evidence) and _neighbour(evidence.draft_states) is None


@dataclass(frozen=True, slots=True)
class Moved:
    """Wrong states that are the reference's of the token ``offset`` places further.

    ``proven``: not merely those of the step before, which is the token before where a step commits one.
    """

    offset: int
    states: tuple[DraftState, ...]
    wrong: int
    compared: int
    proven: bool


def moved(evidence: Evidence) -> Moved | None:
    """Return that drafting goes on from the states of neighbouring tokens; ``None``: it does not."""
    return _neighbour(evidence.draft_states) if _fed_right(evidence) else None


def _neighbour(states: Sequence[DraftState]) -> Moved | None:
    wrong = Side("", tuple(states)).wrong
    for offset in (-1, 1):
        theirs = tuple(one for one in wrong if one.shifted.get(offset, WRONG) < RIGHT)
        if _enough(theirs) and len(theirs) >= ONE_CAUSE * len(wrong):
            apart = [one for one in theirs if one.after == PREFILL or (one.committed or 0) > 1]
            return Moved(offset, theirs, len(wrong), len(states), _enough(apart))
    return None


def _fed_right(evidence: Evidence) -> bool:
    for place in (hidden.FED, hidden.FC_OUT, hidden.EMBEDDING):
        told = deviation.of_reference(evidence.reference, place, deviation.NOTICED)
        if told is None or told.kind != deviation.SAME:
            return False
    return True


def split(good: tuple[str, Iterable[DraftState]], bad: tuple[str, Iterable[DraftState]]) -> Split | None:
    """Return that the first side, (name, states), is right and the second is not; ``None``: not shown.

    Either at least :data:`MIN_TOKENS` wrong tokens of the second, of :data:`MIN_PAIRED` requests, are tokens
    that the first side has right; or so many wrong tokens are of :data:`MIN_REQUESTS` requests, and those are
    more than chance puts on one side.
    """
    well, ill = Side(good[0], tuple(good[1])), Side(bad[0], tuple(bad[1]))
    if not well.well:
        return None
    known = {_token(one) for one in well.right} - {_token(one) for one in well.wrong}
    both = [one for one in ill.wrong if _token(one) in known]
    paired = _enough(both, MIN_PAIRED)
    if not paired and (not _enough(ill.wrong) or _chance(well, ill) >= CHANCE):
        return None
    return Split(well, ill, len({_token(one) for one in both}), paired)


def cuts(
    states: Iterable[DraftState],
    value: Callable[[DraftState], int | None],
    name: Callable[[int], tuple[str, str]],
) -> Split | None:
    """Return the cut of ``value`` below which states are right and from which on they are not.

    Of cuts that are shown that with most tokens right in one and wrong in the other, then the lowest.
    ``name`` gives the words for below and from a number on. States without a value are left out.
    """
    valued = [(number, one) for one in states if (number := value(one)) is not None]
    found: list[tuple[int, int, Split]] = []
    for at in sorted({number for number, one in valued if one.error >= WRONG}):
        low, high = name(at)
        told = split(
            (low, (one for number, one in valued if number < at)),
            (high, (one for number, one in valued if number >= at)),
        )
        if told is not None:
            found.append((-told.same, at, told))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _enough(states: Sequence[DraftState], requests: int = MIN_REQUESTS) -> bool:
    return len(states) >= MIN_TOKENS and len({one.request for one in states}) >= requests


def _token(state: DraftState) -> tuple[str, int]:
    return state.sequence, state.position


def _chance(well: Side, ill: Side) -> float:
    """Return the probability that the side that is well has so few of the wrong tokens by luck.

    Tokens of a request are alike, so requests are counted: those with a wrong token of all.
    """
    sides = [
        (len({one.request for one in side.wrong}), len({one.request for one in side.states}))
        for side in (well, ill)
    ]
    (few, of), (many, rest) = sides
    total = comb(of + rest, few + many)
    return sum(comb(of, k) * comb(rest, few + many - k) for k in range(few + 1)) / total
