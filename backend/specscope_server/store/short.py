"""Which boundaries of a request were crossed too seldom, read off the packed counts that it brings."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from specscope import chunks, ledger

from specscope_server.store.values import key

_KEPT: Final = 1024
"""Answers kept: an export's requests are asked about twice, when they are checked and when they are stored,
and requests of one length often crossed the same boundaries as often."""


@lru_cache(maxsize=_KEPT)
def short_of(boundaries: bytes) -> str:
    """Return the boundaries crossed too seldom, as ``,draft.fc,draft.map,``; empty when none.

    Whether a boundary was armed, so that this is a gap, is the process' fact and joined when read.

    Raises:
        CodecError: the counts are damaged.
    """
    expected, observed = chunks.unpack_boundaries(boundaries)
    found = ledger.gaps(expected, observed, {boundary: True for boundary, _ in expected})
    names = dict.fromkeys(key(gap.boundary) for gap in found)
    return f",{','.join(names)}," if names else ""
