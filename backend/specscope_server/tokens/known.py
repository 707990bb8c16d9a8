"""Vocabularies that were unpacked lately: each page with text needs one, of some MiB."""

from __future__ import annotations

import logging
from collections import OrderedDict
from datetime import datetime
from threading import Lock
from typing import Final, Protocol

from specscope_server.store.model import TokenizerRow
from specscope_server.tokens.vocabulary import Vocabulary, VocabularyError, unpack

MOST: Final = 8
"""Vocabularies held, of 2 to 5 MiB each where they are those in use."""
_log = logging.getLogger(__name__)


class Tokenizers(Protocol):
    """What is read of the store."""

    def tokenizers(self, workspace: str) -> list[TokenizerRow]:
        """See the store's port."""
        ...

    def vocabulary(self, workspace: str, tokenizer_hash: str) -> bytes | None:
        """See the store's port."""
        ...


class Vocabularies:
    """The vocabularies used last. Thread-safe."""

    def __init__(self) -> None:
        """Hold none yet."""
        self._held: OrderedDict[tuple[str, str, datetime], Vocabulary] = OrderedDict()
        self._lock = Lock()

    def of(
        self, reads: Tokenizers, workspace: str, tokenizer_hash: str
    ) -> tuple[TokenizerRow, Vocabulary] | None:
        """Return a tokenizer and its vocabulary, ``None`` where the workspace has none of that hash."""
        rows = reads.tokenizers(workspace) if tokenizer_hash else []
        row = next((one for one in rows if one.tokenizer_hash == tokenizer_hash), None)
        if row is None:
            return None
        # One that was removed and added again is another one.
        name = (workspace, tokenizer_hash, row.created)
        with self._lock:
            found = self._held.get(name)
            if found is not None:
                self._held.move_to_end(name)
                return row, found
        packed = reads.vocabulary(workspace, tokenizer_hash)
        if packed is None:
            return None
        try:
            found = unpack(packed)
        except VocabularyError as error:
            _log.warning("the vocabulary of tokenizer %s cannot be read: %s", tokenizer_hash, error)
            return None
        with self._lock:
            self._held[name] = found
            while len(self._held) > MOST:
                self._held.popitem(last=False)
        return row, found
