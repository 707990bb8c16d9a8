"""Looks at hidden states on the draft path: what the draft is fed, and what it makes of it step by step.

Reductions run where the states are, on the stream that made them (:mod:`specscope.tensorstats`); the few
numbers go to the host together, once a pass (:mod:`specscope.copies`), and are told when the engine has
committed the pass: only then is known which rows were kept. Every prefill is looked at, and of the verify
passes those that are sampled.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from specscope import convention as c
from specscope import hidden, tensorstats
from specscope.contracts import VERIFY
from specscope.copies import Copies, Copy, Part
from specscope.engines.sglang.hooks import FAILED, Guard
from specscope.engines.sglang.loaded import Loaded
from specscope.records import HiddenLook, HiddenPass, Ids

if TYPE_CHECKING:
    from specscope.engines.sglang.graph_looks import Read
    from specscope.engines.sglang.passes import Pass
    from specscope.recorder import Recorder

BUSY: Final = "busy"
HELD_BYTES: Final = 32 << 20
"""Bytes of looks in the queue to the exporter at most: the first thing to be left out when it lags."""
LOOK_BYTES: Final = 1 << 17
"""Bytes of one look that are handed over row by row; of more rows only what :func:`tensorstats.combine`
makes of them a request, without fingerprints."""
SNAPSHOT_BYTES: Final = 1 << 18
"""A tensor up to this size is copied where it is met, and reduced with the others of its width when the pass
ends: ten reductions a step cost the engine's thread more than one of all their rows."""
WHOLE: Final = ("Linear", "ReplicatedLinear")
"""Classes of a projection of which each rank has the whole (``torch.nn``, ``layers/linear.py`` of SGLang)."""
WAITING: Final = 4
"""Passes that were told already and whose looks are still on their way from the device."""


@dataclass(slots=True)
class Look:
    """One tensor that was looked at.

    Of request i come the rows from ``i * stride`` on: the kept ones with ``kept``, else one. ``stride`` 0:
    its rows of a prefill.
    """

    place: str
    source: str
    draft_step: int
    slots: int
    stride: int = 0
    kept: bool = False
    summed: bool = False
    same_as: str = ""
    rows: Any = None
    """A copy of what is looked at [rows, width], until it is reduced."""
    found: Any = None
    """float32 [rows, slots, columns] on its device, until the copy begins."""


@dataclass(slots=True)
class Looking:
    """The looks of one pass while it runs."""

    looks: list[Look] = field(default_factory=list[Look])
    aux: Any = None
    """What the target packed [tokens, width], until it is known whether the draft is fed the same tensor."""
    fed: Any = None
    nodes: int = 0
    """Rows of each request in a draft extend after a verify step."""
    starts: Ids = ()
    counts: Ids = ()
    """First row and number of rows of each request in a prefill."""
    positions: Ids = ()
    steps: int = 0
    """Self-fed forwards so far."""
    ranks: list[Any] = field(default_factory=list[Any])
    """The looks that the ranks of a group compare, float32 [1, slots, columns]: at one row of what the draft
    is fed, and of what fc makes of it."""
    row: int = 0
    """Which row."""
    compares: int = 0
    """How many of the last parts of the copy are such looks."""
    copy: Copy | None = None
    record: HiddenPass | None = None
    """What is told once the copy has arrived."""


class Looks:
    """Takes looks for one scheduler. Guarded as a whole: should it fail, the counts are still told."""

    def __init__(self, recorder: Recorder, loaded: Loaded, copies: Copies) -> None:
        """Look at the draft path of ``loaded``."""
        self.guard = Guard("hidden_statistics", (), recorder, within=True)
        self.guard.armed = recorder.settings.at_least(c.DETAIL_STEPS) and (
            loaded.emits or recorder.ranks is not None
        )
        self._recorder = recorder
        self._loaded = loaded
        self._copies = copies
        self._projections = recorder.settings.at_least(c.DETAIL_FULL)
        # Of a split fc each rank makes a part, which ranks need not have in common.
        self._whole_fc = type(loaded.fc).__name__ in WHOLE
        self._held: deque[tuple[int, int]] = deque()
        self._held_bytes = 0
        self._late: deque[Looking] = deque()

    def open(self, one: Pass) -> None:
        """At the begin of a pass that is looked at."""
        if not self.guard.armed:
            return
        if self._room():
            one.looking = Looking()
        else:
            self._recorder.missed[BUSY] += 1

    # --- places ---------------------------------------------------------------------------------------

    def packed(self, one: Pass, states: Any) -> None:
        """After the target packed its aux hidden states [tokens, width]."""
        if one.looking is not None:
            one.looking.aux = states

    def accepted(self, one: Pass, result: Any) -> None:
        """After the verifier: of a tree the packed states of the accepted path are looked at.

        The third of ``result`` [requests, depth + 1] are nodes of the whole batch, -1 behind the last one.
        """
        looking = one.looking
        if looking is None or looking.aux is None or one.drafted is None or one.drafted.chain:
            return
        if not self._loaded.emits:
            return
        accept_index = result[2]
        path = accept_index.clamp(min=0).reshape(-1).long()
        aux, looking.aux = looking.aux, None
        rows = aux[path]
        self._look(looking, hidden.AUX_CAPTURE, rows, self._slots(rows), stride=accept_index.shape[1])

    def fed_prefill(self, one: Pass, states: Any, batch: Any) -> None:
        """Before a draft extend after prefill: its target hidden states [tokens, width].

        ``batch.extend_lens`` and ``prefix_lens`` are the tokens of each request in this pass and before it.
        """
        looking = one.looking
        if looking is not None and states is not None:
            looking.counts = tuple(batch.extend_lens)
            looking.starts = tuple(accumulate(looking.counts, initial=0))[:-1]
            looking.positions = tuple(batch.prefix_lens)
            self._fed(looking, states, one.step)

    def fed_verify(self, one: Pass, states: Any, nodes: int) -> None:
        """Before a draft extend after verify: [requests * nodes, width], the kept rows of each in front."""
        if one.looking is not None and states is not None:
            one.looking.nodes = nodes
            self._fed(one.looking, states, one.step)

    def entered_fc(self, one: Pass, states: Any) -> None:
        """Before fc of a target-fed pass: what it takes [rows, width]."""
        looking = one.looking
        if looking is None or looking.fed is None:
            return
        if _same(states, looking.fed):
            self._told_there(looking, hidden.FC_IN, self._slots(states))
        else:
            self._look_fed(looking, hidden.FC_IN, states, self._slots(states))

    def left_fc(self, one: Pass, states: Any) -> None:
        """After fc of a target-fed pass: what it made [rows, width]."""
        looking = one.looking
        if looking is None or looking.fed is None:
            return
        if self._whole_fc and len(looking.ranks) == 1 and states.shape[0] > looking.row:
            self._compare_row(looking, states, 1)
        self._look_fed(looking, hidden.FC_OUT, states, 1)

    def started(self, one: Pass, states: Any) -> None:
        """Before a proposal: the state of each request [requests, width] that it starts from."""
        looking = one.looking
        if looking is None or one.kind != VERIFY or states is None:
            return
        if len(states.shape) == 2 and states.shape[0] == len(one.uids):
            self._look_each(looking, one, hidden.START, states, 0)

    def embedded(self, one: Pass, states: Any, *, target_fed: bool) -> None:
        """After the draft's embedding: [rows, width]."""
        looking = one.looking
        if looking is None:
            return
        if not target_fed:
            self._look_each(looking, one, hidden.EMBEDDING, states, looking.steps + 1)
        elif looking.fed is not None:
            self._look_fed(looking, hidden.EMBEDDING, states, 1)

    def carried(self, one: Pass, logits_output: Any) -> None:
        """After a self-fed forward: its ``hidden_states`` for the next one [requests * topk, width]."""
        if one.looking is not None:
            one.looking.steps += 1
            states = logits_output.hidden_states
            self._look_each(one.looking, one, hidden.CARRY, states, one.looking.steps)

    def replayed(self, one: Pass, read: Read, *, target_fed: bool) -> None:
        """After a replay of one of the draft's graphs: what was looked at inside it."""
        looking = one.looking
        if looking is None or not self._loaded.emits:
            return
        if not target_fed:
            topk = self._branches()
            for place, step, found in read(len(one.uids) * topk):
                if place in (hidden.EMBEDDING, hidden.CARRY):
                    looking.looks.append(Look(place, c.SELF_FED, step, 1, 1, found=found[::topk]))
        elif looking.fed is not None:
            for place, _, found in read(int(looking.fed.shape[0])):
                # The carry that counts is that of the rows which SGLang selects afterwards.
                if place != hidden.CARRY:
                    slots, nodes = int(found.shape[1]), looking.nodes
                    looking.looks.append(Look(place, c.TARGET_FED, 0, slots, nodes, kept=True, found=found))

    def extended(self, one: Pass, left: Any) -> None:
        """After a draft extend: the ``hidden_states`` [requests, width] that the first draft step gets.

        They are in SGLang's ``EagleDraftInput``, which it returns after a prefill and puts into the batch's
        result after verify. Then the copy begins.
        """
        looking = one.looking
        if looking is None:
            return
        states = getattr(getattr(left, "next_draft_input", left), "hidden_states", None)
        # MULTI_LAYER_EAGLE may leave what it was fed instead (``multi_layer_eagle_worker_v2.py``): no carry.
        if states is not None and states.shape[0] == len(one.uids):
            self._look_each(looking, one, hidden.CARRY, states, 0)
        self._send(looking)

    def _send(self, looking: Looking) -> None:
        """Begin to copy what was found, and let go of the engine's tensors."""
        looking.aux = looking.fed = None
        self._reduce_together([look for look in looking.looks if look.rows is not None])
        found = [look.found for look in looking.looks if look.found is not None]
        looking.compares = len(looking.ranks)
        found += looking.ranks
        if found:
            looking.copy = self._copies.start(found, [one.shape[-1] for one in found])
        looking.ranks = []
        for look in looking.looks:
            look.found = None

    # --- telling --------------------------------------------------------------------------------------

    def compare(self, one: Pass) -> tuple[Ids, ...]:
        """Return :meth:`compared`, guarded."""
        found = () if one.looking is None else self.guard.run(self.compared, one)
        return () if found is FAILED else found

    def compared(self, one: Pass) -> tuple[Ids, ...]:
        """Return what ranks compare of a verify pass: what the draft was fed, then what fc made of it.

        See :class:`specscope.records.RankSteps`. That is the first row of one request, another one in each
        step; what was not looked at is left out from the end.
        """
        looking = one.looking
        if looking is None or not looking.compares or looking.copy is None or not looking.copy.arrived():
            return ()
        parts = looking.copy.ready()
        if parts is None:
            return ()
        return tuple([_numbers(part) for part in parts[-looking.compares :]])

    def tell(
        self,
        one: Pass,
        after: str,
        mode: str,
        accepted: Sequence[int],
        before: Sequence[int],
        over: Sequence[bool] | None = None,
    ) -> None:
        """When a pass is done: ``accepted`` and ``before`` (output tokens) of a verify pass, else empty.

        Of requests that were ``over`` before it no rows are told: the engine went on from tokens that a stop
        may have cut, so that nobody knows their positions.
        """
        self.flush()
        looking, one.looking = one.looking, None
        if looking is None or not looking.looks:
            return
        if looking.copy is None:  # there was no draft extend
            self._send(looking)
        positions = looking.positions
        if not positions:
            positions = tuple([p + b - 1 for p, b in zip(one.prompt, before, strict=True)])
        single = tuple([int(not ended) for ended in over]) if over else (1,) * len(one.uids)
        kept = tuple([there * (count + 1) for there, count in zip(single, accepted, strict=False)])
        looking.record = HiddenPass(
            t_ns=one.t_ns,
            step=one.step,
            after=after,
            mode=mode,
            uids=one.uids,
            positions=positions,
            looks=tuple([self._told(look, looking, kept or single, single) for look in looking.looks]),
        )
        self._late.append(looking)
        self.flush()

    def _told(self, look: Look, looking: Looking, kept: Ids, single: Ids) -> HiddenLook:
        if look.stride:
            starts = tuple(range(0, look.stride * len(single), look.stride))
            counts = kept if look.kept else single
        else:
            starts, counts = looking.starts, looking.counts
        return HiddenLook(
            place=look.place,
            source=look.source,
            draft_step=look.draft_step,
            slots=look.slots,
            starts=starts,
            counts=counts,
            projections=self._projections and not look.summed and not look.same_as,
            summed=look.summed,
            same_as=look.same_as,
        )

    @property
    def late(self) -> bool:
        """Say whether looks wait for the device."""
        return bool(self._late)

    def flush(self) -> None:
        """Emit what has arrived, in order; what is late for too long is told without its numbers."""
        while self._late:
            looking = self._late[0]
            waits = looking.copy is not None and not looking.copy.arrived()
            if waits and len(self._late) <= WAITING:
                return
            self._late.popleft()
            self._emit(looking)

    def _emit(self, looking: Looking) -> None:
        record = looking.record
        if record is None:
            return
        parts = None if looking.copy is None else looking.copy.ready()
        told = list(record.looks)
        if parts is None:
            told = [look for look in told if look.same_as]
        else:
            arrived = iter(parts)
            for look in told:
                if not look.same_as:
                    look.data = next(arrived).data
        record.looks = tuple(told)
        if not told:
            return
        self._recorder.emit(record)
        size = sum([len(look.data) for look in told])
        self._held.append((self._recorder.emitted, size))
        self._held_bytes += size

    def _room(self) -> bool:
        """Say whether the exporter keeps up."""
        gone = self._recorder.emitted - len(self._recorder.queue)
        while self._held and self._held[0][0] <= gone:
            self._held_bytes -= self._held.popleft()[1]
        return self._held_bytes < HELD_BYTES

    # --- reductions -----------------------------------------------------------------------------------

    def _fed(self, looking: Looking, states: Any, step: int) -> None:
        looking.fed = states
        slots = self._slots(states)
        if looking.nodes and self._recorder.ranks is not None and states.shape[0] >= looking.nodes:
            looking.row = step % (states.shape[0] // looking.nodes) * looking.nodes
            self._compare_row(looking, states, slots)
        self._look_fed(looking, hidden.FED, states, slots)
        aux, looking.aux = looking.aux, None
        if aux is None:
            return
        if _same(aux, states):
            self._told_there(looking, hidden.AUX_CAPTURE, slots)
        else:
            self._look_fed(looking, hidden.AUX_CAPTURE, aux, self._slots(aux))

    def _compare_row(self, looking: Looking, states: Any, slots: int) -> None:
        row = looking.row
        looking.ranks.append(tensorstats.reduce(states[row : row + 1], slots, projections=True))

    def _told_there(self, looking: Looking, place: str, slots: int) -> None:
        if not self._loaded.emits:
            return
        kept = looking.nodes > 0
        looking.looks.append(
            Look(place, c.TARGET_FED, 0, slots, looking.nodes, kept=kept, same_as=hidden.FED)
        )

    def _look_fed(self, looking: Looking, place: str, states: Any, slots: int) -> None:
        """Look at a tensor with the rows of what the draft extend is fed."""
        rows = looking.fed.shape[0] if looking.nodes else sum(looking.counts)
        if rows and states.shape[0] >= rows:
            self._look(looking, place, states[:rows], slots, stride=looking.nodes)

    def _look(self, looking: Looking, place: str, states: Any, slots: int, *, stride: int) -> None:
        if not self._loaded.emits:
            return
        look = Look(place, c.TARGET_FED, 0, slots, stride, kept=True)
        looking.looks.append(look)
        if slots == 1 and states.numel() * states.element_size() <= SNAPSHOT_BYTES:
            look.rows = states.clone()
            return
        found = tensorstats.reduce(states, slots, projections=self._projections)
        look.summed = stride == 0 and found.numel() * found.element_size() > LOOK_BYTES
        look.found = tensorstats.combine(found, looking.starts, looking.counts) if look.summed else found

    def _look_each(self, looking: Looking, one: Pass, place: str, states: Any, draft_step: int) -> None:
        """Look at the first row of each request, in a tree that of its best branch."""
        if states is None or not self._loaded.emits:
            return
        if looking.copy is not None or (draft_step and one.kind != VERIFY):
            # The next proposal (pipeline stages draft it here), or drafted beside a prefill, as an idle rank
            # does (DP coordination): no rows of this pass.
            return
        apart, requests = self._branches() if draft_step else 1, len(one.uids)
        # Data-parallel attention pads a batch behind its last row.
        if states.shape[0] < apart * requests:
            return
        source = c.SELF_FED if draft_step else c.TARGET_FED
        rows = states[: apart * requests : apart].clone()
        looking.looks.append(Look(place, source, draft_step, 1, 1, rows=rows))

    def _reduce_together(self, looks: list[Look]) -> None:
        alike: dict[tuple[int, Any], list[Look]] = {}
        for look in looks:
            alike.setdefault((int(look.rows.shape[1]), look.rows.dtype), []).append(look)
        for group in alike.values():
            taken = [look.rows for look in group]
            # Rows are compared with the one before, which may be another look's: of each request the first
            # row's answer is not used.
            found = tensorstats.reduce(_cat(taken), 1, projections=self._projections)
            at = 0
            for look, rows in zip(group, taken, strict=True):
                look.found, look.rows = found[at : at + len(rows)], None
                at += len(rows)

    def _branches(self) -> int:
        """Return how many rows each request has in a self-fed forward."""
        return int(getattr(self._loaded.worker, "topk", None) or 1)

    def _slots(self, states: Any) -> int:
        """Return how many aux hidden states a row holds, 1 where it is no whole number of them."""
        width, each = states.shape[-1], self._loaded.target_hidden
        return width // each if each and width % each == 0 else 1


def _numbers(part: Part) -> Ids:
    """Return level and fingerprint of each slot of a row that arrived."""
    values: Any = np.frombuffer(part.data, dtype="<f4").reshape(-1, part.width)
    mean, variance = values[:, 0], values[:, 1]
    levels, units = hidden.quantise(np.sqrt(variance + mean * mean), values[:, len(tensorstats.COLUMNS) :])
    each = hidden.PROJECTIONS
    return tuple([n for slot, level in enumerate(levels) for n in (level, *units[slot * each :][:each])])


def _cat(tensors: list[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else importlib.import_module("torch").cat(tensors)


def _same(one: Any, other: Any) -> bool:
    """Say whether two tensors are one piece of memory, looked at in the same way."""
    if one is other:
        return True
    return one.data_ptr() == other.data_ptr() and (one.shape, one.dtype) == (other.shape, other.dtype)
