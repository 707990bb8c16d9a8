"""Hidden states of the tiny pair as evidence, healthy and with faults of ``docs/reference/faults.md``.

Numbers are those of one real engine (SGLang 0.5.23, chain of 4, float32, detail ``full``), which was given
each fault in turn over ten prompts; a *reference* is a healthy run of the same tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evidence_literals import CONFIG, HEALTHY
from specscope import hidden
from specscope_server.diagnosis import Evidence
from specscope_server.diagnosis.engine_evidence import PlaceComparison, ReferenceEvidence
from specscope_server.diagnosis.hidden_evidence import HiddenEvidence
from specscope_server.diagnosis.step_evidence import Ids, Shift, StepEvidence

NORM: Mapping[str, Any] = {"name": "model.norm.weight", "mean": 1.5896, "std": 0.26929, "max_abs": 2.1562}
WHOLE_DRAFT: Mapping[str, Any] = {"observed": True, "missing": [], "oddities": [], "tensors": [NORM]}
FULL_CONFIG: dict[str, Any] = {
    **CONFIG,
    "capture": {"layer_ids": [2, 4, 5], "aux_states": 3, "enabled": True},
    "draft": {"hidden_size": 128, "path": "served/draft"},
    "target": {"path": "served/target"},
    "weights": {"drafts": [WHOLE_DRAFT]},
    "differences": [],
}


def look(
    place: str, slot: int = 0, *, draft_step: int = 0, after: str = "verify", **values: Any
) -> HiddenEvidence:
    """Return what was seen at one place: 111 looks of one row unless told otherwise."""
    rms = values.get("rms", 60.0)
    told: dict[str, Any] = {
        "looks": 111,
        "rows": 111,
        "mean": 4.0,
        "rms": rms,
        "max_abs": 1400.0,
        "levelled": 111,
        "geometric_rms": None if not rms else rms * 0.9,
        "deviation": 0.4,
        "nonfinite_per_row": 0.0,
        "zero_share": 0.0,
        "equal_share": 0.0,
    }
    source = "self_fed" if draft_step else "target_fed"
    return HiddenEvidence(place, source, draft_step, slot, after, "eager", **(told | values))


def fed(*sizes: tuple[float, float, float], after: str = "verify") -> tuple[HiddenEvidence, ...]:
    """Return slots of what the draft is fed, as (rms, mean, largest)."""
    return tuple(
        look(hidden.FED, slot, after=after, rows=333, rms=rms, mean=mean, max_abs=most)
        for slot, (rms, mean, most) in enumerate(sizes)
    )


def carried(*sizes: float, **values: Any) -> tuple[HiddenEvidence, ...]:
    """Return the carry by draft step, as geometric means of rms."""
    found: list[HiddenEvidence] = []
    for step, size in enumerate(sizes):
        told: dict[str, Any] = {"rms": 1.1 * size, "geometric_rms": size or None, "max_abs": 1000.0 + step}
        found.append(look(hidden.CARRY, draft_step=step, **(told | values)))
    return tuple(found)


FC_OUT = look(hidden.FC_OUT, rms=56.66, geometric_rms=54.26, rows=333, max_abs=536.0)
SOUND = (
    *fed((18.96, 0.368, 131), (25.39, 0.574, 362), (27.79, 0.429, 386), after="prefill"),
    *fed((19.78, 0.644, 167), (25.89, 1.101, 372), (28.35, 1.058, 410)),
    FC_OUT,
    *carried(57.01, 55.71, 56.78, 60.78),
)
"""A healthy engine."""


def refer(
    slot: int,
    error: float,
    scale: float,
    before: float,
    others: Mapping[int, float] | None = None,
    *,
    after: float = 1.2,
    place: str = hidden.FED,
    rows: int = 519,
) -> ReferenceEvidence:
    """Return one slot held against the reference."""
    return ReferenceEvidence(
        place, slot, rows, error, scale, None, {-1: before, 1: after}, others or {}, "ref-1"
    )


REFERENCES: Mapping[str, tuple[ReferenceEvidence, ...]] = {
    "healthy": (
        refer(0, 0.0, 1.0, 1.194, {1: 0.499, 2: 0.594}),
        refer(1, 0.0, 1.0, 1.04, {0: 0.658, 2: 0.275}),
        refer(2, 0.0, 1.0, 1.019, {0: 0.857, 1: 0.301}),
    ),
    "e1": (
        refer(0, 0.389, 1.148, 1.265, {1: 0.311, 2: 0.448}),
        refer(1, 0.3, 1.095, 1.096, {0: 0.858, 2: 0.0}),
        refer(2, 0.318, 1.136, 1.086, {0: 1.116, 1: 0.521}),
    ),
    "e2": (
        refer(0, 0.444, 0.743, 1.151, {1: 0.682, 2: 0.738}),
        refer(1, 0.312, 0.869, 1.022, {0: 0.391, 2: 0.449}),
        refer(2, 0.274, 0.913, 1.006, {0: 0.662, 1: 0.0}),
    ),
    "e3": (
        refer(0, 1.122, 1.646, 1.67, {1: 0.521, 2: 0.32}),
        refer(1, 1.141, 1.751, 1.612, {0: 1.839, 2: 0.973}),
        refer(2, 6.009, 6.274, 6.146, {0: 8.946, 1: 6.606}),
    ),
    "f1": (
        refer(0, 0.858, 1.445, 1.5, {1: 0.3, 2: 0.0}),
        refer(1, 0.0, 1.0, 1.04, {0: 0.659, 2: 0.274}),
        refer(2, 0.594, 0.692, 1.048, {0: 0.0, 1: 0.499}),
    ),
    "f2": (
        refer(0, 0.662, 1.321, 1.391, {1: 0.0, 2: 0.274}),
        refer(1, 0.301, 1.095, 1.093, {0: 0.861, 2: 0.0}),
        refer(2, 0.595, 0.691, 1.045, {0: 0.0, 1: 0.501}),
    ),
    "f3": (
        refer(0, 0.658, 1.319, 1.393, {1: 0.0, 2: 0.275}),
        refer(1, 0.499, 0.758, 1.059, {0: 0.0, 2: 0.594}),
        refer(2, 0.0, 1.0, 1.02, {0: 0.857, 1: 0.301}),
    ),
    "k1": (
        refer(0, 1.212, 1.002, 0.0, {1: 1.074, 2: 1.051}),
        refer(1, 1.056, 1.001, 0.0, {0: 1.41, 2: 1.014}),
        refer(2, 1.033, 1.001, 0.0, {0: 1.525, 1: 1.12}),
    ),
    "q": (
        refer(0, 0.9, 0.1, 0.978, {1: 0.935, 2: 0.945}),
        refer(1, 0.9, 0.1, 0.96, {0: 0.887, 2: 0.912}),
        refer(2, 0.9, 0.1, 0.957, {0: 0.886, 1: 0.895}),
    ),
    "r": (
        refer(0, 0.371, 1.071, 1.254, {1: 0.576, 2: 0.65}),
        refer(1, 0.283, 1.042, 1.075, {0: 0.759, 2: 0.378}),
        refer(2, 0.263, 1.032, 1.053, {0: 0.932, 1: 0.415}),
    ),
    "rotated": tuple(refer(slot, math.sqrt(2), 1.0, 1.41) for slot in range(3)),
    "other rows": tuple(refer(slot, 1.1, 1.0, 1.1) for slot in range(3)),
}  # fmt: skip


def pair(
    slot: int, error: float, scale: float, before: float, rows: int, after: str, carry: bool = False
) -> PlaceComparison:
    """Return what the draft is fed against what was packed, or the first carry against fc's output."""
    place, other = (hidden.CARRY, hidden.FC_OUT) if carry else (hidden.FED, hidden.AUX_CAPTURE)
    return PlaceComparison(place, other, slot, after, rows, error, scale, {-1: before, 1: 1.2})


_COPIED = tuple(
    pair(slot, 0.0, 1.0, 1.1, rows, after)
    for slot in range(3)
    for after, rows in (("prefill", 186), ("verify", 333))
)
PLACES: Mapping[str, tuple[PlaceComparison, ...]] = {
    "healthy": (*_COPIED, pair(0, 1.049, 1.204, 1.097, 111, "verify", carry=True)),
    "k1": (
        pair(0, 1.2101, 1.000, 0.0, 193, "prefill"), pair(0, 1.2176, 0.999, 0.0, 325, "verify"),
        pair(1, 1.0837, 0.998, 0.0, 193, "prefill"), pair(1, 1.0886, 1.001, 0.0, 325, "verify"),
        pair(2, 1.0520, 0.998, 0.0, 193, "prefill"), pair(2, 1.0829, 1.002, 0.0, 325, "verify"),
    ),
    "k2": (*_COPIED, pair(0, 0.0, 1.0, 0.772, 141, "verify", carry=True)),
    "k4": (*_COPIED, pair(0, 1.0, 0.0, 1.0, 174, "verify", carry=True)),
    "r": (
        pair(0, 0.3812, 1.071, 1.19, 186, "prefill"), pair(0, 0.3697, 1.070, 1.28, 328, "verify"),
        pair(1, 0.2816, 1.043, 1.065, 186, "prefill"), pair(1, 0.2866, 1.041, 1.125, 328, "verify"),
        pair(2, 0.2672, 1.031, 1.046, 186, "prefill"), pair(2, 0.2627, 1.032, 1.107, 328, "verify"),
    ),
}  # fmt: skip

POSITIONS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "healthy": ((111, 78), (111, 60), (111, 49), (111, 35)),
    "others": ((100, 74), (100, 57), (100, 50), (100, 45)),
    "a1": ((282, 19), (282, 7), (282, 2), (282, 2)),
    "b1": ((306, 6), (306, 0), (306, 0), (306, 0)),
    "d2": ((282, 28), (282, 3), (282, 0), (282, 0)),
    "e1": ((143, 82), (143, 45), (143, 31), (143, 23)),
    "f1": ((224, 52), (224, 26), (224, 14), (224, 9)),
    "i": ((258, 33), (258, 11), (258, 6), (258, 6)),
    "k1": ((190, 68), (190, 33), (190, 19), (190, 15)),
    "k2": ((141, 100), (141, 46), (141, 19), (141, 13)),
    "k3": ((173, 123), (173, 20), (173, 1), (173, 0)),
    "k4": ((174, 122), (174, 20), (174, 4), (174, 0)),
    "q": ((232, 43), (232, 20), (232, 13), (232, 6)),
    "r": ((128, 79), (128, 53), (128, 41), (128, 27)),
}
CARRIES: Mapping[str, tuple[HiddenEvidence, ...]] = {
    "a1": carried(47.41, 45.61, 46.35, 46.70),
    "b1": carried(55.30, 53.73, 56.20, 56.65),
    "i": carried(44.20, 45.33, 46.21, 46.55),
    "k2": carried(54.03, *[54.0553287981382] * 3, max_abs=536.0),
    "k3": carried(1.1415, 1.5205, 1.5555, 1.5496),
    "k4": tuple(replace(one, rms=0.0, mean=0.0, zero_share=1.0) for one in carried(0.0, 0.0, 0.0, 0.0)),
    "q": carried(48.34, 47.22, 49.97, 49.10),
}


def shifts(*hits: tuple[int, int]) -> tuple[Shift, ...]:
    return tuple(Shift(offset - 2, *told) for offset, told in enumerate(hits))


SHIFTS: Mapping[str, tuple[Shift, ...]] = {
    "healthy": shifts((11, 440), (10, 430), (221, 414), (19, 395), (22, 375)),
    "b3": shifts((8, 1224), (11, 1176), (1, 1104), (11, 1008), (1, 912)),
    "d1": shifts((50, 1098), (69, 1057), (56, 994), (25, 913), (16, 832)),
    "d3": shifts((35, 1042), (69, 1014), (83, 973), (39, 918), (28, 863)),
    "k1": shifts((56, 754), (93, 742), (138, 727), (25, 707), (11, 690)),
    "k3": shifts((18, 684), (6, 666), (148, 642), (15, 609), (12, 577)),
}
REPEATS: Mapping[str, float] = {"healthy": 0.0, "d1": 0.093, "k1": 0.116, "m": 0.39, "s": 0.14, "n": 0.03}
"""First drafts that repeat the last token; m, n and s from the fault table."""


def steps(
    hits: tuple[Shift, ...], repeats: float | None = 0.0, count: int = 300, requests: int = 10
) -> StepEvidence:
    ids = Ids(count, 4 * count, 3, 1017, 0.3, 0.5, 0, 0, repeats)
    return StepEvidence(steps=count, requests=requests, ids=ids, shifts=hits)


def given(fault: str, *, reference: bool | tuple[ReferenceEvidence, ...] = False, **changes: Any) -> Evidence:
    """Return the evidence of a run with ``fault``; what was not measured of it is as in a healthy one."""
    told: dict[str, Any] = {
        "config": FULL_CONFIG,
        "hidden": (*SOUND[:7], *CARRIES[fault]) if fault in CARRIES else SOUND,
        "places": PLACES.get(fault, PLACES["healthy"]),
        "positions": POSITIONS.get(fault, POSITIONS["healthy"]),
        "steps": steps(SHIFTS.get(fault, SHIFTS["healthy"]), REPEATS.get(fault, 0.0)),
        "reference": REFERENCES.get(fault, REFERENCES["healthy"]) if reference is True else reference or (),
    }
    return replace(HEALTHY, **(told | changes))
