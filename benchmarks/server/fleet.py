"""A fleet of engines in a store: what each of them told in the last hours, and what it tells in 2 s.

An engine serves two requests at a time, a verify step each 25 ms (chain of 3, detail ``steps``): 80 steps a
second, 256 a request. Of the window of 300 s it has told 30 buckets of rollups by every dimension, its
ledger, 90 requests, sums of hidden states, the newest 96 chunks of 64 steps; of the two hours before a
rollup a minute; and once its configuration with the inventory of its weights.

Rows that engines have in common (rollups, ledger, requests) are told by a few of them and copied in the
database for the others; every chunk is made for its engine, so that no two are equal.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import zstandard
from specscope import convention as c
from specscope import hidden
from specscope.chunks import ExtendRow, StepRow, pack_extends, pack_steps
from specscope.hidden_rollup import Key as Place
from specscope.hidden_rollup import Sums
from specscope.rollup import Rollup, StepFacts
from specscope_server.store import schema
from specscope_server.store.port import Store
from specscope_server.store.told import (
    Batch,
    BoundaryTotal,
    Chunk,
    EngineReport,
    Heartbeat,
    ProcessFacts,
    RequestReport,
    RequestTotals,
    RollupIncrement,
)
from specscope_server.store.values import engine_uid
from sqlalchemy import Connection, literal, select

WORKSPACE: Final = "default"
ENVIRONMENT: Final = "fleet"
TEMPLATES: Final = 4
ROUND_S: Final = 2
STEP_MS: Final = 25
RUNNING: Final = 2
CHUNK: Final = 64
REQUEST_STEPS: Final = 256
WINDOW_S: Final = 300
HISTORY_MINUTES: Final = 115
CHUNKS: Final = 96
DEPTH: Final = 3
STEPS_A_ROUND: Final = RUNNING * ROUND_S * 1000 // STEP_MS
SECOND: Final = 1_000_000_000
_LAYERS: Final = 3
_PACKED: Final = 50
"""Chunks of each place in a request whose numbers are drawn; others are these under other step numbers."""
_BOUNDARIES: Final = (
    *((c.AUX_CAPTURE, ""), (c.DRAFT_EXTEND, c.TARGET_FED), (c.DRAFT_FC, c.TARGET_FED)),
    *((c.DRAFT_FORWARD, c.TARGET_FED), (c.DRAFT_FORWARD, c.SELF_FED), (c.DRAFT_PROPOSE, "")),
    *((c.TARGET_VERIFY, ""), (c.ENGINE_COMMIT, "")),
)
_PLACES: Final = (
    *(("verify", hidden.AUX_CAPTURE, 0, slot) for slot in range(_LAYERS)),
    *(("verify", hidden.FED, 0, slot) for slot in range(_LAYERS)),
    *(("prefill", hidden.FED, 0, slot) for slot in range(_LAYERS)),
    *(("verify", hidden.FC_OUT, 0, 0), ("verify", hidden.EMBEDDING, 0, 0)),
    *(("verify", hidden.CARRY, step, 0) for step in range(DEPTH)),
)
_TENSORS: Final = (
    *("model.embed_tokens.weight", "fc.weight", "lm_head.weight", "model.norm.weight"),
    *(f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    *("model.layers.0.hidden_norm.weight", "model.layers.0.input_layernorm.weight"),
)


def config() -> dict[str, Any]:
    """What an engine reports of itself: configuration and inventory of the draft's weights."""
    tensors = [
        {
            "name": name,
            "shape": [4096, 4096],
            "dtype": "bfloat16",
            "status": "loaded",
            "mean": 0.0001,
            "std": 0.021,
            "max_abs": 0.9,
            "std_to_init": 1.05,
            "hash": f"{index:032x}",
        }
        for index, name in enumerate(_TENSORS)
    ]
    return {
        "target": {"path": "served/target", "hidden_size": 4096, "layers": 32, "vocab_size": 128256},
        "draft": {"path": "served/draft", "hidden_size": 4096, "layers": 1, "vocab_size": 32000},
        "fc": {"in": 12288, "out": 4096},
        "capture": {"layer_ids": [2, 16, 29], "aux_states": _LAYERS, "enabled": True},
        "speculative": {"algorithm": "EAGLE3", "num_steps": DEPTH, "topk": 1},
        "weights": {
            "drafts": [
                {
                    "observed": True,
                    "own_checkpoint": True,
                    "missing": [],
                    "oddities": [],
                    "tensors": tensors,
                    "init_std": 0.02,
                }
            ]
        },
        "differences": [],
    }


@dataclass
class Engine:
    """One engine: its place in the fleet, and how much it has told."""

    number: int
    steps: int = 0
    seq: int = 0
    chunks: int = 0

    @property
    def uid(self) -> str:
        """Its uid in the store."""
        return engine_uid(WORKSPACE, ENVIRONMENT, self.instance)

    @property
    def instance(self) -> str:
        """Its launch."""
        return f"launch-{self.number}"


class Fleet:
    """Tells a store what its engines did; times are ns since 1970, the last told is :attr:`now_ns`."""

    def __init__(self, store: Store, engines: int, now: datetime) -> None:
        """Have ``engines`` engines, as of ``now``."""
        self._store = store
        self.now_ns = int(now.timestamp()) * SECOND
        self._began = self.now_ns - (HISTORY_MINUTES * 60 + WINDOW_S) * SECOND
        self.engines = [Engine(number) for number in range(engines)]
        self._dice = random.Random(engines)
        places = REQUEST_STEPS // CHUNK
        self._packed = [[self._pack(place * CHUNK) for _ in range(_PACKED)] for place in range(places)]

    @property
    def now(self) -> datetime:
        """The time of the last thing told."""
        return datetime.fromtimestamp(self.now_ns / SECOND, UTC)

    def fill(self, connection: Connection) -> None:
        """Tell the past of every engine; ``connection`` is one of the store's database, for the copies."""
        for engine in self.engines[:TEMPLATES]:
            for batch in self._past(engine):
                self._store.write([batch], self.now)
        for engine in self.engines[TEMPLATES:]:
            template = self.engines[engine.number % TEMPLATES]
            _copy(connection, template, engine)
            engine.steps, engine.seq = template.steps, template.seq
        connection.commit()
        for engine in self.engines:
            self._store.write([self._batch(engine, chunks=self._chunks(engine, CHUNKS))], self.now)

    def round(self, busy: Iterable[Engine], idle: Iterable[Engine] = ()) -> None:
        """Let 2 s pass, in which some engines serve and others tell that they are alive."""
        self.now_ns += ROUND_S * SECOND
        for engine in busy:
            engine.steps += STEPS_A_ROUND
            told = self._chunks(engine, STEPS_A_ROUND // CHUNK)
            batch = self._batch(
                engine,
                chunks=told,
                rollups=(self._increment(engine, self.now_ns, STEPS_A_ROUND),),
                requests=tuple(self._requests(engine, self.now_ns, RUNNING)),
                heartbeats=(self._heartbeat(engine, self.now_ns),),
            )
            self._store.write([batch], self.now)
        for engine in idle:
            self._store.write(
                [self._batch(engine, heartbeats=(self._heartbeat(engine, self.now_ns),))], self.now
            )

    def pass_by(self, seconds: int) -> None:
        """Let time pass in which nobody tells anything."""
        self.now_ns += seconds * SECOND

    def _batch(self, engine: Engine, **told: Any) -> Batch:
        process = ProcessFacts(
            workspace=WORKSPACE,
            environment=ENVIRONMENT,
            instance=engine.instance,
            process_uid="0" * 32,
            role="scheduler",
            pid=1,
            start_ns=self._began,
            tp=0,
            dp=0,
            pp=0,
            serving_role="both",
            service_name="",
            engine_name="sglang",
            engine_version="0.5.23",
            tracer_version="0.1.0",
            detail="steps",
        )
        return Batch(process, **told)

    def _past(self, engine: Engine) -> Iterator[Batch]:
        report = EngineReport(self._began, "start", "meta-llama/Llama-3.1-8B-Instruct", True, config())
        yield self._batch(engine, engines=(report,))
        rate = 1000 * RUNNING // STEP_MS
        for minute in range(HISTORY_MINUTES):
            engine.steps += rate * 60
            at = self._began + minute * 60 * SECOND
            yield self._batch(
                engine,
                rollups=(self._increment(engine, at, rate * 60),),
                heartbeats=(self._heartbeat(engine, at),),
            )
        for second in range(0, WINDOW_S, 10):
            engine.steps += rate * 10
            at = self.now_ns - (WINDOW_S - second) * SECOND
            yield self._batch(
                engine,
                rollups=(self._increment(engine, at, rate * 10),),
                requests=tuple(self._requests(engine, at, 3)),
                heartbeats=(self._heartbeat(engine, at),),
            )

    def _increment(self, engine: Engine, at: int, steps: int) -> RollupIncrement:
        """What ``steps`` verify steps add; those of a minute are drawn as those of two seconds."""
        rollup, drawn = Rollup(), min(steps, STEPS_A_ROUND)
        for _ in range(drawn):
            accepted = self._accepted()
            facts = StepFacts(
                *(DEPTH, DEPTH, accepted, 1, accepted + 1),
                context=self._dice.choice((100, 300, 700, 1500)),
                row=self._dice.randrange(RUNNING),
                batch_size=RUNNING,
                mode="graph",
                cached_tokens=self._dice.choice((0, 64)),
                temperature=self._dice.choice((0.0, 0.7)),
                copy_like=self._dice.random() < 0.2,
            )
            rollup.add(at, facts)
        [(bucket, rows)] = rollup.take()
        for counts in rows.values():
            for name in counts.__slots__:
                setattr(counts, name, getattr(counts, name) * steps // drawn)
        engine.seq += 1
        return RollupIncrement(engine.seq, bucket, rows, self._looks(steps))

    def _accepted(self) -> int:
        accepted = 0
        while accepted < DEPTH and self._dice.random() < (0.72, 0.66, 0.6)[accepted]:
            accepted += 1
        return accepted

    def _looks(self, steps: int) -> dict[Place, Sums]:
        """Sums over looks at every place: one row each, of a size of its own."""
        found: dict[Place, Sums] = {}
        for after, place, draft_step, slot in _PLACES:
            level = 5.0 + slot + self._dice.gauss(0, 0.01)
            source = c.SELF_FED if draft_step else c.TARGET_FED
            found[place, source, draft_step, slot, after, "graph"] = Sums(
                looks=steps,
                rows=steps,
                levelled=steps,
                sum=steps * 0.4,
                sum_square=steps * 4.0**level,
                max_abs=30 * 2.0**level,
                sum_level=steps * level,
                sum_level2=steps * (level * level + 0.1),
            )
        return found

    def _requests(self, engine: Engine, at: int, count: int) -> Iterator[RequestReport]:
        for row in range(count):
            number = engine.steps // REQUEST_STEPS * 4 + row
            totals = RequestTotals(
                **dict.fromkeys(("verify_steps", "drafted_nodes", "bonus"), REQUEST_STEPS),
                drafted_depth=REQUEST_STEPS * DEPTH,
                accepted=REQUEST_STEPS * 3 // 2,
                committed=REQUEST_STEPS * 5 // 2,
                zero_accept_steps=REQUEST_STEPS // 4,
                prefill_passes=1,
            )
            yield RequestReport(
                uid=_request_uid(number),
                rid=f"chatcmpl-{number}",
                trace_id=_request_uid(number),
                state="finished",
                kind=c.KIND_USER,
                model="meta-llama/Llama-3.1-8B-Instruct",
                arrival_ns=at + row * SECOND // 10,
                end_ns=at + row * SECOND // 10 + REQUEST_STEPS * STEP_MS * 1_000_000,
                prompt_tokens=500,
                output_tokens=REQUEST_STEPS * 5 // 2,
                cached_tokens=64 * (number % 2),
                temperature=0.0,
                max_tokens=2048,
                finish_reason="stop",
                queue_s=0.01,
                first_token_s=0.2,
                totals=totals,
            )

    def _chunks(self, engine: Engine, count: int) -> tuple[Chunk, ...]:
        """The newest chunks, each of a request that ``_requests`` told of, the last one ending now."""
        found: list[Chunk] = []
        request = engine.steps // REQUEST_STEPS * 4
        for index in range(count):
            engine.chunks += 1
            end = self.now_ns - (count - 1 - index) * CHUNK * STEP_MS * 1_000_000 // RUNNING
            place = engine.chunks % (REQUEST_STEPS // CHUNK)
            steps, extends = self._dice.choice(self._packed[place])
            number = (engine.number << 32) + engine.chunks * CHUNK
            found.append(
                Chunk(
                    uid=_request_uid(request if count < CHUNKS else request - index % 8 * 4),
                    seq=engine.chunks,
                    first_step=place * CHUNK,
                    start_ns=end - CHUNK * STEP_MS * 1_000_000,
                    end_ns=end,
                    steps=_numbered(steps, number),
                    extends=_numbered(extends, number),
                )
            )
        return tuple(found)

    def _pack(self, first: int) -> tuple[bytes, bytes]:
        """Steps of a chunk from the ``first`` of its request on, and the draft extends after them."""
        steps = [self._step(place, self.now_ns, first + place) for place in range(CHUNK)]
        return pack_steps(steps, tokens=False), pack_extends([self._extend(step) for step in steps])

    def _step(self, number: int, end: int, index: int) -> StepRow:
        accepted = self._accepted()
        refused = accepted < DEPTH
        return StepRow(
            step=number,
            t=end - (CHUNK - index % CHUNK) * STEP_MS * 1_000_000,
            mode="graph",
            batch_size=RUNNING,
            row=number % RUNNING,
            context=500 + index * 3,
            drafted_depth=DEPTH,
            drafted_nodes=DEPTH,
            accepted=accepted,
            bonus=1,
            committed=accepted + 1,
            overshoot=0,
            weight_version=0,
            copy_like=int(self._dice.random() < 0.2),
            ids_min=self._dice.randrange(1000),
            ids_max=self._dice.randrange(20_000, 32_000),
            ids_distinct=DEPTH,
            ids_mode_share=1 / DEPTH,
            ids_even_share=self._dice.choice((0.0, 1 / 3, 2 / 3, 1.0)),
            ids_below_zero=0,
            ids_above_vocab=0,
            ids_repeats_last=int(self._dice.random() < 0.02),
            shift_hits=[0, 0, accepted, 0, 0],
            shift_of=[DEPTH, DEPTH, accepted + refused, DEPTH, DEPTH],
            draft_top1=[self._dice.randrange(2000, 9999) for _ in range(DEPTH)],
            draft_entropy=[self._dice.randrange(100, 4000) for _ in range(DEPTH)],
            target_rank=self._dice.randrange(1, 50) if refused else None,
            target_prob=0.05 if refused else None,
            draft_prob=0.02 if refused else None,
            outside_draft_vocab=0,
        )

    def _extend(self, step: StepRow) -> ExtendRow:
        return ExtendRow(
            step=step.step,
            t=step.t,
            after="verify",
            mode="graph",
            fed_width=12288,
            dtype="bfloat16",
            aux_states=_LAYERS,
            fc_in=12288,
            fc_ran=1,
            rows=step.accepted + 1,
            mean=0.01,
            std=self._dice.uniform(0.8, 1.2),
            rms=self._dice.uniform(0.8, 1.2),
            max_abs=self._dice.uniform(8, 30),
            nonfinite=0,
            zero_rows=0,
        )

    def _heartbeat(self, engine: Engine, at: int) -> Heartbeat:
        passes = {f"{kind}|{RUNNING}-3": engine.steps for kind in (c.PASS_STEP, c.PASS_DECODE)}
        return Heartbeat(
            event_ns=at,
            boundaries=tuple(
                BoundaryTotal(name, source, mode, *counts)
                for name, source in _BOUNDARIES
                for mode, counts in (("", (engine.steps, None)), ("graph", (None, engine.steps)))
            ),
            armed={name: (True, "") for name, _ in _BOUNDARIES},
            arming=dict.fromkeys((name for name, _ in _BOUNDARIES), c.ARMING_ARMED),
            requests={c.KIND_USER: engine.steps // REQUEST_STEPS},
            queued=0,
            engine_thread_ns=engine.steps * 1000,
            passes=passes,
            pass_ns={label: count * 8_000_000 for label, count in passes.items()},
            speculation=True,
        )


def _request_uid(number: int) -> str:
    return f"{max(number, 0):032x}"


def _numbered(blob: bytes, step: int) -> bytes:
    """The same chunk from another engine step on: packed anew, since its bytes are another chunk's."""
    header = struct.Struct("<4sBBHII")
    magic, version, codec, zero, length, _ = header.unpack_from(blob)
    body = bytearray(zstandard.ZstdDecompressor().decompress(blob[header.size :], length))
    # Label, kind, flags and length of the column, then the first value of its differences.
    at = body.index(b"\x04step") + 11
    body[at : at + 8] = step.to_bytes(8, "little")
    told = header.pack(magic, version, codec, zero, length, zlib.crc32(body))
    return told + zstandard.ZstdCompressor(level=3).compress(bytes(body))


def _copy(connection: Connection, template: Engine, engine: Engine) -> None:
    """Give an engine all rows of another one but its chunks."""
    for table in schema.metadata.sorted_tables:
        if "engine_uid" not in table.c or table is schema.step_chunk:
            continue
        changed = {"engine_uid": literal(engine.uid)}
        if table is schema.engine:
            changed["instance"] = literal(engine.instance)
        names = [column.name for column in table.c if column.name != "id"]
        chosen = select(*(changed.get(name, table.c[name]) for name in names))
        connection.execute(
            table.insert().from_select(names, chosen.where(table.c.engine_uid == template.uid))
        )
