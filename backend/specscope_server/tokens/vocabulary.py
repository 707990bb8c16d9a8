"""What each token of a tokenizer stands for, as bytes: all that is needed to show ids as text.

Kept in place of the tokenizer itself: a tenth of its size, read in milliseconds, and nothing in it is run.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import zstandard
from numpy.typing import NDArray

MAX_TOKENS: Final = 1 << 20
"""Ids of one vocabulary: those in use have up to some 262,144."""
MAX_BYTES: Final = 64 << 20
"""Bytes of all its tokens together; those in use have some 2 MiB."""
ABSENT, PLAIN, SPECIAL = 0, 1, 2
_MAGIC: Final = b"SPTK1"
_HEAD: Final = struct.Struct("<5sI")


class VocabularyError(ValueError):
    """What was given is no vocabulary; the message says why."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One token: what it adds to the text. A special one (``<|eos|>``) is no text of the model's."""

    content: bytes
    special: bool


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id: ``kinds`` uint8 [ids], ``ends`` uint32 [ids] in ``content``."""

    kinds: NDArray[np.uint8]
    ends: NDArray[np.uint32]
    content: bytes

    @property
    def tokens(self) -> int:
        """Return how many ids stand for something."""
        return int(np.count_nonzero(self.kinds))

    def piece(self, number: int) -> Piece | None:
        """Return the token of an id, ``None`` for one that has none."""
        if not 0 <= number < len(self.kinds) or self.kinds[number] == ABSENT:
            return None
        start = int(self.ends[number - 1]) if number else 0
        return Piece(self.content[start : int(self.ends[number])], bool(self.kinds[number] == SPECIAL))

    def pack(self) -> bytes:
        """Return it as bytes, see :func:`unpack`."""
        head = _HEAD.pack(_MAGIC, len(self.kinds))
        body = self.kinds.astype("u1").tobytes() + self.ends.astype("<u4").tobytes() + self.content
        return head + zstandard.ZstdCompressor(9).compress(body)


def made(pieces: Mapping[int, Piece]) -> Vocabulary:
    """Return the vocabulary of tokens by id.

    Raises:
        VocabularyError: there is none, an id is out of range, or it is too large.
    """
    if not pieces:
        raise VocabularyError("it has no token")
    least, last = min(pieces), max(pieces)
    if least < 0 or last >= MAX_TOKENS:
        raise VocabularyError(f"it has the id {least if least < 0 else last}, outside 0..{MAX_TOKENS - 1}")
    if sum(len(piece.content) for piece in pieces.values()) > MAX_BYTES:
        raise VocabularyError(f"its tokens have more than {MAX_BYTES} bytes together")
    kinds = np.zeros(last + 1, np.uint8)
    lengths = np.zeros(last + 1, np.uint32)
    for number, piece in pieces.items():
        kinds[number] = SPECIAL if piece.special else PLAIN
        lengths[number] = len(piece.content)
    content = b"".join(pieces[number].content for number in sorted(pieces))
    return Vocabulary(kinds, np.cumsum(lengths, dtype=np.uint32), content)


def unpack(packed: bytes) -> Vocabulary:
    """Return what :meth:`Vocabulary.pack` packed.

    Raises:
        VocabularyError: it is damaged.
    """
    try:
        magic, ids = _HEAD.unpack_from(packed)
        if magic != _MAGIC or ids > MAX_TOKENS:
            raise VocabularyError("it does not begin as a vocabulary does")
        # Refused before it is inflated where it says that it is larger.
        told = zstandard.frame_content_size(packed[_HEAD.size :])
        if not 5 * ids <= told <= 5 * ids + MAX_BYTES:
            raise VocabularyError(f"it says that it has {told} bytes")
        body = zstandard.ZstdDecompressor().decompress(packed[_HEAD.size :])
    except (struct.error, zstandard.ZstdError) as error:
        raise VocabularyError(f"it is damaged: {error}") from error
    kinds = np.frombuffer(body, np.uint8, ids)
    ends = np.frombuffer(body, "<u4", ids, ids)
    content = body[5 * ids :]
    if ids and (int(ends[-1]) != len(content) or np.any(ends[1:] < ends[:-1])):
        raise VocabularyError("its tokens do not fit its bytes")
    return Vocabulary(kinds, ends, content)
