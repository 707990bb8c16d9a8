"""Spans that wait to be sent, in order, bounded in bytes: the oldest make room for the newest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan

from specscope.exporter.spans import size_of

BATCH_SPANS: Final = 512
BATCH_BYTES: Final = 2 << 20
"""Estimated bytes in one request, well under receivers' usual limit of 4 MiB."""


@dataclass(frozen=True, slots=True)
class Item:
    """A span with its place in the order and its estimated size in bytes."""

    number: int
    size: int
    span: ReadableSpan
    before: int
    """Newest record that has all its data in earlier items: settled once this item is the oldest."""


class Backlog:
    """The waiting spans. Not thread-safe: the sender holds its lock."""

    def __init__(self, limit: int) -> None:
        """Keep at most about ``limit`` bytes, and always the newest span."""
        self.limit = limit
        self.bytes = 0
        self.settling = 0
        """Newest record all of whose data has been put."""
        self._items: OrderedDict[int, Item] = OrderedDict()
        self._next = 0
        self._last_settling = 0

    def __len__(self) -> int:
        """Return how many spans wait."""
        return len(self._items)

    def __contains__(self, item: Item) -> bool:
        """Say whether an item still waits."""
        return item.number in self._items

    @property
    def settled(self) -> int:
        """Return the newest record up to which everything has left: arrived, or counted as dropped."""
        oldest = next(iter(self._items.values()), None)
        return self.settling if oldest is None else oldest.before

    def put(self, span: ReadableSpan) -> int:
        """Add a span; return how many of the oldest had to go."""
        size = size_of(span.attributes or {})  # pyright: ignore[reportArgumentType] - our own values
        before = self._last_settling if self._items else self.settling
        self._items[self._next] = Item(self._next, size, span, before)
        self._last_settling = self.settling
        self._next += 1
        self.bytes += size
        gone = 0
        while self.bytes > self.limit and len(self._items) > 1:
            self.bytes -= self._items.popitem(last=False)[1].size
            gone += 1
        return gone

    def batch(self, max_bytes: int, *, behind: Iterable[Item] = ()) -> list[Item]:
        """Return the oldest spans that fit one request, without those in ``behind``; at least one if any."""
        left_out = {item.number for item in behind}
        found: list[Item] = []
        size = 0
        for item in self._items.values():
            if item.number in left_out:
                continue
            size += item.size
            if found and (size > max_bytes or len(found) >= BATCH_SPANS):
                break
            found.append(item)
        return found

    def remove(self, items: Iterable[Item]) -> int:
        """Take items out; return how many still waited (the oldest may have gone to make room)."""
        count = 0
        for item in items:
            if self._items.pop(item.number, None) is not None:
                self.bytes -= item.size
                count += 1
        return count
