"""F14: off by one. The draft's tokens, or the states it is fed, are those of the neighbouring place.

The draft works and is well fed, for another place of the text: what it proposes matches the target's tokens
one place away, its first token repeats the last one of the context, the states it is fed equal those of
the token before, or the state that it goes on from does. A mere shift of all positions is none: under rotary
embeddings it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specscope import hidden

from specscope_server.diagnosis import aux_layers, deviation, draft_state, facts
from specscope_server.diagnosis.deviation import Deviation
from specscope_server.diagnosis.draft_state import Moved
from specscope_server.diagnosis.model import (
    CERTAIN,
    CRITICAL,
    SUSPECTED,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.step_evidence import Shift
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "shifted"
FAULT: Final = "F14"
MIN_STEPS: Final = 64
MIN_REQUESTS: Final = 8
"""Requests that must have been looked at: one repetitive text repeats itself a whole request long."""
MATCH: Final = 0.2
"""Share of drafts that match one place away from which on they are meant for it. Measured: 0.39 of first
drafts with inputs not shifted, 0.01 healthy, 0.05 to 0.14 with a damaged draft."""
TIMES: Final = 3.0
"""How many times as often they must match there as where they stand: a text that repeats itself matches at
all offsets alike."""
MOVED: Final = 0.5
"""Error to the neighbouring token's embedding, by that to the own one, below which the neighbour's was read.
Of unrelated rows both errors are about 1.4; a few rows that fit nowhere leave 0.27 (measured) of it."""
APART: Final = 9.0
_ROOTS: Final = ("draft_silent", "fc_bypassed", "weights_missing", "weights_not_finite", "token_map")


@dataclass(frozen=True, slots=True)
class _Match:
    """Drafts match the target's tokens ``offset`` places away, in ``share`` of ``of``."""

    offset: int
    share: float
    here: float
    of: int
    what: str


def judge(evidence: Evidence, roots: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether what the draft is given, or gives, belongs to the neighbouring place."""
    if any(found.kind in _ROOTS for found in roots):
        return CLEAR  # a draft that is not sound itself repeats its input often enough
    handed = deviation.of_places(evidence.places, hidden.FED, hidden.AUX_CAPTURE, deviation.NOTICED)
    if handed is not None and handed.kind == deviation.SHIFTED:
        return _states(evidence, handed, "what the target packed in the same passes")
    for place in (hidden.AUX_CAPTURE, hidden.FED):
        told = deviation.of_reference(evidence.reference, place, aux_layers.noticed(evidence))
        if told is not None and told.kind == deviation.SHIFTED:
            return _states(evidence, told, "a reference run of the target on the same tokens")
    inputs = moved_inputs(evidence)
    match = _match(evidence)
    moved = draft_state.moved(evidence)
    if moved is not None:
        return _went_on(evidence, moved)
    if inputs is not None:
        return _tokens(evidence, match, inputs)
    if match is not None:
        return _tokens(evidence, match, None)
    if evidence.steps.steps < MIN_STEPS or evidence.steps.requests < MIN_REQUESTS:
        return Unknown(
            f"only {evidence.steps.steps} verify steps of {evidence.steps.requests} requests were looked at,"
            f" {MIN_STEPS} of {MIN_REQUESTS} are needed"
        )
    if not _shares(evidence):
        return Unknown("no proposals were compared with their neighbours (detail steps)")
    return CLEAR


def moved_inputs(evidence: Evidence) -> Deviation | None:
    """Return that the draft is given the embeddings of neighbouring tokens, in some passes at least.

    Rows of a table are either right or another token's. Where one pass after another is moved by one, its
    first or last token has no neighbour, so a few rows fit nowhere.
    """
    for after in ("", "prefill", "verify"):
        told = deviation.of_reference(evidence.reference, hidden.EMBEDDING, deviation.NOTICED, after)
        if told is None or told.kind == deviation.SAME:
            continue
        if told.kind == deviation.SHIFTED:
            return told
        for offset in (-1, 1):
            if all(slot.shifted.get(offset, APART) < MOVED * slot.error for slot in told.slots):
                return Deviation(deviation.SHIFTED, told.slots, shift=offset)
    return None


def _shares(evidence: Evidence) -> dict[int, Shift]:
    return {shift.offset: shift for shift in evidence.steps.shifts if shift.of >= MIN_STEPS}


def _match(evidence: Evidence) -> _Match | None:
    """Return the neighbouring place that the drafts match far better than their own."""
    steps = evidence.steps
    if steps.steps < MIN_STEPS or steps.requests < MIN_REQUESTS:
        return None
    shares = {offset: shift.hits / shift.of for offset, shift in _shares(evidence).items()}
    if 0 not in shares:
        return None
    here, repeats = shares[0], steps.ids.repeats_last if steps.ids is not None else None
    found = [
        _Match(offset, share, here, _shares(evidence)[offset].of, "drafts")
        for offset, share in shares.items()
        if offset in (-1, 1)
    ]
    if repeats is not None and steps.ids is not None:
        first = _first(evidence)
        if first is not None:
            found.append(_Match(-1, repeats, first, steps.ids.steps, "first drafts"))
    fitting = [one for one in found if one.share >= MATCH and one.share >= TIMES * one.here]
    return max(fitting, key=lambda one: one.share, default=None)


def _first(evidence: Evidence) -> float | None:
    """Return the share of first drafts that the target accepted."""
    if evidence.positions and evidence.positions[0][0]:
        drafted, accepted = evidence.positions[0]
        return accepted / drafted
    return None


_CHECK: Final = (
    "Open an example request at SPECSCOPE_DETAIL=tokens and hold the drafts of a step against the tokens that"
    " the target committed there: they must stand one place beside them. A/B: an engine version or option"
    " without the change that moved them"
)
_FIX: Final = (
    "The draft predicts the token after next: at a place it takes the embedding of the next token and the"
    " target's state of this one. Correct the shift of input ids or of hidden states where the engine, a"
    " plugin or a patch prepares the draft's input."
)


def _finding(
    confidence: str, title: str, sentence: str, numbers: tuple[Number, ...], ruled: tuple[Ruled, ...]
) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=numbers,
        ruled_out=ruled,
        next_check=_CHECK,
        fix=_FIX,
        boundary="draft.extend",
    )


def _side(offset: int) -> str:
    return "before" if offset < 0 else "after"


def _states(evidence: Evidence, told: Deviation, against: str) -> Finding:
    place = facts.link(evidence, "draft.extend")
    numbers: list[Number] = []
    for slot in told.slots:
        name = f"relative error of slot {slot.slot} ({slot.rows} rows)"
        numbers += [
            Number(f"{name}, same token", round(slot.error, 3), f"< {deviation.EQUAL:g}", "", place),
            Number(f"{name}, token {_side(told.shift)}", round(slot.shifted[told.shift], 3), "", "", place),
        ]
    return _finding(
        CERTAIN,
        f"The draft is fed the states of the token {_side(told.shift)}",
        f"Held against {against}, the states that the draft is fed are those of the token"
        f" {_side(told.shift)}, row by row. It combines every token with the state of another place, so it"
        " guesses worse the further it drafts.",
        (*numbers, *facts.examples(evidence)),
        (
            Ruled("F05 other layers", "the neighbouring token's states of the same layers fit exactly"),
            Ruled("F07 states of other places", "all rows are shifted alike"),
            Ruled("F23 workload", "no prompt moves states from token to token"),
        ),
    )


def _went_on(evidence: Evidence, moved: Moved) -> Finding:
    side, place = _side(moved.offset), facts.link(evidence, "draft.extend")
    example = max(moved.states, key=lambda one: one.error)
    return _finding(
        CERTAIN if moved.proven else SUSPECTED,
        f"Drafting goes on from the state of the token {side}",
        f"The draft is fed rightly, and {len(moved.states)} of the {moved.wrong} states from which it goes on"
        f" that are not the reference draft's are its states of the token {side}: the row beside the last"
        " accepted token's is taken. The first draft is then meant for a place that is settled already.",
        (
            Number(f"draft states that are those of the token {side}", len(moved.states), 0,
                   f"of {moved.compared} tokens", place),
            Number("draft states that are not the reference's", moved.wrong, 0,
                   f"of {moved.compared} tokens", place),
            Number(f"relative error of the draft's state at token {example.position}",
                   round(example.error, 3), f"< {draft_state.RIGHT:g}", "", f"/requests/{example.request}"),
            Number(f"relative error of it to the state of the token {side}",
                   round(example.shifted[moved.offset], 3), None, "", f"/requests/{example.request}"),
        ),
        (
            Ruled("F15, F16 the draft's cache", "a wrong cache makes states that are no token's"),
            Ruled("wrong inputs", "fed states, fc's output and embeddings equal the reference"),
            *(
                (Ruled("F07, F18 a row of the step before", "after steps of several tokens that is another"),)
                if moved.proven
                else ()
            ),
        ),
    )  # fmt: skip


def _tokens(evidence: Evidence, match: _Match | None, inputs: Deviation | None) -> Finding:
    place = facts.link(evidence, "draft.propose")
    numbers: list[Number] = []
    said: list[str] = []
    if match is not None:
        numbers += [
            Number(f"{match.what} that equal the token {_side(match.offset)}", round(match.share, 3), "", "",
                   place),
            Number(f"{match.what} that equal the token where they stand", round(match.here, 3),
                   "more than that", "", place),
            Number(f"{match.what} compared", match.of, None, "drafts", place),
        ]  # fmt: skip
        said.append(
            f"{match.share:.0%} of the {match.what} are the target's token one place {_side(match.offset)},"
            f" and only {match.here:.0%} the one where they stand."
        )
    offset = match.offset if match is not None else -1
    if inputs is not None:
        offset = inputs.shift
        numbers += [
            Number("relative error of input embeddings, token " + _side(inputs.shift),
                   round(slot.shifted[inputs.shift], 3), None, "", place)
            for slot in inputs.slots
        ]  # fmt: skip
        said.append(f"The embeddings that it takes in are those of the token {_side(inputs.shift)}.")
    return _finding(
        CERTAIN if inputs is not None or _sound(evidence) else SUSPECTED,
        f"Drafts are off by one: they are meant for the place {_side(offset)}",
        f"The draft guesses well, for the wrong place: {' '.join(said)}",
        (*numbers, *facts.examples(evidence)),
        (
            Ruled("F10 token map", "mapped wrongly, drafts would match the target's tokens at no place"),
            Ruled("F23 workload", "a text that repeats itself matches where it stands as well"),
        ),
    )


def _sound(evidence: Evidence) -> bool:
    """Say whether the draft's weights are known to be all there: an untrained one repeats its input too."""
    drafts = facts.entries(evidence.config, "weights", "drafts")
    return bool(drafts) and all(
        one.get("observed") is True
        and not one.get("missing")
        and not any(odd.get("level") == "check" for odd in facts.entries(one, "oddities"))
        for one in drafts
    )
