"""Weights, maps, certainty and ids of the tiny pair as evidence, healthy and with faults of the fault table.

Certainty and acceptance are those of ``models/tiny/fault-table.md``; inventories are what the tracer tells of
such a draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evidence_literals import counts
from specscope import hidden
from specscope_server.diagnosis import Evidence
from specscope_server.diagnosis.step_evidence import Certainty, Ids
from state_literals import FULL_CONFIG, NORM, POSITIONS, SHIFTS, given, look

VOCAB = 1024
DRAFT_VOCAB = 640
MAP: Mapping[str, Any] = {
    "rows": 640,
    "least": 1,
    "largest": 1022,
    "hash": "ab",
    "in_use": True,
    "distinct": 640,
    "as_checkpoint": True,
    "outside_t2d": 0,
}
FC: Mapping[str, Any] = {
    "name": "fc.weight", "shape": [128, 384], "dtype": "bfloat16", "status": "loaded", "mean": 0.001,
    "std": 0.07, "std_to_init": 3.5, "max_abs": 0.6,
}  # fmt: skip
HEAD: Mapping[str, Any] = {
    "name": "lm_head.weight", "shape": [640, 128], "dtype": "bfloat16", "status": "loaded", "std": 0.11,
    "mean": 0.0,
}  # fmt: skip
EMBED: Mapping[str, Any] = {
    "name": "model.embed_tokens.weight", "shape": [1024, 128], "dtype": "bfloat16", "status": "shared",
    "shared_with": "model.embed_tokens.weight", "mean": 0.0, "std": 0.17,
}  # fmt: skip

CERTAIN_OF: Mapping[str, tuple[float, float, float]] = {
    "healthy": (0.45, 2.54, 0.69),
    "a1": (0.35, 2.82, 0.05), "a2": (0.30, 3.18, 0.06),
    "b1": (0.47, 2.50, 0.00), "b2": (0.47, 2.50, 0.00), "b3": (0.47, 2.50, 0.00), "b4": (0.47, 2.50, 0.00),
    "c1": (0.13, 4.60, 0.00), "c2": (0.11, 4.98, 0.00), "c3": (0.16, 4.45, 0.00),
    "d1": (0.24, 3.72, 0.09), "d2": (0.24, 3.71, 0.09), "d3": (0.21, 4.06, 0.13),
    "e1": (0.35, 3.09, 0.56), "e2": (0.39, 2.66, 0.49), "e3": (0.25, 3.71, 0.25),
    "f1": (0.35, 2.90, 0.25), "f2": (0.36, 2.84, 0.25), "f3": (0.37, 2.87, 0.43), "f4": (0.37, 2.83, 0.44),
    "g5": (0.47, 2.42, 0.71), "h1": (0.37, 2.97, 0.51), "h2": (0.45, 2.52, 0.68), "h3": (0.45, 2.54, 0.69),
    "i": (0.36, 2.80, 0.11), "i2": (0.34, 2.81, 0.13),
    "j1": (0.43, 2.60, 0.51), "j2": (0.43, 2.58, 0.50), "j3": (0.45, 2.53, 0.54),
    "k1": (0.33, 3.04, 0.36), "k2": (0.49, 2.39, 0.74), "k3": (0.46, 2.51, 0.74), "k4": (0.46, 2.49, 0.72),
    "m": (0.34, 3.07, 0.06), "n": (0.24, 3.61, 0.02), "o": (0.41, 2.49, 0.03), "p": (0.37, 2.72, 0.14),
    "q": (0.37, 2.74, 0.18), "r": (0.40, 2.75, 0.62), "s": (0.19, 4.05, 0.02), "t": (0.30, 3.50, 0.48),
}  # fmt: skip
"""(top-1, entropy, accepted) at position 0 of every fault of the table that drafts."""


def draft(*odd: Mapping[str, Any], change: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Return the inventory of one draft with these oddities and changes of tensors by name."""
    changes = change or {}
    tensors = [{**one, **changes.get(str(one["name"]), {})} for one in (EMBED, FC, HEAD, NORM)]
    return {
        "observed": True,
        "own_checkpoint": True,
        "missing": [],
        "oddities": list(odd),
        "tensors": tensors,
        "init_std": 0.02,
        "map": dict(MAP),
    }


def odd(kind: str, name: str, level: str = "check") -> dict[str, Any]:
    """Return one oddity as the tracer tells it."""
    return {"kind": kind, "name": name, "level": level, "text": f"what is odd about {name}"}


def config(one: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the configuration of an engine with this draft."""
    told: dict[str, Any] = {
        **FULL_CONFIG,
        "vocab_size": VOCAB,
        "d2t": {"present": True, "draft_vocab": DRAFT_VOCAB},
        "weights": {"version": 0, "drafts": [draft() if one is None else one]},
        "differences": [],
    }
    return told | changes


def certainty(fault: str, steps: int = 300) -> tuple[Certainty, ...]:
    """Return how sure the draft was at position 0 with a fault of the table."""
    top1, entropy, share = CERTAIN_OF[fault]
    return (Certainty(0, steps, top1, entropy, steps, round(share * steps)),)


def ids(**changes: Any) -> Ids:
    """Return facts of 1200 sound proposals."""
    told = Ids(300, 1200, 3, 1017, 0.3, 0.5, 0, 0, 0.01, 180, 0.06, 40)
    return replace(told, **changes)


def served(fault: str = "healthy", *, told: Mapping[str, Any] | None = None, **changes: Any) -> Evidence:
    """Return the evidence of 300 steps with a fault of the table, whose weights and map look sound."""
    _, _, share = CERTAIN_OF[fault]
    hits = round(share * 300)
    base = given(fault, config=config() if told is None else told, counts=counts(300, 2 * hits, 300 - hits))
    if fault not in POSITIONS:
        base = replace(base, positions=tuple((300, hits * part // 10) for part in (10, 7, 5, 3)))
    repeats = base.steps.ids.repeats_last if base.steps.ids is not None else None
    facts = changes.pop("ids", ids(repeats_last=repeats))
    matches = base.steps.shifts if fault in SHIFTS or share > 0.3 else SHIFTS["b3"]
    steps = replace(base.steps, certainty=certainty(fault), ids=facts, shifts=matches)
    seen = (*base.hidden, look(hidden.EMBEDDING, rms=0.1485, rows=333))
    return replace(base, **({"steps": steps, "hidden": seen} | changes))
