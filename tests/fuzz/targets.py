"""What is fuzzed: of each target the seeds, the mutation and the run of one case, which raises on a fault."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from specscope import chunks, columns, hidden, hidden_rollup, rollup
from specscope_server.ingest import metrics, traces
from specscope_server.ingest.content import Format
from specscope_server.ingest.decode import decode
from specscope_server.ingest.refusal import Refusal

from fuzz import blobs, mutate, seeds
from fuzz.case import JSON, parse
from fuzz.world import World

UNPACKERS: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "steps": ("committed", chunks.unpack_steps),
    "extends": ("fed_width", chunks.unpack_extends),
    "boundaries": ("boundary", chunks.unpack_boundaries),
    "ranks": ("proposals", chunks.unpack_ranks),
    "looks of ranks": ("hidden", lambda blob: chunks.unpack_rank_looks(blob, "hidden")),
    "prompt": ("id", chunks.unpack_prompt),
    "rollup": ("dimension", lambda blob: rollup.unpack(blob, max_raw=1 << 20)),
    "hidden": ("fingerprints", hidden.unpack),
    "hidden sums": ("looks", lambda blob: hidden_rollup.unpack(blob, max_raw=1 << 20)),
}
"""By name, the column that only such a blob has, and its unpacker: those of others ask for more columns."""
READERS: dict[str, Callable[[Any], object]] = {
    "/v1/traces": traces.read,
    "/v1/metrics": metrics.batches_of,
}


class Fault(Exception):
    """An answer that no input may cause."""


@dataclass
class Target:
    """One way in. ``outcomes`` counts what came of the cases."""

    outcomes: Counter[str] = field(default_factory=Counter[str])

    def seeds(self) -> list[bytes]:
        """Valid inputs."""
        raise NotImplementedError

    def mutate(self, data: bytes, dice: random.Random, other: Callable[[bytes], bytes] | None) -> bytes:
        """Change an input; ``other`` is the fuzzer's own mutation of bytes."""
        raise NotImplementedError

    def run(self, data: bytes) -> None:
        """Run one input.

        Raises:
            Exception: a fault.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Give back what it holds."""


class _Seeded(Target):
    """A target whose mutation starts anew now and then: what is damaged in one place hides all others."""

    def __init__(self) -> None:
        super().__init__()
        self._seeds = self.seeds()

    def mutate(self, data: bytes, dice: random.Random, other: Callable[[bytes], bytes] | None) -> bytes:
        start = dice.choice(self._seeds) if dice.random() < 0.4 else data
        return self.change(start, dice, other)

    def change(self, data: bytes, dice: random.Random, other: Callable[[bytes], bytes] | None) -> bytes:
        """Change an input in one place."""
        raise NotImplementedError


class Packed(_Seeded):
    """A packed blob through every unpacker: a :class:`CodecError`, or rows."""

    def seeds(self) -> list[bytes]:
        return seeds.blobs()

    def change(self, data: bytes, dice: random.Random, other: Callable[[bytes], bytes] | None) -> bytes:
        return other(data) if other is not None and dice.random() < 0.05 else blobs.packed(data, dice)

    def run(self, data: bytes) -> None:
        try:
            found = columns.decode(data, max_raw=blobs.INFLATED, max_rows=4096)
        except columns.CodecError:
            self.outcomes["damaged"] += 1
            return
        for name, (column, unpack) in UNPACKERS.items():
            if column in found:
                try:
                    unpack(data)
                    self.outcomes[name] += 1
                except columns.CodecError:
                    self.outcomes["refused"] += 1


class Read(_Seeded):
    """The content of an export through decoding and reading, without HTTP and store."""

    def seeds(self) -> list[bytes]:
        return [
            case.to_bytes()
            for case in seeds.exports()
            if case.path in READERS and not case.header("content-encoding")
        ]

    def change(self, data: bytes, dice: random.Random, other: Callable[[bytes], bytes] | None) -> bytes:
        return mutate.content(data, dice, other)

    def run(self, data: bytes) -> None:
        case = parse(data)
        form = Format.JSON if case.header("content-type").startswith(JSON) else Format.PROTOBUF
        path = case.path if case.path in READERS else "/v1/traces"
        try:
            message = decode(case.body, form, mutate.MESSAGES[path]())
        except Refusal:
            self.outcomes["refused"] += 1
            return
        READERS[path](message)
        self.outcomes["read"] += 1


class Export(_Seeded):
    """A request to the application: any answer below 500."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    def seeds(self) -> list[bytes]:
        return [case.to_bytes() for case in seeds.exports()]

    def change(self, data: bytes, dice: random.Random, other: Callable[[bytes], bytes] | None) -> bytes:
        return mutate.case(data, dice, other)

    def run(self, data: bytes) -> None:
        self.world = self.world or World()
        answer = self.world.ask(parse(data))
        self.outcomes[str(answer.status)] += 1
        if not 200 <= answer.status < 500:
            raise Fault(f"answered with {answer.status}: {answer.body[:300]!r}")

    def close(self) -> None:
        if self.world is not None:
            self.world.close()


TARGETS: dict[str, Callable[[], Target]] = {"packed": Packed, "read": Read, "export": Export}
