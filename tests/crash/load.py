"""What goes to the server and what it acknowledged, and a way to wait for an export to be under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from crash.told import Told


class Load:
    """The exports of all senders together."""

    def __init__(self) -> None:
        self.sent, self.acknowledged = Told(), Told()
        self.rejected = 0
        """Spans that an acknowledgement said were not taken."""
        self.under_way = 0
        self._started = 0
        self._changed = threading.Condition()

    @contextmanager
    def export(self, message: Any) -> Generator[Callable[[int], None]]:
        """Count an attempt as under way; the block calls what it gets with the rejected spans when it is
        acknowledged.
        """
        self.sent.add(message)
        with self._changed:
            self.under_way += 1
            self._started += 1
            self._changed.notify_all()

        def acknowledge(rejected: int) -> None:
            self.rejected += rejected
            self.acknowledged.add(message)

        try:
            yield acknowledge
        finally:
            with self._changed:
                self.under_way -= 1

    def wait(self, exports: int, seconds: float) -> bool:
        """Wait until so many more attempts have started; say whether they did within ``seconds``."""
        deadline = time.monotonic() + seconds
        with self._changed:
            until = self._started + exports
            while self._started < until:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True
