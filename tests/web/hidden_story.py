"""Hidden states for the pages: requests of every size and kind, and an engine whose slot 1 shrank."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any

from specscope import chunks, hidden, reference_file
from specscope import convention as c
from specscope.hidden import HiddenRow
from specscope.hidden_rollup import Key, Sums
from specscope.rollup import ALL, STEP, Counts
from specscope_server.store.port import Store
from specscope_server.store.told import RollupIncrement
from storekit import facts, reference_requests, references

HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
SIZES = (18.0, 24.0, 26.0)
TOKENS, PASS = 100_000, 4096
"""Of a long prompt, and of one pass of its prefill."""


def path_rows(
    step: int,
    position: int,
    after: str,
    rows: int,
    *,
    slots: int = 3,
    drafts: int = 3,
    random: Random,
    **changes: Any,
) -> list[HiddenRow]:
    """Return what one pass of a chain tells of every place: sizes of a real model, a little off each."""

    def one(place: str, size: float, **more: Any) -> HiddenRow:
        told = size * random.lognormvariate(0, 0.05)
        base: dict[str, Any] = {
            "step": step, "after": after, "mode": "eager", "place": place, "source": c.TARGET_FED,
            "draft_step": 0, "slot": 0, "position": position, "rows": rows, "mean": told / 50, "std": told,
            "max_abs": 9 * told, "nonfinite": 0, "zero_rows": 0, "equal_rows": 0,
        }  # fmt: skip
        return HiddenRow(**(base | more | changes))

    def named(place: str, slot: int) -> HiddenRow:
        none = dict.fromkeys(("mean", "std", "max_abs", "nonfinite", "zero_rows", "equal_rows"))
        return replace(one(place, 1.0, slot=slot, same_as=hidden.FED), **none)

    sizes = [SIZES[slot % 3] * (1 + slot // 3) for slot in range(slots)]
    found = [named(hidden.AUX_CAPTURE, slot) for slot in range(slots)]
    found += [one(hidden.FED, size, slot=slot) for slot, size in enumerate(sizes)]
    found += [named(hidden.FC_IN, slot) for slot in range(slots)]
    found += [one(hidden.FC_OUT, 3.1), one(hidden.EMBEDDING, 0.021), one(hidden.CARRY, 5.0, rows=1)]
    for k in range(1, drafts):
        own: dict[str, Any] = {"source": c.SELF_FED, "draft_step": k, "rows": 1, "position": position + k}
        found += [one(hidden.EMBEDDING, 0.021, **own), one(hidden.CARRY, 5.0 * 1.3**k, **own)]
    return found


def steps_request(store: Store, uid: str = "u-steps", **changes: Any) -> None:
    """Write a request at detail level steps: its prefill and three verify steps were looked at."""
    random = Random(3)
    rows = path_rows(1, 0, "prefill", 20, random=random, **changes)
    for step, position in ((8, 30), (40, 95), (72, 160)):
        rows += path_rows(step, position, "verify", 3, random=random, **changes)
    _write(store, uid, rows, detail="steps")


def full_request(store: Store, uid: str = "u-full", order: Sequence[int] = (0, 1, 2)) -> None:
    """Write a request at detail level full; ``order`` is which aux state each slot is."""
    random = Random(4)
    rows = references.rows(references.states()[:, list(order)])
    for step in dict.fromkeys(row.step for row in rows):
        first = next(row for row in rows if row.step == step)
        others = path_rows(step, first.position, first.after, first.rows, random=random)
        rows += [row for row in others if row.place != hidden.FED]
    batch = reference_requests.told(uid, rows)
    reports = tuple(replace(one, boundaries=boundaries()) for one in batch.requests)
    store.write([replace(batch, requests=reports)], facts.NOW)


def refer(store: Store) -> None:
    """Write the reference of :func:`full_request`, under a name that tries to be more than text."""
    told = references.file(references.passage(references.states(), name="whole"))
    _, sequences = reference_file.read(told.splitlines())
    store.add_reference("default", "r0", references.FACTS, sequences, 1, facts.NOW)


def huge_request(store: Store, uid: str = "u-huge") -> None:
    """Write a request of 16 slots, 20 draft steps and a prompt of 100,000 tokens, told as far as may be."""
    random = Random(5)
    rows: list[HiddenRow] = []
    for step, position in enumerate(range(0, TOKENS, PASS), start=1):
        count = min(PASS, TOKENS - position)
        levels = [
            round(256 * math.log2(18 * random.lognormvariate(0, 0.2)))
            for _ in range(min(count, hidden.MAX_FINGERPRINTS))
        ]
        if position == 0:
            levels[0] = 256 * 11
        for slot in range(16):
            look = facts.look(
                step, after="prefill", slot=slot, position=position, rows=count, fingerprints=None,
                levels=[level + 64 * slot for level in levels],
            )  # fmt: skip
            rows.append(look)
    later = [
        row
        for step in range(1000, 1010)
        for row in path_rows(step, TOKENS + step, "verify", 3, slots=16, drafts=21, random=random)
    ]
    _write(store, uid, rows, detail="full")
    _write(store, uid, later, detail="full", seq=1)


def hostile_request(store: Store, uid: str = "u-hostile") -> None:
    """Write a request whose places, passes and numbers try to be more than they are."""
    nan = float("nan")
    rows = [
        facts.look(1, place=HOSTILE, after=HOSTILE, mode=HOSTILE, source=HOSTILE, slot=1023, draft_step=1023),
        facts.look(1, place=hidden.FC_IN, same_as=HOSTILE, mean=None, std=None, levels=None, nonfinite=None),
        facts.look(2, mean=nan, std=nan, max_abs=float("inf"), levels=None, nonfinite=7, zero_rows=1),
        facts.look(3, mean=1e308, std=1e308, levels=None),
        facts.look(4, levels=[hidden.NO_LEVEL], fingerprints=[0] * 8, zero_rows=1),
        facts.look(5, levels=[32767], fingerprints=[127] * 8),
        *(facts.look(6, place=hidden.CARRY, slot=slot) for slot in range(600)),
    ]
    _write(store, uid, rows, detail="full")


def boundaries(missing: str = "") -> bytes:
    """Return the crossings of a healthy EAGLE-3 request but those of one boundary."""
    expected = Counter({(name, c.NO_SOURCE): 4 for name in (c.AUX_CAPTURE, c.TARGET_VERIFY)})
    expected |= Counter({(name, c.TARGET_FED): 4 for name in (c.DRAFT_EXTEND, c.DRAFT_FC, c.DRAFT_FORWARD)})
    expected[c.DRAFT_FORWARD, c.SELF_FED] = 8
    observed = {(*key, c.EAGER): count for key, count in expected.items() if key[0] != missing}
    return chunks.pack_boundaries(expected, observed)


def _write(store: Store, uid: str, rows: Sequence[HiddenRow], *, detail: str, seq: int = 0) -> None:
    told = replace(facts.request(uid), boundaries=boundaries())
    part = facts.chunk(uid, seq=seq, first_step=0, steps=[facts.step(8)] if seq == 0 else [], looks=rows)
    store.write([facts.batch(reference_requests.report(), told, part, detail=detail)], facts.NOW)


def engine(store: Store, now: datetime, *, slots: int = 3, drafts: int = 3) -> None:
    """Write two hours of sums; slot 1 is ten times smaller in the second one, and fc's output is zero."""
    random = Random(6)
    increments: list[RollupIncrement] = []
    start = int(now.timestamp()) // 10 * 10
    for number, ago in enumerate(range(20, 7200, 20)):
        if 900 < ago < 1300:
            continue
        sums: dict[Key, Sums] = {}
        for row in path_rows(1, 0, "verify", 3, slots=slots, drafts=drafts, random=random):
            if row.same_as is None and row.rms:
                size = row.rms * (0.1 if row.place == hidden.FED and row.slot == 1 and ago < 3600 else 1)
                zero = row.place == hidden.FC_OUT and ago < 1800
                sums[facts.place(row.place, source=row.source, draft_step=row.draft_step, slot=row.slot)] = (
                    facts.looks(2, size, rows=2 * row.rows, zero_rows=row.rows if zero else 0)
                )
        counts = Counts(steps=3, drafted_depth=9, accepted=6, bonus=3)
        increments.append(RollupIncrement(number, start - ago, {(ALL, "", STEP): counts}, sums))
    old = replace(reference_requests.report(), event_ns=(start - 8000) * facts.SECOND)
    crossed = [
        *facts.crossings(c.AUX_CAPTURE, "", 90, eager=90),
        *facts.crossings(c.DRAFT_EXTEND, c.TARGET_FED, 90, eager=90),
        *facts.crossings(c.DRAFT_FC, c.TARGET_FED, 90, eager=90),
        *facts.crossings(c.DRAFT_FORWARD, c.TARGET_FED, 90, eager=90),
        *facts.crossings(c.DRAFT_FORWARD, c.SELF_FED, 180, graph=180),
    ]
    armed = dict.fromkeys((c.AUX_CAPTURE, c.DRAFT_EXTEND, c.DRAFT_FC, c.DRAFT_FORWARD), (True, ""))
    beat = replace(facts.heartbeat(1, boundaries=tuple(crossed), armed=armed), event_ns=start * facts.SECOND)
    store.write([facts.batch(old, beat, *increments, start_ns=(start - 8000) * facts.SECOND)], now)
