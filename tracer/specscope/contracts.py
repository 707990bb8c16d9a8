"""What each algorithm must do, as data: how often a pass crosses each boundary, by what feeds the draft.

A healthy prefill pass and a healthy verify step cross exactly what is written here. A new algorithm is a
new entry of :data:`CONTRACTS`; one that is not listed is held to :data:`ANY`: it proposes, the target
verifies, the engine commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final, Literal

from specscope import convention as c
from specscope.records import Expectation

PREFILL: Final = "prefill"
VERIFY: Final = "verify"

Times = Literal["0", "1", "steps", "steps-1", "layers"]
Condition = Literal["", "fc", "map"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What an engine was set up with, as far as contracts depend on it.

    ``steps`` draft steps a verify step, ``layers`` draft models that run one after the other, ``fc``: the
    draft has a projection module, ``map``: draft ids are mapped to the target's.
    """

    steps: int
    layers: int = 1
    fc: bool = False
    map: bool = False

    def times(self, times: Times) -> int:
        """Return the number that a clause names."""
        known = {"0": 0, "1": 1, "steps": self.steps, "steps-1": self.steps - 1, "layers": self.layers}
        return known[times]

    def holds(self, condition: Condition) -> bool:
        """Say whether a clause applies."""
        return {"": True, "fc": self.fc, "map": self.map}[condition]


@dataclass(frozen=True, slots=True)
class Clause:
    """How often one boundary is crossed in a prefill pass and in a verify step that drafts."""

    boundary: str
    source: str
    prefill: Times
    verify: Times
    when: Condition = ""


@dataclass(frozen=True, slots=True)
class Contract:
    """Crossings per pass. ``prefill`` and ``verify`` map (boundary, source) to a count."""

    prefill: Mapping[Expectation, int]
    verify: Mapping[Expectation, int]

    def of(self, kind: str) -> Mapping[Expectation, int]:
        """Return what one pass of ``kind`` (``prefill`` or ``verify``) must cross."""
        return self.prefill if kind == PREFILL else self.verify


_TARGET: Final = (
    Clause(c.TARGET_VERIFY, c.NO_SOURCE, "0", "1"),
    Clause(c.ENGINE_COMMIT, c.NO_SOURCE, "0", "1"),
)
ANY: Final = (Clause(c.DRAFT_PROPOSE, c.NO_SOURCE, "0", "1"), *_TARGET)
"""Of an algorithm that is not known: a drafting step proposes, verifies and commits."""

_MAPPED: Final = Clause(c.DRAFT_MAP, c.NO_SOURCE, "0", "1", "map")
_EXTENDED: Final = (
    Clause(c.DRAFT_EXTEND, c.TARGET_FED, "1", "1"),
    Clause(c.DRAFT_FORWARD, c.TARGET_FED, "1", "1"),
)
_SELF_FED: Final = Clause(c.DRAFT_FORWARD, c.SELF_FED, "0", "steps-1")

CONTRACTS: Final[Mapping[str, tuple[Clause, ...]]] = MappingProxyType(
    {
        # Its first token comes from the draft extend before, the others from self-fed forwards. fc
        # projects the target's aux hidden states, so it has nothing to do on a self-fed pass.
        "EAGLE3": (
            Clause(c.AUX_CAPTURE, c.NO_SOURCE, "1", "1"),
            *_EXTENDED,
            Clause(c.DRAFT_FC, c.TARGET_FED, "1", "1", "fc"),
            _SELF_FED,
            _MAPPED,
            *ANY,
        ),
        # EAGLE 1 and 2 and MTP (NEXTN): fc joins embedding and hidden state on every forward.
        "EAGLE": (
            *_EXTENDED,
            Clause(c.DRAFT_FC, c.TARGET_FED, "1", "1", "fc"),
            Clause(c.DRAFT_FC, c.SELF_FED, "0", "steps-1", "fc"),
            _SELF_FED,
            _MAPPED,
            *ANY,
        ),
        # One draft model a step, all of them run in the draft extend; proposing only gathers.
        "MULTI_LAYER_EAGLE": (
            Clause(c.DRAFT_EXTEND, c.TARGET_FED, "1", "1"),
            Clause(c.DRAFT_FORWARD, c.TARGET_FED, "layers", "layers"),
            Clause(c.DRAFT_FC, c.TARGET_FED, "layers", "layers", "fc"),
            *ANY,
        ),
        # Its draft extend only keeps the last hidden state; the first step of a proposal starts from it.
        "FROZEN_KV_MTP": (
            Clause(c.DRAFT_EXTEND, c.TARGET_FED, "1", "1"),
            Clause(c.DRAFT_FORWARD, c.SELF_FED, "0", "steps"),
            Clause(c.DRAFT_FC, c.SELF_FED, "0", "steps", "fc"),
            *ANY,
        ),
        # A draft of its own that reads tokens, not hidden states.
        "STANDALONE": (*_EXTENDED, _SELF_FED, *ANY),
        "NGRAM": ANY,
        "DFLASH": ANY,
        "DSPARK": ANY,
        "UNO": ANY,
    }
)


@cache
def contract(algorithm: str, shape: Shape) -> Contract:
    """Return what one pass of an algorithm must cross.

    With 0 draft steps (SGLang's adaptive speculation stops drafting for large batches) the target still
    verifies and commits, and nothing is expected of the draft in a verify step.
    """
    clauses = [one for one in CONTRACTS.get(algorithm, ANY) if shape.holds(one.when)]
    prefill: dict[Expectation, int] = {}
    verify: dict[Expectation, int] = {}
    for one in clauses:
        if times := shape.times(one.prefill):
            prefill[one.boundary, one.source] = times
        if (times := shape.times(one.verify)) and (shape.steps > 0 or one in _TARGET):
            verify[one.boundary, one.source] = times
    return Contract(prefill, verify)
