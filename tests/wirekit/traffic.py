"""Fixed records, as an adapter would hand them over; needs nothing but the tracer."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specscope import contracts, identity
from specscope import convention as c
from specscope import records as r
from specscope.clock import Anchor
from specscope.frames import Beat, Hello
from specscope.records import Crossing, Expectation
from specscope.settings import Settings

INSTANCE = "0123456789abcdef0123456789abcdef"
WALL = 1_790_000_003_000_000_000
MONOTONIC = 5_000_000_000_000
MS = 1_000_000
CONTRACT = contracts.contract("EAGLE3", contracts.Shape(3, fc=True))
CONFIG = {
    "versions": {"sglang": "0.5.23"},
    "speculative": {"algorithm": "EAGLE3", "num_steps": 3, "topk": 1, "num_draft_tokens": 4},
    "vocab_size": 512,
}


def uid(name: str, instance: str = INSTANCE) -> str:
    return identity.request_uid(instance, 0, name, 0)


def seen(expected: dict[Expectation, int] | None = None, mode: str = c.EAGER) -> dict[Crossing, int]:
    wanted = dict(CONTRACT.verify if expected is None else expected)
    return {(boundary, source, mode): count for (boundary, source), count in wanted.items()}


def engine(t: int = MONOTONIC) -> r.EngineFacts:
    return r.EngineFacts(t, "start", "tiny-target", "sglang", "0.5.23", True, CONFIG)


def started(
    name: str,
    t: int,
    *,
    instance: str = INSTANCE,
    kind: str = c.KIND_USER,
    arrival: int = WALL,
    prompt: int = 6,
) -> r.RequestStarted:
    ids = tuple(10 + i % 3 for i in range(prompt))
    return r.RequestStarted(t, uid(name, instance), name, kind, arrival, prompt, 0.0, 200, None, ids)


def verify(
    step: int,
    t: int,
    names: tuple[str, ...],
    *,
    accepted: int = 2,
    instance: str = INSTANCE,
    overshoot: bool = False,
) -> r.VerifyStep:
    """A chain of three drafts for each request, of which ``accepted`` are taken."""
    n = len(names)
    drafts = (20 + step % 5, 21, 22)
    return r.VerifyStep(
        t_ns=t,
        step=step,
        mode=c.EAGER,
        batch_size=n,
        uids=tuple(uid(name, instance) for name in names),
        rows=tuple(range(n)),
        context=(7 + step * (accepted + 1),) * n,
        drafted_depth=(3,) * n,
        drafted_nodes=(3,) * n,
        accepted=(accepted,) * n,
        bonus=(1,) * n,
        committed=(accepted + 1,) * n,
        expected=CONTRACT.verify,
        crossed=seen(),
        overshoot=(overshoot,) * n,
        draft_tokens=(drafts,) * n,
        parents=((-1, 0, 1),) * n,
        accepted_path=(tuple(range(accepted)),) * n,
        output_ids=((*drafts[:accepted], 99),) * n,
    )


def extend(
    step: int, t: int, names: tuple[str, ...], *, after: str = "verify", instance: str = INSTANCE
) -> r.DraftExtend:
    return r.DraftExtend(
        t_ns=t,
        step=step,
        after=after,
        mode=c.EAGER,
        uids=tuple(uid(name, instance) for name in names),
        fed_width=192,
        dtype="bfloat16",
        aux_states=3,
        fc_in=192,
        fc_ran=1,
        expected={},
        crossed={},
    )


FED_ROWS = ((0.75, 6.0, 8.0, 0.0, 0.0, 0.0), (0.0, 0.375, 2.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0, 1.0, 0.0))
"""Mean, variance, largest absolute value, values not finite, all zero, equal to the one before: together
mean 0.25, deviation 1.5."""
UNITS = (16, -16, 0, 32, -8, 1, -1, 4)
"""A fingerprint in sixteenths of the row's rms."""


def hidden(
    step: int, t: int, names: tuple[str, ...], *, after: str = "verify", instance: str = INSTANCE
) -> r.HiddenPass:
    """What was looked at of the first request; of the others there are no rows.

    In the passes of step 0, 1 and 64 all places with fingerprints, in the others what the draft was fed.
    """
    none = (0,) * (len(names) - 1)

    def look(place: str, rows: tuple[tuple[float, ...], ...], slots: int = 1, draft_step: int = 0) -> Any:
        whole = step in (0, 1, 64)
        data = array("f")
        for mean, variance, *rest in rows:
            rms = math.hypot(mean, math.sqrt(variance))
            prints = [unit / 16 * rms for unit in UNITS] if whole else []
            data.extend([mean, variance, *rest, *prints] * slots)
        source = c.SELF_FED if draft_step else c.TARGET_FED
        first, counts = (0,) * len(names), (len(rows), *none)
        return r.HiddenLook(place, source, draft_step, slots, first, counts, data.tobytes(), whole)

    looks = [look("draft.extend", FED_ROWS)]
    if step in (0, 1, 64):
        same = r.HiddenLook(
            "draft.fc.in", c.TARGET_FED, 0, 3, (0,) * len(names), (3, *none), same_as="draft.extend"
        )
        carries = [look("draft.carry", FED_ROWS[:1], draft_step=k) for k in range(3)]
        looks = [look("draft.extend", FED_ROWS, 3), same, look("draft.fc.out", FED_ROWS), *carries]
        looks += [look("draft.start", FED_ROWS[:1])] * (after == "verify")
    return r.HiddenPass(
        t_ns=t,
        step=step,
        after=after,
        mode=c.EAGER,
        uids=tuple(uid(name, instance) for name in names),
        positions=(6 + 3 * step,) * len(names),
        looks=tuple(looks),
    )


def finished(
    name: str, t: int, tokens: int, *, instance: str = INSTANCE, state: str = c.STATE_FINISHED
) -> r.RequestFinished:
    return r.RequestFinished(t, uid(name, instance), state, "stop", tokens, 0.125, 0.5)


def story() -> Iterator[r.Record]:
    """Three requests: one long enough for two chunks, a health check, and one that goes on."""
    t = MONOTONIC
    yield engine(t)
    for name, kind in (("long", c.KIND_USER), ("health", c.KIND_HEALTH_CHECK), ("open", c.KIND_USER)):
        yield started(name, t, kind=kind)
    names = ("long", "health", "open")
    yield r.PrefillPass(
        t + MS, 0, tuple(map(uid, names)), (0, 0, 4), CONTRACT.prefill, seen(dict(CONTRACT.prefill))
    )
    yield hidden(0, t + 2 * MS, names, after="prefill")
    yield extend(0, t + 2 * MS, names, after="prefill")
    for step in range(1, 71):
        batch = names if step <= 3 else ("long", "open") if step <= 6 else ("long",)
        yield verify(step, t + 10 * MS * step, batch, accepted=0 if step % 4 == 0 else 2)
        yield hidden(step, t + 10 * MS * step + MS, batch)
        yield extend(step, t + 10 * MS * step + MS, batch)
        if step == 3:
            yield finished("health", t + 10 * MS * step + 2 * MS, 8)
    yield replace(finished("long", t + 720 * MS, 177), engine_verify_steps=70, engine_accepted=106)
    yield verify(71, t + 721 * MS, ("long",), overshoot=True)
    mean_rows = (-640, *UNITS, 512, *UNITS)
    yield r.RankSteps(
        t + 722 * MS,
        2,
        (69, 70, 71),
        (0xFFFFFFFF, 5, None),
        (0, 6, 7),
        (None, mean_rows, None),
        (None, mean_rows[:9], None),
    )


def hello(detail: str = c.DETAIL_FULL) -> Hello:
    ranks = identity.Ranks(tp=1, dp=2)
    return Hello(
        settings=Settings(endpoint="http://127.0.0.1:4318", detail=detail, name="demo", instance=INSTANCE),
        instance=INSTANCE,
        process=identity.process_uid(INSTANCE, "scheduler", ranks, 4242, WALL - 1),
        pid=4242,
        start_ns=WALL - 1,
        role="scheduler",
        ranks=ranks,
        engine_name="sglang",
        engine_version="0.5.23",
        anchor=Anchor(MONOTONIC, WALL),
    )


def beat(*, dropped: dict[str, int] | None = None) -> Beat:
    expected = {key: 70 * count for key, count in CONTRACT.verify.items()}
    return Beat(
        anchor=Anchor(MONOTONIC + 1000 * MS, WALL + 1000 * MS),
        expected=expected,
        observed=seen(expected),
        armed={
            c.DRAFT_FC: (c.ARMING_ARMED, ""),
            c.DRAFT_MAP: (c.ARMING_OFF, "the draft has the target's vocabulary"),
        },
        requests={c.KIND_USER: 2, c.KIND_HEALTH_CHECK: 1},
        dropped=dropped or {},
        queued=3,
        hook_errors={"commit": 1},
        engine_thread_ns=12_345,
        pass_times={("step", 2): (70, 910 * MS), ("decode", 1): (12, 84 * MS)},
    )
