"""F17: acceptance breaks off at one draft depth or one length of context: a mask or a window is wrong.

A draft asked for more tokens than it was trained for fades with depth, and harder prompts lower all lengths;
neither stands like a wall. A wall right behind the first draft token is a broken carry (F06), told there.
With a reference of the draft it shows in the states that it leaves: right up to a position, wrong behind it.
"""

from __future__ import annotations

from typing import Final

from specscope import convention as c

from specscope_server.diagnosis import (
    context_curve,
    draft_state,
    draft_window,
    facts,
    position_config,
    shapes,
    slice_compare,
    sprt,
    statistics,
)
from specscope_server.diagnosis.draft_state import Side, Split
from specscope_server.diagnosis.draft_window import Window
from specscope_server.diagnosis.model import (
    CERTAIN,
    SUSPECTED,
    WARNING,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.shapes import Shape
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "cliff"
FAULT: Final = "F17"
FIRST_POSITION: Final = 16
"""Position below which an end of what is right is none of a window: first tokens are alike."""
_MOST: Final = 0.5
FIRST_DEPTH: Final = 2
"""Depth (from 0) from which a wall is one of this rule; before it there is the carry of step 0 to 1."""


def states(evidence: Evidence) -> tuple[int, Split] | None:
    """Return the position up to which all that the draft leaves is right, and from which on it is not.

    Prefills and verify steps alike must be wrong there: what goes wrong after verify steps alone is no mask.
    """
    wrong = sorted(one.position for one in evidence.draft_states if one.error >= draft_state.WRONG)
    if not wrong or not draft_state.inputs_right(evidence):
        return None
    first = wrong[len(wrong) // 50]  # one token in fifty may be odd
    low = [one for one in evidence.draft_states if one.position < first]
    high = [one for one in evidence.draft_states if one.position >= first]
    told = draft_state.split((f"tokens before position {first}", low), ("from there on", high))
    after = {one.after for one in high if one.error >= draft_state.WRONG}
    return (first, told) if told is not None and len(after) > 1 and first >= FIRST_POSITION else None


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether acceptance breaks off at a depth, or at a length of context."""
    window = draft_window.other(evidence)
    wrong = None if window is None else draft_window.states(evidence, window)
    if window is not None and wrong is not None:
        return _window(evidence, window, wrong, found)
    shown = states(evidence)
    if shown is not None:
        return _at_position(evidence, *shown, found)
    told = _by_acceptance(evidence, found)
    if window is None or isinstance(told, Finding):
        return told
    if position_config.effect(evidence) is not None:
        return _window(evidence, window, None, found)
    return Unknown(f"{window.words}; no acceptance that suffers from it is known")


def _by_acceptance(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    if not evidence.positions:
        return Unknown(f"no draft position was reported {facts.window_text(evidence)}")
    if slice_compare.steps_a_request(evidence) is None:
        return Unknown(slice_compare.too_little(evidence))
    shape = shapes.shape(evidence.positions)
    if _wall(evidence, shape):
        return _at_depth(evidence, shape, found)
    fall = context_curve.fall(evidence)
    if fall is None or fall.word != context_curve.CLIFF:
        return CLEAR
    excuse = slice_compare.traffic_explains(evidence, fall.worse)
    if excuse:
        return Unknown(f"{fall.worse.words}, but {excuse}: it may be the traffic")
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=SUSPECTED,
        title=f"Acceptance breaks off at a context of {fall.at}",
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {fall.worse.words}, and nearly all of the fall lies"
            f" at a length of about {fall.at}. A window or mask of attention that ends there looks so, or a"
            " limit of the draft's length."
        ),
        numbers=(
            *fall.worse.numbers(evidence),
            Number("acceptance by length of context", fall.curve_words, None, "", facts.link(evidence)),
            *facts.examples(evidence),
        ),
        ruled_out=(Ruled("F13 positions", "a wrong scale fades with every doubling, it has no single step"),),
        next_check=f"A/B: one prompt, cut to just below and to well above {fall.at} tokens; compare"
        " sliding_window and max_position_embeddings of the draft's config.json with that length",
        fix="Set the draft's window and maximum to those of its training, or serve longer contexts without"
        " speculation.",
        boundary=c.DRAFT_FORWARD,
        root=slice_compare.root(found),
    )


def _wall(evidence: Evidence, shape: Shape) -> bool:
    if shape.word != shapes.CLIFF or shape.at is None or shape.at < FIRST_DEPTH:
        return False
    before, after = shape.conditional[shape.at - 1], shape.conditional[shape.at]
    if min(one.value for one in shape.conditional[: shape.at]) < sprt.P0 or after.value > sprt.P1:
        return False
    alike = slice_compare.steps_a_request(evidence) or before.of
    log = statistics.log_evidence(
        statistics.effective(before, alike), statistics.effective(after, alike), sprt.P0 - sprt.P1
    )
    return log >= slice_compare.BOUND


def _at_depth(evidence: Evidence, shape: Shape, found: tuple[Finding, ...]) -> Finding:
    assert shape.at is not None
    steps = facts.setting(evidence.config, "speculative", "num_steps")
    numbers = tuple(
        Number(
            f"accepted at draft token {at + 1}, of those that got there",
            round(share.value, 3),
            None,
            "of {:.0f} steps, 95 % interval {:.3f} to {:.3f}".format(share.of, *statistics.wilson(share)),
            facts.link(evidence),
        )
        for at, share in enumerate(shape.conditional)
    )
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=SUSPECTED,
        title=f"Acceptance breaks off after draft token {shape.at}",
        sentence=(
            f"Up to draft token {shape.at} the draft is well, the next ones are refused"
            f" {facts.window_text(evidence)}: {shape.words}. A fading draft has no such wall; a mask of"
            " attention that hides or shows the wrong drafts has."
        ),
        numbers=(*numbers, *facts.examples(evidence)),
        ruled_out=(
            Ruled("F23 more drafts than trained for", "acceptance would fade, not break off"),
            Ruled("F06 broken carry", "the second draft token, the first of its own state, is well"),
        ),
        next_check=f"A/B: the same prompts with --speculative-num-steps {shape.at} and {steps or 'the set'}"
        " steps; and with another draft attention backend",
        fix=f"Draft {shape.at} tokens a step until the mask of later steps is mended: later ones cost time.",
        boundary=c.DRAFT_FORWARD,
        root=slice_compare.root(found),
    )


def _window(evidence: Evidence, window: Window, wrong: Side | None, found: tuple[Finding, ...]) -> Finding:
    effect = position_config.effect(evidence)
    words, numbers = effect or ("", ())
    if wrong is not None:
        words = (
            f"at {wrong.words} its layer leaves another state than the reference's draft, from the same"
            f" input, and none of these has fewer than {window.shorter} tokens before it"
        )
        numbers = (
            Number("draft states that are not the reference's", len(wrong.wrong), 0,
                   f"of {len(wrong.states)} tokens", facts.link(evidence, c.DRAFT_FORWARD)),
        )  # fmt: skip
    ruled = Ruled("wrong inputs", "fed states, fc's output and embeddings equal the reference")
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=CERTAIN if wrong is not None else SUSPECTED,
        title="The draft looks back less far than in its training"
        if window.served == window.shorter
        else "The draft looks back further than in its training",
        sentence=f"{window.words.capitalize()}; {words}.",
        numbers=(window.number(evidence), *numbers, *facts.examples(evidence)),
        ruled_out=(ruled,) if wrong is not None else (),
        next_check="A/B: the same long and copying prompts "
        + (
            "without --speculative-draft-window-size"
            if window.argument
            else "with the sliding_window of the draft's training in its config.json"
        ),
        fix="Set the draft's window to that of its training, or to none.",
        boundary=c.DRAFT_FORWARD,
        root=slice_compare.root(found),
    )


def _at_position(evidence: Evidence, first: int, shown: Split, found: tuple[Finding, ...]) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        # Positions of one text are never the same tokens: other text behind them cannot be told apart where
        # half of the later tokens are right.
        confidence=CERTAIN if len(shown.bad.wrong) >= _MOST * len(shown.bad.states) else SUSPECTED,
        title=f"The draft's states are wrong from position {first} on",
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {shown.words}. What the draft was fed is right: a"
            f" window or mask of its attention ends at about {first} tokens, or its positions do."
        ),
        numbers=shown.numbers(evidence),
        ruled_out=(
            Ruled("F15 stale cache", "states after prefills are wrong from there on too"),
            Ruled("wrong inputs", "fed states, fc's output and embeddings equal the reference"),
        ),
        next_check=f"A/B: one prompt, cut to just below and to well above {first} tokens; compare"
        " sliding_window and max_position_embeddings of the draft's config.json, and SGLang's"
        " --speculative-draft-window-size, with that length",
        fix="Set the draft's window and maximum to those of its training, or serve longer contexts without"
        " speculation.",
        boundary=c.DRAFT_FORWARD,
        root=slice_compare.root(found),
    )
