"""A collector between tracer and server: it batches anew, splits, reorders, repeats and changes the protocol.

None of that may change a row. What the hop does is drawn from a seed, and done to real messages.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from serverkit import exports, otlp
from serverkit.live import Live, serving
from serverkit.tables import NOT_INGESTED
from specscope import convention as c
from specscope_server.store import schema
from storekit.dump import Dump, dump

REQUESTS = 12
NS = 1_000_000_000
WHEN = ("received_ns", "offset_ns")
"""Ends of the names of columns that say when the server heard of a thing, or compare that with a clock."""


def told() -> list[Message]:
    """What an engine's processes and a tool beside it tell, in the order in which it happened."""
    found: list[Message] = [otlp.traces(otlp.engine_span())]
    # The heartbeat says its time in seconds as a double, its points in ns: they are the same to 0.3 µs, and
    # exactly so at whole seconds. A hop that takes them apart leaves gauges with the time of their points.
    beat_ns = otlp.now_ns() // NS * NS - REQUESTS * NS
    for number in range(REQUESTS):
        running = otlp.request_span(
            number,
            **{
                c.REQUEST_STATE: c.STATE_RUNNING,
                c.REQUEST_VERIFY_STEPS: 1,
                c.REQUEST_ACCEPTED: 1,
                c.GEN_AI_OUTPUT_TOKENS: None,
                c.GEN_AI_FINISH_REASONS: None,
            },
        )
        found += [
            otlp.traces(running),
            otlp.traces(otlp.steps_span(number), otlp.rollup_span(number)),
            otlp.traces(otlp.request_span(number)),
            otlp.traces(otlp.request_span(number + 100), scope="another.tool"),
            otlp.metrics(*otlp.heartbeat_metrics(beat_ns + number * NS, expected=9 + number)),
            exports.logs(exports.log_record(number), exports.log_record(number + 100)),
        ]
    return found


def split(message: Any) -> Iterator[Any]:
    """Take an export apart: one span, metric or record in each, with its resource and scope."""
    [resources] = [field.name for field, _ in message.ListFields()]
    for resource in getattr(message, resources):
        scopes = resources.replace("resource_", "scope_")
        for scope in getattr(resource, scopes):
            [items] = [
                name
                for name in ("spans", "metrics", "log_records")
                if name in scope.DESCRIPTOR.fields_by_name
            ]
            for item in getattr(scope, items):
                single = type(message)()
                around = getattr(single, resources).add()
                around.resource.CopyFrom(resource.resource)
                within = getattr(around, scopes).add()
                within.scope.CopyFrom(scope.scope)
                getattr(within, items).add().CopyFrom(item)
                yield single


def batched(parts: Sequence[Any], chance: random.Random) -> Iterator[Any]:
    """Put exports of one signal together, a random number at a time, as a batch processor does."""
    left = list(parts)
    while left:
        batch = type(left[0])()
        for part in left[: chance.randint(1, 9)]:
            batch.MergeFrom(part)
        del left[: sum(1 for _ in split(batch))]
        yield batch


def hop(messages: Sequence[Message], seed: int) -> list[Message]:
    """What a collector makes of them: every item apart, some twice, in any order, in new batches."""
    chance = random.Random(seed)
    out: list[Message] = []
    for kind in {type(message) for message in messages}:
        parts = [part for message in messages if type(message) is kind for part in split(message)]
        parts += chance.sample(parts, len(parts) // 3)
        chance.shuffle(parts)
        out += batched(parts, chance)
    chance.shuffle(out)
    return out


def signal_of(message: Message) -> str:
    return next(name for name in exports.NAMES if isinstance(message, type(exports.good(name))))


def send(live: Live, to: grpc.Channel | None, message: Message) -> None:
    name = signal_of(message)
    if to is None:
        live.export(message, exports.PATHS[name]).raise_for_status()
    else:
        exports.send(to, name, message, compression=grpc.Compression.Gzip)


def stored(url: str, messages: Sequence[Message], *, over_grpc: bool, clients: int = 1) -> Dump:
    """The tables after a server of their own took the messages."""
    with (
        serving(url, grpc=True) as live,
        exports.channel(live.settings.grpc_address) as to,
        ThreadPoolExecutor(clients) as pool,
    ):
        list(pool.map(partial(send, live, to if over_grpc else None), messages))
    return ingested(dump(url))


def ingested(tables: Dump) -> Dump:
    """What the receiver wrote, whenever it did so."""
    found: Dump = {}
    for table in schema.metadata.sorted_tables:
        if table.name not in NOT_INGESTED:
            kept = [n for n, column in enumerate(table.columns) if not column.name.endswith(WHEN)]
            found[table.name] = sorted((tuple(row[n] for n in kept) for row in tables[table.name]), key=repr)
    return found


def differences(direct: Dump, hopped: Dump) -> dict[str, Any]:
    """By table: rows of the one alone, rows of the other alone."""
    return {
        name: ([r for r in direct[name] if r not in hopped[name]], [r for r in hopped[name] if r not in rows])
        for name, rows in direct.items()
        if rows != hopped[name]
    }


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Dump:
    """The tables when nothing is in between."""
    return stored(f"sqlite:///{tmp_path_factory.mktemp('direct') / 'store.db'}", told(), over_grpc=False)


@pytest.mark.parametrize(
    ("over_grpc", "clients"), [(False, 1), (True, 4)], ids=["http one by one", "grpc four at once"]
)
def test_a_collector_in_between_changes_no_row(
    direct: Dump, store_url: str, over_grpc: bool, clients: int
) -> None:
    hopped = hop(told(), seed=clients)
    assert sum(len(list(split(m))) for m in hopped) > sum(len(list(split(m))) for m in told())
    found = stored(store_url, hopped, over_grpc=over_grpc, clients=clients)
    assert differences(direct, found) == {}
    assert all(direct[name] for name in ("request", "step_chunk", "rollup_10s", "span", "log_record"))
