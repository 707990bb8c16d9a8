"""View model of what was promised of a draft, beside what is served of it now, with the odds in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specscope_server.diagnosis import Evidence, expectation, facts
from specscope_server.web import format as f

NOTHING: Final = (
    "Nothing was promised of this draft, so nothing is held against it. State what its training measured, or"
    " learn from a period that you know to be healthy:"
)
COMMANDS: Final = (
    "specscope baseline set --engine {engine} --per-position 0.745,0.70,0.66",
    "specscope baseline learn --engine {engine} --since 1h",
)


@dataclass(frozen=True, slots=True)
class PlaceLine:
    """One draft position (from 1): steps that reached it, what they accepted, and what was promised."""

    position: int
    reached: int
    served: float
    promised: float
    tone: str


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise: who made it of what, a sentence on what is served of it, and the positions of both."""

    tone: str
    word: str
    title: str
    made: str
    sentence: str
    odds: str
    places: tuple[PlaceLine, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """All promises that hold of an engine; ``none`` says why there is none, ``commands`` how to make one."""

    promises: tuple[Promise, ...]
    none: str = ""
    commands: tuple[str, ...] = ()


def build(evidence: Evidence | None, name: str) -> Expected:
    """Return the promises of an engine that is called ``name``."""
    if evidence is None:
        return Expected((), "No evidence of this engine is stored, so nothing can be held against a promise.")
    told = tuple(_promise(evidence, one) for one in expectation.answers(evidence))
    if told:
        return Expected(told)
    quoted = f"'{name}'" if " " in name else name
    return Expected((), NOTHING, tuple(one.format(engine=quoted) for one in COMMANDS))


def _promise(evidence: Evidence, answer: expectation.Answer) -> Promise:
    promised = answer.expectation
    title = f"Traffic of {promised.workload}" if promised.workload else "All traffic"
    made = expectation.promise_words(promised)
    made = made[0].upper() + made[1:]
    if promised.floor is not None:
        made += f", floor {f.decimal(promised.floor)} tokens a step"
    held = answer.held
    if held is None:
        length = 1.0
        chance = 1.0
        for one in promised.per_position:
            chance *= one
            length += chance
        return Promise(
            "off",
            "not measured",
            title,
            made,
            f"Not measured: no verify step of it drafted anything {facts.window_text(evidence)}. Promised is"
            f" an acceptance length of {f.decimal(length)}.",
            "",
            (),
        )
    lost = max(held.lost, 0.0)
    tone, word = ("warn", "broken") if answer.broken else ("ok", "kept")
    if answer.below_floor:
        tone, word = "warn", "broken" if answer.broken else "below its floor"
    less = f", {f.share(lost)} of the promised gain less" if lost > 0 else ""
    return Promise(
        tone,
        word,
        title,
        made,
        f"Acceptance length {f.decimal(held.length)} {facts.window_text(evidence)}, promised"
        f" {f.decimal(held.promised)}{less}.",
        expectation.odds_sentence(held),
        tuple(
            PlaceLine(
                one.position + 1,
                one.reached,
                one.served,
                one.promised,
                "warn" if one.below and answer.broken else "",
            )
            for one in held.places
        ),
    )
