"""Simulated hidden states: as a reference has them, and as an engine tells them on the wire."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from specscope import hidden, tensorstats
from specscope.hidden import HiddenRow
from specscope.reference_file import Facts, Model, Passage, Track, lines

States = NDArray[np.float64]
"""[tokens, slots, H]."""
WIDTH = 128
SAME_AS = {hidden.AUX_CAPTURE: hidden.FED, hidden.FC_IN: hidden.FED}
IDS = tuple(range(100, 160))


def states(tokens: int = 60, slots: int = 3, seed: int = 0, width: int = WIDTH) -> States:
    """Return states that are alike between tokens, as real ones are, and of another size in each slot."""
    rng = np.random.default_rng(seed)
    common = 2 * rng.standard_normal((1, slots, width))
    own = rng.standard_normal((tokens, slots, width))
    return (common + own) * np.array([18.0, 24.0, 26.0])[:slots, None]


def numbers(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (rms [n], projections [n, PROJECTIONS]) of rows [n, H]."""
    projected = rows @ tensorstats.signs(rows.shape[1]).T / math.sqrt(rows.shape[1])
    return np.sqrt((rows**2).mean(axis=1)), projected


def passage(
    at: Mapping[str, States] | States, ids: Sequence[int] = IDS, prompt_tokens: int = 20, name: str = "a"
) -> Passage:
    """Return a sequence of a reference; states alone are those at ``draft.extend``."""
    tracks: list[Track] = []
    for place, found in (at if isinstance(at, Mapping) else {hidden.FED: at}).items():
        for slot in range(found.shape[1]):
            rms, projections = numbers(found[:, slot])
            tracks.append(Track(place, slot, rms.astype(np.float32), projections.astype(np.float32)))
    return Passage(name, tuple(ids), prompt_tokens, tuple(tracks))


def rows(found: States, place: str = hidden.FED, first: int = 20, **changes: Any) -> list[HiddenRow]:
    """Return what an engine tells of states from position 0 on: a prefill of ``first``, then four a step."""
    starts = [0, *range(first, len(found), 4)]
    told: list[HiddenRow] = []
    for step, (start, end) in enumerate(zip(starts, [*starts[1:], len(found)], strict=True)):
        for slot in range(found.shape[1]):
            part = found[start:end, slot]
            levels, units = hidden.quantise(*numbers(part))
            fields: dict[str, Any] = {
                "step": step + 1,
                "after": "prefill" if step == 0 else "verify",
                "mode": "eager",
                "place": place,
                "source": "target_fed",
                "draft_step": 0,
                "slot": slot,
                "position": start,
                "rows": end - start,
                "mean": float(part.mean()),
                "std": float(part.std()),
                "max_abs": float(abs(part).max()),
                "nonfinite": 0,
                "zero_rows": int((part == 0).all(axis=1).sum()),
                "equal_rows": 0,
                "levels": levels,
                "fingerprints": units,
            }
            told.append(HiddenRow(**(fields | changes)))
    return told


def left_and_started(scale: float = 1.0, late: int = 1) -> list[HiddenRow]:
    """What passes left, each at its last token, and what the pass ``late`` ones further started from."""
    left = [
        replace(
            one,
            position=one.position + one.rows - 1,
            rows=1,
            levels=list(one.levels or ())[-1:],
            fingerprints=list(one.fingerprints or ())[-hidden.PROJECTIONS :],
        )
        for one in rows(states(tokens=40, slots=1, seed=4), hidden.CARRY)
    ]
    moved = round(256 * np.log2(scale)) if scale else 0
    started = [
        replace(
            one,
            place=hidden.START,
            step=one.step + late,
            after="verify",
            levels=[hidden.NO_LEVEL if not scale else level + moved for level in one.levels or ()],
            zero_rows=int(not scale),
        )
        for one in left
    ]
    return [*started, *left]


TARGET = Model("tiny", "LlamaForCausalLM", WIDTH, 8, 1024, {"model.safetensors": "ab" * 32})
FACTS = Facts(
    target=TARGET,
    draft=None,
    dtype="float32",
    hidden_size=WIDTH,
    aux_layers=(2, 4, 5),
    same_as={hidden.AUX_CAPTURE: hidden.FED},
    seed=tensorstats.SEED,
    made_with={"specscope": "0.1.0"},
)


def file(*passages: Passage, facts: Facts = FACTS) -> bytes:
    """Return a reference file."""
    return "".join(lines(facts, passages)).encode()
