"""Records as the SGLang adapter hands them over, of requests that come and go, with plausible numbers.

Ids are drawn log-uniformly (few ids are frequent), drafts are accepted one after the other with probability
0.7 (of a chain of 3: 0.85), trees are drawn anew for each row. Rows of hidden states are Gaussian, of a size
that differs from row to row by a fifth. A request has a prompt of 512 tokens, wants 128 to 512 tokens more
and is followed by another one when it has them.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from specscope import contracts, hidden, identity
from specscope import convention as c
from specscope import records as r

VOCABULARY, PROMPT, STEPS = 32_000, 512, 4
SHORT, CHAIN, TREE = 4, STEPS + 1, 16
"""Nodes of a row, the root included: a chain of 3 or of 4 drafts, or a tree of 16 nodes."""
SLOTS = 3
LOOK_BYTES = 1 << 17
"""Of larger looks the adapter hands over what :func:`specscope.tensorstats.combine` makes of them."""
VARIANTS = 64
"""Batches of drafts made beforehand and told in turn."""

_CONTRACT = contracts.contract("EAGLE3", contracts.Shape(STEPS, fc=True, map=True))
_OF_EXTEND = {(c.DRAFT_EXTEND, c.TARGET_FED), (c.DRAFT_FORWARD, c.TARGET_FED), (c.DRAFT_FC, c.TARGET_FED)}


def _split(counts: dict[r.Expectation, int], *, extend: bool) -> dict[r.Expectation, int]:
    return {key: n for key, n in counts.items() if (key in _OF_EXTEND) == extend}


def _seen(counts: dict[r.Expectation, int]) -> dict[r.Crossing, int]:
    return {(*key, c.EAGER): n for key, n in counts.items()}


# One object a kind of pass, as the adapter has it.
_VERIFY, _VERIFY_EXTEND = (_split(dict(_CONTRACT.verify), extend=extend) for extend in (False, True))
_PREFILL, _PREFILL_EXTEND = (_split(dict(_CONTRACT.prefill), extend=extend) for extend in (False, True))
_VERIFIED, _VERIFY_EXTENDED = _seen(_VERIFY), _seen(_VERIFY_EXTEND)
_PREFILLED, _PREFILL_EXTENDED = _seen(_PREFILL), _seen(_PREFILL_EXTEND)


@dataclass
class _Live:
    uid: str
    rid: str
    has: int
    wants: int


@dataclass(frozen=True)
class _Variant:
    accepted: list[int]
    drafts: r.Block
    committed: r.Block
    first_child: r.Block | None
    next_sibling: r.Block | None
    confidence: r.Reals
    view: r.Reals
    opening: r.Reals
    looks: tuple[r.HiddenLook, ...]


class Traffic:
    """Requests of one engine of ``batch`` rows and ``nodes`` nodes a row.

    Confidence, the target's view and, with ``looks``, what was looked at of hidden states, are in every
    ``every``-th step, hidden states also in each prefill; with fingerprints where all steps have them.
    """

    def __init__(
        self, instance: str, batch: int, nodes: int, *, looks: bool, every: int, prompt: int = PROMPT
    ) -> None:
        self._random = random.Random(5)
        self._instance, self._batch, self._nodes, self._every = instance, batch, nodes, every
        self._hidden, self._prompt = looks, prompt
        self._depth = STEPS if nodes == TREE else nodes - 1
        self._taken = 0.85 if nodes == SHORT else 0.7
        self._normal = np.random.default_rng(5)
        self._variants = [self._variant() for _ in range(VARIANTS)]
        self._rows: list[_Live] = []
        self._who: tuple[tuple[str, ...], r.Ids] = (), ()
        self.steps = 0
        """Verify steps told so far."""
        self.row_steps = 0
        self.requests = 0
        """Requests started so far."""

    def step(self) -> Iterator[r.Record]:
        """The records of one engine step, and of the requests that came before it and ended with it."""
        if missing := self._batch - len(self._rows):
            yield from self._arrive(missing)
        one, rows = self._variants[self.steps % VARIANTS], self._rows
        self.steps += 1
        self.row_steps += len(rows)
        sampled, next_sampled = self.steps % self._every == 0, (self.steps + 1) % self._every == 0
        uids, prompt = self._who
        # Numbers of their own, as len() makes them: shared ones cost the encoding more.
        before = [live.has + 0 for live in rows]
        for live, accepted in zip(rows, one.accepted, strict=True):
            live.has = min(live.has + accepted + 1, live.wants)
        now = time.monotonic_ns()
        yield r.VerifyBatch(
            t_ns=now,
            step=self.steps,
            mode=c.EAGER,
            uids=uids,
            prompt=prompt,
            before=before,
            after=[live.has + 0 for live in rows],
            accepted=one.accepted,
            bonus=1,
            nodes=self._nodes,
            depth=self._depth,
            chain=one.first_child is None,
            expected=_VERIFY,
            crossed=_VERIFIED,
            drafts=one.drafts,
            first_child=one.first_child,
            next_sibling=one.next_sibling,
            committed=one.committed,
            confidence=one.confidence if sampled else None,
            view=one.view if sampled else None,
        )
        if self._hidden and sampled:
            positions = tuple([self._prompt + has - 1 for has in before])
            yield r.HiddenPass(now, self.steps, "verify", c.EAGER, uids, positions, one.looks)
        yield self._extend(uids, "verify", one.opening if next_sampled else None)
        for live in [live for live in rows if live.has >= live.wants]:
            yield r.RequestFinished(now, live.uid, c.STATE_FINISHED, "length", live.wants, 0.01, 0.05)
            rows.remove(live)

    def end(self) -> Iterator[r.Record]:
        """Every request that still runs ends."""
        for live in self._rows:
            now = time.monotonic_ns()
            yield r.RequestFinished(now, live.uid, c.STATE_FINISHED, "length", live.has, 0.01, 0.05)

    def _arrive(self, count: int) -> Iterator[r.Record]:
        now, wall = time.monotonic_ns(), time.time_ns()
        new: list[_Live] = []
        for _ in range(count):
            rid = f"request-{self.requests}"
            self.requests += 1
            uid = identity.request_uid(self._instance, 0, rid, 0)
            new.append(_Live(uid, rid, 1, self._random.randint(128, 512)))
            prompt = tuple([self._id() for _ in range(self._prompt)])
            yield r.RequestStarted(now, uid, rid, c.KIND_USER, wall, self._prompt, 0.0, 512, None, prompt)
        uids = tuple([live.uid for live in new])
        yield r.PrefillPass(now, self.steps, uids, (0,) * count, _PREFILL, _PREFILLED)
        if self._hidden:
            looks = self._looks([self._prompt] * count, self._prompt, prefill=True)
            yield r.HiddenPass(now, self.steps, "prefill", c.EAGER, uids, (0,) * count, looks)
        yield self._extend(uids, "prefill", None)
        self._rows = [*self._rows, *new]
        # As in the adapter the same objects until the batch changes.
        self._who = tuple([live.uid for live in self._rows]), (self._prompt,) * self._batch

    def _extend(self, uids: tuple[str, ...], after: str, confidence: r.Reals | None) -> r.DraftExtend:
        verify = after == "verify"
        return r.DraftExtend(
            t_ns=time.monotonic_ns(),
            step=self.steps,
            after=after,
            mode=c.EAGER,
            uids=uids,
            fed_width=12_288,
            dtype="bfloat16",
            aux_states=3,
            fc_in=12_288,
            fc_ran=1,
            expected=_VERIFY_EXTEND if verify else _PREFILL_EXTEND,
            crossed=_VERIFY_EXTENDED if verify else _PREFILL_EXTENDED,
            confidence=confidence,
        )

    # --- hidden states ----------------------------------------------------------------------------

    def _looks(self, counts: list[int], stride: int, *, prefill: bool = False) -> tuple[r.HiddenLook, ...]:
        """What the adapter looks at where draft and fc get the very tensor that the target packed."""
        ones = (1,) * len(counts)
        fed = self._look(hidden.FED, 0, SLOTS, counts, stride)
        same = [
            replace(fed, place=place, data=b"", projections=False, summed=False, same_as=hidden.FED)
            for place in (hidden.AUX_CAPTURE, hidden.FC_IN)
        ]
        made = [self._look(place, 0, 1, counts, stride) for place in (hidden.FC_OUT, hidden.EMBEDDING)]
        carried = [self._look(hidden.CARRY, 0, 1, ones, 1)]
        for step in range(1, 1 if prefill else self._depth):
            carried += [self._look(place, step, 1, ones, 1) for place in (hidden.CARRY, hidden.EMBEDDING)]
        return (fed, *same, *made, *carried)

    def _look(self, place: str, step: int, slots: int, counts: Sequence[int], stride: int) -> r.HiddenLook:
        """``counts`` rows of each request, one request every ``stride`` rows."""
        projections = hidden.PROJECTIONS if self._every == 1 else 0
        rows = len(counts) * stride
        summed = rows * slots * (6 + projections) * 4 > LOOK_BYTES
        if summed:
            rows, projections = len(counts), 0
        shape = (rows, slots, 1)
        size = np.exp(self._normal.normal(0.0, 0.2, shape))
        found = [
            *([np.broadcast_to(np.array(counts, dtype=float)[:, None, None], shape)] if summed else []),
            self._normal.normal(0.0, 0.02, shape) * size,
            size * size,
            self._normal.uniform(3.5, 5.0, shape) * size,
            np.zeros((rows, slots, 3)),
            self._normal.normal(0.0, 1.0, (rows, slots, projections)) * size,
        ]
        return r.HiddenLook(
            place=place,
            source=c.SELF_FED if step else c.TARGET_FED,
            draft_step=step,
            slots=slots,
            starts=tuple(range(0, len(counts) * stride, stride)),
            counts=tuple(counts),
            data=np.concatenate(found, axis=2).astype("<f4").tobytes(),
            projections=projections > 0,
            summed=summed,
        )

    # --- drafts -----------------------------------------------------------------------------------

    def _id(self) -> int:
        return int(VOCABULARY ** self._random.random()) - 1

    def _variant(self) -> _Variant:
        tree = self._nodes == TREE
        made = [self._row(tree=tree) for _ in range(self._batch)]
        accepted, drafts, committed, children, siblings = (list(part) for part in zip(*made, strict=True))
        positions = self._depth - 1
        return _Variant(
            accepted=accepted,
            drafts=_block(drafts, "q"),
            committed=_block(committed, "i"),
            first_child=_block(children, "q") if tree else None,
            next_sibling=_block(siblings, "q") if tree else None,
            confidence=self._reals(2 * self._batch * positions, positions),
            view=self._reals(3 * self._batch, self._batch),
            opening=self._reals(2 * self._batch, self._batch),
            looks=self._looks([count + 1 for count in accepted], self._nodes) if self._hidden else (),
        )

    def _row(self, *, tree: bool) -> tuple[int, list[int], list[int], list[int], list[int]]:
        """Accepted drafts, tokens, committed tokens, first child and next sibling of each node."""
        nodes = self._nodes
        distinct: dict[int, None] = {}  # as drafts that follow the same one are
        while len(distinct) < nodes:
            distinct[self._id()] = None
        tokens = list(distinct)
        child, sibling, depth = [-1] * nodes, [-1] * nodes, [0] * nodes
        for node in range(1, nodes):
            parent = node - 1
            if tree:
                # The parents with the higher path probability stand in front.
                open_ = [at for at in range(node) if depth[at] < self._depth]
                parent = open_[min(int(self._random.expovariate(0.4)), len(open_) - 1)]
            depth[node] = depth[parent] + 1
            sibling[node], child[parent] = child[parent], node
        path, at = list[int](), child[0]
        while at != -1 and self._random.random() < self._taken:
            while sibling[at] != -1:  # the best of them, which more drafts follow
                at = sibling[at]
            path.append(at)
            at = child[at]
        taken = [tokens[node] for node in path]
        committed = [*taken, self._id(), *[0] * (nodes - len(taken) - 1)]
        return len(path), tokens, committed, child, sibling

    def _reals(self, count: int, width: int) -> r.Reals:
        return array("f", [self._random.random() for _ in range(count)]).tobytes(), width


def _block(rows: list[list[int]], code: str) -> r.Block:
    flat = array(code, [number for row in rows for number in row])
    return flat.tobytes(), flat.itemsize, len(rows[0])
