"""Minutes of traffic as requests make them: alike within a request, by chance otherwise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from evidence_literals import HEALTHY, NOW
from specscope.rollup import Counts
from specscope_server.diagnosis.engine_evidence import Event, Moment
from specscope_server.diagnosis.model import Evidence

DEPTH = 4
MIX = {"context=64-127": 60, "context=128-255": 40, "temperature=0": 100, "copy_like=no": 100}


def minute(
    start: int, chance: float, rng: random.Random, requests: int = 12, steps: int = 40, spread: float = 0.12
) -> Counts:
    """One minute of ``requests``, each with a chance of its own around ``chance`` for all its drafts."""
    found = Counts()
    for _ in range(requests):
        own = min(max(rng.gauss(chance, spread), 0.0), 0.98)
        for _ in range(steps):
            accepted = 0
            while accepted < DEPTH and rng.random() < own:
                accepted += 1
            zero = int(accepted == 0)
            found.add(Counts(1, DEPTH, DEPTH, accepted, 1, accepted + 1, zero, 0))
    return found


def history(
    chances: Sequence[float],
    seed: int = 0,
    mix: Callable[[int], Mapping[str, int]] = lambda _: MIX,
    **traffic: int | float,
) -> tuple[Moment, ...]:
    """Minutes that end now, one a chance; a negative chance is a minute without traffic."""
    rng = random.Random(seed)
    first = int(NOW) // 60 * 60 - 60 * len(chances)
    return tuple(
        Moment(first + 60 * n, minute(n, chance, rng, **traffic), (), mix(n))  # pyright: ignore[reportArgumentType]
        for n, chance in enumerate(chances)
        if chance >= 0
    )


def with_history(moments: tuple[Moment, ...], *events: Event) -> Evidence:
    """The healthy engine with such minutes before it."""
    return replace(HEALTHY, history=moments, events=events)
