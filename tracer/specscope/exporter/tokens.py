"""The last tokens of one request's context, for facts that need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

WINDOW: Final = 4096
"""Tokens of context that are looked at."""
_SLACK: Final = 1024
_HOLE: Final = -1
"""A token that exists and is not known here."""
_MAX_ID: Final = (1 << 31) - 1


class TokenStream:
    """Prompt and committed tokens of a request in order, the last :data:`WINDOW` of them; 20 KiB.

    The first output token comes from a prefill and is in no verify step, so a hole follows the prompt until
    :meth:`reach` tells it: the root of the next verify step.
    """

    def __init__(self, prompt_ids: Sequence[int] | None) -> None:
        """Start behind the prompt; ``None``: the prompt is not known here."""
        self.knows_prompt = prompt_ids is not None
        self.length = 0
        """Tokens so far, those that fell out of the window included."""
        self._tokens: NDArray[np.int32] = np.empty(WINDOW + _SLACK, dtype=np.int32)
        self._used = 0
        self.append(() if prompt_ids is None else prompt_ids[-WINDOW:])
        self.skip(1)

    def append(self, ids: Iterable[int]) -> None:
        """Add committed tokens."""
        new = [i if 0 <= i <= _MAX_ID else _HOLE for i in ids]
        self.length += len(new)
        new = new[-WINDOW:]
        if self._used + len(new) > self._tokens.size:
            keep = min(WINDOW - len(new), self._used)
            self._tokens[:keep] = self._tokens[self._used - keep : self._used]
            self._used = keep
        self._tokens[self._used : self._used + len(new)] = new
        self._used += len(new)

    def reach(self, context: int, root: int) -> None:
        """Bring the stream to a context of ``context`` tokens that ends with ``root``.

        A prefill commits one token that no verify step tells: the first, and one more after a retraction.
        """
        if self.knows_prompt and context > self.length:
            self.skip(context - self.length)
        if self.knows_prompt and context == self.length and 0 <= root <= _MAX_ID and self._used:
            self._tokens[self._used - 1] = root

    def skip(self, count: int) -> None:
        """Add tokens that are not known here."""
        self.append([_HOLE] * count)

    def at(self, position: int) -> int | None:
        """Return the token at a position counted from the start of the stream; ``None``: not known."""
        index = position - (self.length - self._used)
        if not 0 <= index < self._used:
            return None
        token = int(self._tokens[index])
        return None if token == _HOLE else token

    def between(self, start: int, end: int) -> list[int | None]:
        """Return :meth:`at` of the positions from ``start`` to before ``end``."""
        first = self.length - self._used
        low, high = max(start, first), min(end, self.length)
        if low >= high:
            return [None] * (end - start)
        tokens: list[int] = self._tokens[low - first : high - first].tolist()
        known = [None if token == _HOLE else token for token in tokens]
        return [None] * (low - start) + known + [None] * (end - high)

    def copies(self) -> bool | None:
        """Say whether the last two tokens stand earlier in the window; ``None``: not known."""
        if not self.knows_prompt or self._used < 2:
            return None
        window = self._tokens[max(0, self._used - WINDOW) : self._used]
        first, second = window[-2], window[-1]
        if first == _HOLE or second == _HOLE:
            return None
        return bool(((window[:-2] == first) & (window[1:-1] == second)).any())
