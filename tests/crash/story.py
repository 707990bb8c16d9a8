"""Traffic of one engine from a seed, and the truth about it: what every request really did."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from specscope import convention as c
from specscope import identity
from specscope import records as r
from wirekit.traffic import CONFIG, CONTRACT, seen

STEP_NS = 20_000_000
"""Time between two verify steps."""
DEPTH = 3
"""Drafts of each verify step, a chain."""


@dataclass
class Truth:
    """What one request did."""

    verify_steps: int = 0
    drafted_depth: int = 0
    accepted: int = 0
    committed: int = 0


@dataclass
class _Running:
    uid: str
    name: str
    left: int
    context: int
    truth: Truth = field(default_factory=Truth)


class Story:
    """An engine that always has ``width`` requests under way, each of up to 150 verify steps."""

    def __init__(self, seed: int, instance: str, width: int = 4) -> None:
        self._dice = random.Random(seed)
        self.instance, self._width = instance, width
        self._running: list[_Running] = []
        self._number = self._step = 0
        self.requests = 0
        self.truth: dict[str, Truth] = {}
        """By request uid; whole once :meth:`end` was told."""

    def engine(self, t_ns: int) -> r.EngineFacts:
        return r.EngineFacts(t_ns, "start", "tiny-target", "sglang", "0.5.23", True, CONFIG)

    def step(self, t_ns: int, wall_ns: int) -> Iterator[r.Record]:
        """One verify step of all requests under way; those that are through end, others start."""
        while len(self._running) < self._width:
            yield from self._start(t_ns, wall_ns)
        self._step += 1
        batch = self._running
        accepted = [min(self._dice.randrange(DEPTH + 2), DEPTH) for _ in batch]
        size = len(batch)
        yield r.VerifyStep(
            t_ns=t_ns,
            step=self._step,
            mode=c.GRAPH if self._step % 8 else c.EAGER,
            batch_size=size,
            uids=tuple(one.uid for one in batch),
            rows=tuple(range(size)),
            context=tuple(one.context for one in batch),
            drafted_depth=(DEPTH,) * size,
            drafted_nodes=(DEPTH,) * size,
            accepted=tuple(accepted),
            bonus=(1,) * size,
            committed=tuple(count + 1 for count in accepted),
            expected=CONTRACT.verify,
            crossed=seen(),
            overshoot=(False,) * size,
        )
        for one, count in zip(batch, accepted, strict=True):
            one.left -= 1
            one.context += count + 1
            one.truth.verify_steps += 1
            one.truth.drafted_depth += DEPTH
            one.truth.accepted += count
            one.truth.committed += count + 1
        self._running = [one for one in batch if one.left]
        for one in batch:
            if not one.left:
                yield self._finish(one, t_ns)

    def end(self, t_ns: int) -> Iterator[r.Record]:
        """End what is under way."""
        for one in self._running:
            yield self._finish(one, t_ns)
        self._running = []

    def told(self) -> dict[str, dict[str, int]]:
        """The truth as plain values."""
        return {uid: asdict(truth) for uid, truth in self.truth.items()}

    def _start(self, t_ns: int, wall_ns: int) -> Iterator[r.Record]:
        self._number += 1
        self.requests += 1
        name = f"request-{self._number}"
        uid = identity.request_uid(self.instance, 0, name, 0)
        prompt = self._dice.randrange(10, 2000)
        one = _Running(uid, name, self._dice.randrange(1, 150), prompt)
        self._running.append(one)
        self.truth[uid] = one.truth
        temperature = self._dice.choice((0.0, 0.7))
        yield r.RequestStarted(t_ns, uid, name, c.KIND_USER, wall_ns, prompt, temperature, 400)
        crossed = seen(dict(CONTRACT.prefill))
        cached = self._dice.choice((0, prompt // 2))
        yield r.PrefillPass(t_ns, self._step, (uid,), (cached,), CONTRACT.prefill, crossed)

    def _finish(self, one: _Running, t_ns: int) -> r.RequestFinished:
        return r.RequestFinished(
            t_ns,
            one.uid,
            c.STATE_FINISHED,
            "stop",
            one.truth.committed,
            0.01,
            0.1,
            engine_verify_steps=one.truth.verify_steps,
            engine_accepted=one.truth.accepted,
        )
