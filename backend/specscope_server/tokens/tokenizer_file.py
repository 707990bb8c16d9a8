"""From a ``tokenizer.json`` to its vocabulary: read and checked by the library that serves with it.

A token's text depends on the decoder. Two kinds of token are parts of characters, and are taken as the bytes
that they are: all of a byte-level decoder's, and ``<0xE2>`` and its like of one with byte fallback. What any
other token adds to a text is asked of the library: the text of an ordinary token with it behind, less the
text of the ordinary token alone, so that spaces which only begin a text are not lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import tokenizers
from specscope import tokenizer_facts

from specscope_server.tokens.vocabulary import MAX_TOKENS, Piece, Vocabulary, VocabularyError, made

_library: Any = tokenizers
"""Its types are not written down."""
_BYTE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_AT_ONCE: Final = 8192


@dataclass(frozen=True, slots=True)
class Read:
    """A tokenizer's ``hash``, as an engine's tracer tells it, and what its tokens are."""

    hash: str
    vocabulary: Vocabulary


def read(data: bytes) -> Read:
    """Return what a ``tokenizer.json`` says.

    Raises:
        VocabularyError: it is none, or too large; the message says why.
    """
    try:
        told = json.loads(data)
        ids = tokenizer_facts.ids_of(told)
        kinds = frozenset(_kinds(told.get("decoder")))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise VocabularyError(f"it is no tokenizer.json ({type(error).__name__}: {error})") from error
    if len(ids) > MAX_TOKENS:
        raise VocabularyError(f"it has {len(ids)} tokens, and at most {MAX_TOKENS} are taken")
    try:
        tokenizer = _library.Tokenizer.from_buffer(data)
        pieces = _pieces(tokenizer, kinds)
    except (KeyboardInterrupt, SystemExit, VocabularyError):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        raise VocabularyError(f"the library tokenizers cannot read it: {str(error)[:300]}") from error
    return Read(tokenizer_facts.hash_of(ids), made(pieces))


def _kinds(decoder: Any) -> Iterator[str]:
    """Yield the kinds of decoder that one is made of."""
    if isinstance(decoder, dict):
        found = cast("dict[str, Any]", decoder)
        yield str(found.get("type"))
        for one in cast("list[Any]", found.get("decoders") or []):
            yield from _kinds(one)


def _pieces(tokenizer: Any, kinds: frozenset[str]) -> dict[int, Piece]:
    added = {
        number: Piece(one.content.encode("utf-8", "replace"), one.special)
        for number, one in tokenizer.get_added_tokens_decoder().items()
    }
    plain = {
        number: token
        for token, number in tokenizer.get_vocab(with_added_tokens=False).items()
        if number not in added
    }
    if "ByteLevel" in kinds:
        table = _byte_level()
        texts = {number: _bytes(token, table) for number, token in plain.items()}
    else:
        texts = _asked(tokenizer, plain)
        if "ByteFallback" in kinds:
            texts |= {
                number: bytes([int(found[1], 16)])
                for number, token in plain.items()
                if (found := _BYTE.fullmatch(token))
            }
    return {number: Piece(content, False) for number, content in texts.items()} | added


def _byte_level() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for.

    Bytes that print in Latin-1 stand for themselves, the others follow from U+0100 on in their order.
    """
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printing}
    others = (byte for byte in range(0x100) if chr(byte) not in table)
    return table | {chr(0x100 + place): byte for place, byte in enumerate(others)}


def _bytes(token: str, table: Mapping[str, int]) -> bytes:
    if all(character in table for character in token):
        return bytes(table[character] for character in token)
    return token.encode("utf-8", "replace")


def _asked(tokenizer: Any, plain: Mapping[int, str]) -> dict[int, bytes]:
    """Return what the library says that each token adds behind an ordinary one."""
    before = next((n for n, token in plain.items() if token.isascii() and token.isalpha()), None)
    lead = [] if before is None else [before]
    start = tokenizer.decode(lead, skip_special_tokens=False) if lead else ""
    found: dict[int, bytes] = {}
    numbers = list(plain)
    for place in range(0, len(numbers), _AT_ONCE):
        some = numbers[place : place + _AT_ONCE]
        texts = tokenizer.decode_batch([[*lead, number] for number in some], skip_special_tokens=False)
        for number, text in zip(some, texts, strict=True):
            whole = text[len(start) :] if text.startswith(start) else plain[number]
            found[number] = whole.encode("utf-8", "replace")
    return found
