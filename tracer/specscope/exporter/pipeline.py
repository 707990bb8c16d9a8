"""Records in, finished spans out: request state, chunks and rollups of one engine process."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan

from specscope import chunks, expand, hidden_rollup, packed_rows, rollup
from specscope import convention as c
from specscope.exporter import confidence, facts, fed, hidden_rows, hidden_sums
from specscope.exporter.requests import Chunk, PassKinds, RequestState, RequestTable
from specscope.exporter.spans import Attributes, Spans
from specscope.exporter.tokens import TokenStream
from specscope.frames import Beat, Hello
from specscope.records import (
    DraftExtend,
    EngineFacts,
    HiddenPass,
    PrefillPass,
    RankSteps,
    Record,
    RequestFinished,
    RequestStarted,
    VerifyBatch,
    VerifyStep,
)

_logger = logging.getLogger("specscope.exporter")

SECOND: Final = 1_000_000_000
CHUNK_NS: Final = SECOND
ROLLUP_NS: Final = SECOND
RETELL_NS: Final = 5 * SECOND
"""A running request's span, with its boundary counts, is sent again this often while it changes."""
SEQ_NS: Final = SECOND // 10
"""Where an earlier exporter may have used sequence numbers, they go on at the process' age in this unit:
above all that can have been used, and in 31 bits for six years."""
HIDDEN_RAW: Final = 256 << 10
"""Bytes before compression of one chunk's hidden states, fewer than hidden.MAX_ROWS rows; 64 steps of a chain
of 3 with fingerprints are reckoned as 180 KiB."""

BROKEN: Final = "record_error"
ODD_TREE: Final = "draft_tree"
EVICTED: Final = "request_evicted"
HIDDEN_KEYS: Final = "hidden_keys"


class Pipeline:
    """Turns the records of one process into spans, which ``out`` takes. Not thread-safe."""

    def __init__(
        self, hello: Hello, out: Callable[[ReadableSpan], None], *, codec: int | None = None
    ) -> None:
        """Speak for ``hello``; ``codec`` as in :func:`specscope.columns.encode`."""
        self.spans = Spans(hello)
        self.beat: Beat | None = None
        """The last heartbeat."""
        self.facts: EngineFacts | None = None
        self.taken = 0
        """Records so far."""
        self.dropped: Counter[str] = Counter()
        self._settings = hello.settings
        self._anchor = hello.anchor
        self._out = out
        self._codec = codec
        self._requests = RequestTable()
        self._kinds = PassKinds()
        self._open: OrderedDict[str, RequestState] = OrderedDict()
        self._rollup = rollup.Rollup()
        self._hidden_rollup = hidden_rollup.HiddenRollup()
        self._rollup_seq = 0
        self._fed = fed.LastFed()
        self._hidden_rows = hidden_rows.HiddenRows()
        self._start_ns = hello.start_ns
        self._rolled_ns = 0
        self._rolled_record = 0
        self._now = 0
        self._complained = False

    # --- in ---------------------------------------------------------------------------------------

    def take(self, record: Record, now_ns: int) -> None:
        """Take one record; ``now_ns`` is this process' monotonic clock. A broken record is counted."""
        self._now = now_ns
        self.taken += 1
        try:
            if isinstance(record, VerifyBatch):
                self._verify(expand.step(record, self._odd))
            elif isinstance(record, VerifyStep):
                self._verify(record)
            elif isinstance(record, DraftExtend):
                self._extend(record)
            elif isinstance(record, HiddenPass):
                self._hidden(record)
            elif isinstance(record, PrefillPass):
                self._prefill(record)
            elif isinstance(record, RequestStarted):
                self._started(record, whole=True)
            elif isinstance(record, RequestFinished):
                self._finished(record)
            elif isinstance(record, RankSteps):
                self._ranks(record)
            else:
                self.engine(record, 0)
        except Exception as error:  # noqa: BLE001 - one broken record must not cost the others
            self.broken(type(record).__name__, error)

    def _odd(self, error: ValueError) -> None:
        """Count drafts that are no tree, or tokens that are in none: the counts of the step stand."""
        self.dropped[ODD_TREE] += 1
        if not self._complained:
            self._complained = True
            _logger.warning("specscope exporter: a draft tree: %s", error)

    def broken(self, what: str, error: Exception) -> None:
        """Count a record or request that cannot be told; the first one is logged."""
        self.dropped[BROKEN] += 1
        if not self._complained:
            self._complained = True
            _logger.warning("specscope exporter: %s: %s: %s", what, type(error).__name__, error)

    def engine(self, record: EngineFacts, number: int) -> None:
        """Take the ``number``-th engine record of the process; telling one again changes nothing."""
        self.facts = record
        self._out(self.spans.engine(record, number, self._anchor))

    def resume(self, record: RequestStarted, now_ns: int) -> None:
        """Take the start of a request whose earlier steps another exporter had."""
        self._now = now_ns
        self._started(record, whole=False)

    def take_beat(self, beat: Beat) -> None:
        """Take a heartbeat: newer clocks and counts."""
        self.beat, self._anchor = beat, beat.anchor

    def _state(self, uid: str, wall_ns: int) -> RequestState:
        state = self._requests.get(uid)
        if state is None:
            state, gone = self._requests.add(uid)
            state.first_wall_ns = state.last_wall_ns = wall_ns
            state.whole = False
            state.next_chunk = self._age(self._anchor.wall(self._now))
            if gone is not None:
                self.dropped[EVICTED] += 1
                self._close(gone)
        state.last_wall_ns = max(state.last_wall_ns, wall_ns)
        state.changed = True
        return state

    def _age(self, wall_ns: int) -> int:
        return max(0, (wall_ns - self._start_ns) // SEQ_NS)

    def _started(self, record: RequestStarted, *, whole: bool) -> None:
        known = self._requests.get(record.uid) is not None
        state = self._state(record.uid, self._anchor.wall(record.t_ns))
        # The stream keeps the prompt in 20 KiB; as a tuple it takes up to 160 KiB for each of 8192 requests.
        state.started = dataclasses.replace(record, prompt_ids=None, prompt=None)
        if not known:
            state.first_wall_ns = record.arrival_ns or state.first_wall_ns
            if whole:
                state.whole, state.next_chunk = True, 0
                state.prompt = self._prompt(record)
            state.stream = TokenStream(expand.prompt(record) if whole else None)

    def _prompt(self, record: RequestStarted) -> bytes | None:
        """Return the packed prompt where it may be told and all of it is known."""
        if not self._settings.at_least(c.DETAIL_TOKENS) or record.prompt_tokens > chunks.MAX_PROMPT:
            return None
        ids = expand.whole_prompt(record)
        return chunks.pack_prompt(ids, codec=self._codec) if ids else None

    def _prefill(self, record: PrefillPass) -> None:
        wall = self._anchor.wall(record.t_ns)
        kind = self._kinds.number(record.expected, record.crossed)
        for uid, cached in zip(record.uids, record.cached, strict=True):
            state = self._state(uid, wall)
            state.totals.prefills += 1
            state.passes[kind] += 1
            # Later chunks of a chunked prefill tell the same hit again, or 0.
            state.cached = max(cached, state.cached or 0)

    def _verify(self, record: VerifyStep) -> None:
        wall = self._anchor.wall(record.t_ns)
        kind = self._kinds.number(record.expected, record.crossed)
        for index, uid in enumerate(record.uids):
            state = self._state(uid, wall)
            overshoot = bool(record.overshoot) and record.overshoot[index]
            row = chunks.StepRow(
                step=record.step,
                t=wall,
                mode=record.mode,
                batch_size=record.batch_size,
                row=record.rows[index],
                context=record.context[index],
                drafted_depth=record.drafted_depth[index],
                drafted_nodes=record.drafted_nodes[index],
                accepted=record.accepted[index],
                bonus=record.bonus[index],
                committed=record.committed[index],
                overshoot=int(overshoot),
                weight_version=record.weight_version,
            )
            stream = state.stream
            if stream is not None and record.roots is not None and not overshoot:
                if stream.knows_prompt and stream.at(record.context[index] - 1) is None:
                    row.root = record.roots[index]
                stream.reach(record.context[index], record.roots[index])
            if stream is not None and (copied := stream.copies()) is not None:
                row.copy_like = int(copied)
            chunk = self._chunk(state) if self._settings.at_least(c.DETAIL_STEPS) else None
            if chunk is not None:
                bits = None if self.facts is None else self.facts.draft_ids
                confidence.add(row, record, index, state.first, bits)
                self._token_facts(record, index, row, stream, chunk)
                chunk.steps.append(row)
            state.first = None
            if overshoot:
                state.totals.overshoot += 1
            else:
                state.passes[kind] += 1
                self._count(state, row, wall)
                _follow(stream, record, index)
            if chunk is not None and len(chunk.steps) >= chunks.MAX_STEPS:
                self._close(state)

    def _token_facts(
        self, record: VerifyStep, index: int, row: chunks.StepRow, stream: TokenStream | None, chunk: Chunk
    ) -> None:
        if record.draft_tokens is not None:
            drafts = record.draft_tokens[index]
            vocab = None if self.facts is None else self.facts.config.get("vocab_size")
            last = None if stream is None else stream.at(stream.length - 1)
            facts.add_id_facts(row, drafts, vocab if isinstance(vocab, int) else None, last)
            parents = None if record.parents is None else record.parents[index]
            if stream is not None and record.output_ids is not None and not row.overshoot:
                chunk.drafts.append((row, facts.by_depth(drafts, parents), stream.length))
        if self._settings.at_least(c.DETAIL_TOKENS):
            for name in chunks.TOKEN_COLUMNS:
                values = getattr(record, name)
                if values is not None:
                    setattr(row, name, list(values[index]))

    def _count(self, state: RequestState, row: chunks.StepRow, wall_ns: int) -> None:
        totals = state.totals
        totals.verify_steps += 1
        totals.drafted_depth += row.drafted_depth
        totals.drafted_nodes += row.drafted_nodes
        totals.accepted += row.accepted
        totals.bonus += row.bonus
        totals.committed += row.committed
        totals.zero_steps += row.drafted_depth > 0 and row.accepted == 0
        if not state.counts:
            return
        self._rollup.add(
            wall_ns,
            rollup.StepFacts(
                drafted_depth=row.drafted_depth,
                drafted_nodes=row.drafted_nodes,
                accepted=row.accepted,
                bonus=row.bonus,
                committed=row.committed,
                context=row.context,
                row=row.row,
                batch_size=row.batch_size,
                mode=row.mode,
                cached_tokens=state.cached,
                temperature=None if state.started is None else state.started.temperature,
                copy_like=None if row.copy_like is None else bool(row.copy_like),
            ),
        )

    def _extend(self, record: DraftExtend) -> None:
        wall = self._anchor.wall(record.t_ns)
        kind = self._kinds.number(record.expected, record.crossed)
        first = confidence.first(record)
        found = self._fed.of(record.step, record.after)
        for index, uid in enumerate(record.uids):
            state = self._state(uid, wall)
            state.passes[kind] += 1
            state.first = None if first is None else first[index]
            if not self._settings.at_least(c.DETAIL_STEPS):
                continue
            row = chunks.ExtendRow(
                step=record.step,
                t=wall,
                after=record.after,
                mode=record.mode,
                fed_width=record.fed_width,
                dtype=record.dtype,
                aux_states=record.aux_states,
                fc_in=record.fc_in,
                fc_ran=record.fc_ran,
            )
            if uid in found:
                found[uid].fill(row)
            chunk = self._chunk(state)
            chunk.extends.append(row)
            if len(chunk.extends) >= chunks.MAX_EXTENDS:
                self._close(state)

    def _hidden(self, record: HiddenPass) -> None:
        if not self._settings.at_least(c.DETAIL_STEPS):
            return
        wall = self._anchor.wall(record.t_ns)
        reduced = hidden_rows.reduce(record)
        self._fed.add(record, reduced)
        parts = self._hidden_rows.parts(record, reduced)
        # Before any of them is taken: a pass is told whole, rows and sums, or not at all.
        most = max([part.raw for part in parts if part is not None], default=0)
        if most > packed_rows.MAX_RAW:
            raise ValueError(f"{most} bytes of hidden states of one request in one pass")
        counted = np.zeros(len(parts), dtype=bool)
        for index, (uid, part) in enumerate(zip(record.uids, parts, strict=True)):
            if part is None:
                continue
            state = self._state(uid, wall)
            counted[index] = state.counts
            chunk = self._chunk(state)
            if chunk.hidden and chunk.hidden_raw + part.raw > HIDDEN_RAW:
                self._close(state)
                chunk = self._chunk(state)
            chunk.hidden.append(part)
            chunk.hidden_raw += part.raw
            chunk.looked_ns.append(wall)
        for key, sums in hidden_sums.of(record, reduced, counted):
            if not self._hidden_rollup.add(wall, key, sums):
                self.dropped[HIDDEN_KEYS] += 1

    def _finished(self, record: RequestFinished) -> None:
        state = self._state(record.uid, self._anchor.wall(record.t_ns))
        state.finished = record
        self._close(state)
        state.stream = None
        self._requests.end(state)
        self._tell(state)

    def _ranks(self, record: RankSteps) -> None:
        packed = chunks.pack_ranks(
            record.steps,
            record.proposals,
            record.accepts,
            record.hidden,
            record.fc_out,
            codec=self._codec,
        )
        self._out(self.spans.ranks(record, packed, self._anchor))

    # --- out --------------------------------------------------------------------------------------

    def _chunk(self, state: RequestState) -> Chunk:
        if state.chunk is None:
            state.chunk = Chunk(self._now, self.taken, state.totals.verify_steps)
            self._open[state.uid] = state
        return state.chunk

    def _close(self, state: RequestState) -> None:
        """Send the request's open chunk, if it has one."""
        chunk, state.chunk = state.chunk, None
        self._open.pop(state.uid, None)
        if chunk is None:
            return
        for row, levels, start in chunk.drafts:
            if state.stream is not None:
                facts.add_shift_match(row, levels, state.stream, start)
        payload: Attributes = {}
        if chunk.steps:
            tokens = self._settings.at_least(c.DETAIL_TOKENS)
            payload[c.CHUNK_STEPS] = chunks.pack_steps(chunk.steps, tokens=tokens, codec=self._codec)
        if chunk.extends:
            payload[c.CHUNK_EXTENDS] = chunks.pack_extends(chunk.extends, codec=self._codec)
        if chunk.hidden:
            try:
                payload[c.CHUNK_HIDDEN] = self._hidden_rows.pack(chunk.hidden, codec=self._codec)
            except ValueError as error:  # the steps beside them stand
                self.broken(f"hidden states of request {state.uid}", error)
        seq, state.next_chunk = state.next_chunk, state.next_chunk + 1
        if state.prompt is not None and seq == 0:
            payload[c.CHUNK_PROMPT], state.prompt = state.prompt, None
        times = [row.t for row in chunk.steps] + [row.t for row in chunk.extends] + chunk.looked_ns
        self._out(
            self.spans.steps(state, seq, chunk.first_step, payload, (min(times), max(times)), self._anchor)
        )

    def _tell(self, state: RequestState) -> None:
        """Send the request span as it stands."""
        expected, observed = self._kinds.sum(state.passes)
        blob = chunks.pack_boundaries(expected, observed, codec=self._codec)
        state.told_ns, state.changed = self._now, False
        self._out(self.spans.request(state, blob, self._anchor))

    def tick(self, now_ns: int, *, last: bool = False) -> int:
        """Send what is due; call it several times a second. ``last``: send everything.

        Returns the number of the newest record of which nothing is held back any more.
        """
        self._now = now_ns
        due = now_ns - CHUNK_NS
        while self._open:
            state = next(iter(self._open.values()))
            if not last and state.chunk is not None and state.chunk.opened_ns > due:
                break
            self._guard(state, self._close)
        if last or now_ns - self._rolled_ns >= ROLLUP_NS:
            self._rolled_ns, self._rolled_record = now_ns, self.taken
            self._roll()
            for state in self._requests:
                if state.changed and self._retell(state, last=last):
                    self._guard(state, self._tell)
        held = next((s.chunk for s in self._open.values() if s.chunk is not None), None)
        return self._rolled_record if held is None else min(self._rolled_record, held.first_record - 1)

    def _retell(self, state: RequestState, *, last: bool) -> bool:
        if (
            last
            or state.told_ns < 0
            or state.finished is not None
            or not self._settings.at_least(c.DETAIL_STEPS)
        ):
            return True
        return self._now - state.told_ns >= RETELL_NS

    def _guard(self, state: RequestState, action: Callable[[RequestState], None]) -> None:
        try:
            action(state)
        except Exception as error:  # noqa: BLE001 - one broken request must not cost the others
            self.broken(f"request {state.uid}", error)
            state.changed = False

    def _roll(self) -> None:
        wall_ns = self._anchor.wall(self._now)
        self._rollup_seq = max(self._rollup_seq, self._age(wall_ns))
        steps, looks = dict(self._rollup.take()), self._hidden_rollup.take()
        for bucket in sorted({*steps, *looks}):
            rows = rollup.pack(steps.get(bucket, {}), codec=self._codec)
            sums = looks.get(bucket)
            told = None if sums is None else hidden_rollup.pack(sums, codec=self._codec)
            self._out(self.spans.rollup(self._rollup_seq, bucket, rows, told, wall_ns, self._anchor))
            self._rollup_seq += 1


def _follow(stream: TokenStream | None, record: VerifyStep, index: int) -> None:
    """Add what a step committed to the request's context."""
    if stream is None:
        return
    if record.output_ids is None:
        stream.skip(record.committed[index])
    else:
        stream.append(record.output_ids[index])
