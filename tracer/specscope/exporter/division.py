"""Finds the spans of a batch that a receiver cannot take, with a bounded number of requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from specscope.exporter.backlog import Item
from specscope.exporter.link import Answer

POSTS: Final = 32
"""Requests spent on dividing one batch: to find one bad span among 512 takes 18."""
AGAIN: Final = 2
"""Further requests for what failed and will not be divided any more: an error may pass."""
RECENT: Final = 6
"""Requests among the last of which one must have been taken, so that the others' failure is their own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch: the rest of it was taken, or not tried (when the receiver went away)."""

    rejected: list[Item]
    """Parts that the receiver says it will never take."""
    failed: list[Item]
    """Parts that it answered with another error."""
    last: Answer
    """The last answer that was not a success."""
    works: bool = False
    """The receiver was taking other parts to the end."""


class _Gone(Exception):
    """Nobody answers any more, or there is no time left."""


class _Division:
    def __init__(self, send: Callable[[Sequence[Item]], Answer], answer: Answer, over: Callable[[], bool]):
        self._send, self._over = send, over
        self.last = answer
        self.posts = self._taken_at = 0

    def post(self, part: Sequence[Item]) -> Answer:
        if self._over():
            raise _Gone
        self.posts += 1
        found = self._send(part)
        if found.taken:
            self._taken_at = self.posts
            return found
        self.last = found
        if not found.answered:
            raise _Gone
        return found

    def fails_again(self, part: Sequence[Item]) -> bool:
        return not any(self.post(part).taken for _ in range(AGAIN))

    @property
    def works(self) -> bool:
        return bool(self._taken_at) and self.posts - self._taken_at < RECENT


def divide(
    send: Callable[[Sequence[Item]], Answer], batch: list[Item], answer: Answer, over: Callable[[], bool]
) -> Outcome:
    """Send the halves of ``batch``, to which ``answer`` was given, the halves of those that fail, and so on.

    Broad before deep, so that :data:`POSTS` requests go where they save most: what is left undivided then
    counts as its last answer says. ``over`` says that there is no time left.
    """
    rejected: list[Item] = []
    failed: list[Item] = []
    parts: deque[tuple[list[Item], Answer]] = deque([(batch, answer)])
    way = _Division(send, answer, over)
    try:
        while parts:
            part, said = parts.popleft()
            if len(part) == 1 or way.posts >= POSTS:
                if said.rejected:
                    rejected += part
                elif way.posts >= POSTS + RECENT or way.fails_again(part):
                    failed += part
                continue
            for half in (part[: len(part) // 2], part[len(part) // 2 :]):
                found = way.post(half)
                if not found.taken:
                    parts.append((half, found))
    except _Gone:
        return Outcome(rejected, failed, way.last)
    return Outcome(rejected, failed, way.last, way.works)
