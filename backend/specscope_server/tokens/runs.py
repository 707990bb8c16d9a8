"""Tokens as runs of text: a character that several tokens make up is shown once, over all of them.

A token is bytes, and a character of UTF-8 up to four of them, so that a token may end within one. A run goes
on until a character ends with its token. What is no UTF-8 is shown as the bytes that it is.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from specscope_server.tokens.committed import Gap, Token
from specscope_server.tokens.vocabulary import Vocabulary

TEXT: Final = "text"
SPECIAL: Final = "special"
"""A token that is no text of the model's, such as ``<|eos|>``."""
UNKNOWN: Final = "unknown"
"""An id that the tokenizer has no token for."""
ID: Final = "id"
"""No tokenizer is known: the number itself."""
LONGEST: Final = 160
"""Characters of one run that are shown; the longest tokens in use have some 128, of spaces."""
_JOINERS: Final = "\u200c\u200d"
"""They shape a script's letters or join emoji, and reorder nothing."""
_DECODER: Final = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class Run:
    """Text of one or more tokens. ``cut`` counts characters beyond :data:`LONGEST` that are left out."""

    text: str
    tokens: tuple[Token, ...]
    kind: str = TEXT
    cut: int = 0


def runs(tokens: Iterable[Token | Gap], vocabulary: Vocabulary | None) -> list[Run | Gap]:
    """Return tokens as text, or as ids where there is no vocabulary."""
    made: list[Run | Gap] = []
    # A byte that fits nothing comes out as a surrogate of its own, U+DC80 to U+DCFF.
    decoder = _DECODER("surrogateescape")
    text, members = "", list[Token]()

    def close(rest: str = "") -> None:
        nonlocal text
        if members:
            made.append(_run(text + rest, members, TEXT))
        text = ""
        members.clear()
        decoder.reset()

    for token in tokens:
        if isinstance(token, Gap):
            close(decoder.decode(b"", True))
            made.append(token)
            continue
        piece = None if vocabulary is None else vocabulary.piece(token.id)
        if piece is None or piece.special:
            close(decoder.decode(b"", True))
            if piece is None:
                made.append(_run(str(token.id), [token], ID if vocabulary is None else UNKNOWN))
            else:
                made.append(_run(piece.content.decode("utf-8", "surrogateescape"), [token], SPECIAL))
            continue
        members.append(token)
        text += decoder.decode(piece.content)
        if not decoder.getstate()[0]:
            close()
    close(decoder.decode(b"", True))
    return made


def text_of(ids: Sequence[int], vocabulary: Vocabulary | None) -> str:
    """Return the text of some ids by themselves, such as that of a draft."""
    if vocabulary is None:
        return "".join(map(str, ids))
    found = runs([Token(number, "", 0) for number in ids], vocabulary)
    return "".join(run.text for run in found if isinstance(run, Run))


def _run(text: str, members: Sequence[Token], kind: str) -> Run:
    cut = max(0, len(text) - LONGEST)
    return Run(visible(text[:LONGEST]), tuple(members), kind, cut)


def visible(text: str) -> str:
    """Return text without characters that are not seen, or that move or hide others: as signs or escapes."""
    if text.isascii() and text.isprintable():  # nearly all
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    code = ord(character)
    if character == "\n":
        return "↵\n"
    if character == "\t":
        return "⇥\t"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    kind = unicodedata.category(character)
    if character not in _JOINERS and (kind[0] == "C" or kind in ("Zl", "Zp")):
        return f"\\u{{{code:x}}}"
    return character
