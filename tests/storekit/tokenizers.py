"""Tokenizers built with the library, of the kinds that models have, as the files that they come in."""

from __future__ import annotations

from typing import Any

import tokenizers

library: Any = tokenizers

HOSTILE = ("<script>alert(1)</script>", "\u202egnp.exe", "\x1b[31m\x07", "x" * 5000, '"onmouseover="x')
"""Tokens that somebody may train, or add, to harm who looks at them."""


def byte_level(*words: str, special: tuple[str, ...] = ("<|eos|>",)) -> bytes:
    """Return a byte-level BPE: 256 bytes, then ``words`` as one token each, then special tokens."""
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: number for number, character in enumerate(alphabet)}
    level = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for word in words:
        token = "".join(piece for piece, _ in level.pre_tokenize_str(word))
        vocab.setdefault(token, len(vocab))
    tokenizer = library.Tokenizer(library.models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.add_special_tokens([library.AddedToken(one, special=True) for one in special])
    return tokenizer.to_str().encode()


def byte_fallback(*words: str) -> bytes:
    """Return one like SentencePiece's: ``▁`` for a space, ``<0xE2>`` for bytes that it has no token for."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for word in ("a", "▁", *words):
        vocab.setdefault(word, len(vocab))
    model = library.models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = library.Tokenizer(model)
    tokenizer.decoder = library.decoders.Sequence(
        [
            library.decoders.Replace("▁", " "),
            library.decoders.ByteFallback(),
            library.decoders.Fuse(),
            library.decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer.to_str().encode()


def word_pieces(*words: str) -> bytes:
    """Return one like BERT's, whose tokens begin with a space unless they say ``##``."""
    vocab = {word: number for number, word in enumerate(("[UNK]", "token", *words))}
    tokenizer = library.Tokenizer(library.models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    tokenizer.decoder = library.decoders.WordPiece(cleanup=False)
    return tokenizer.to_str().encode()


def ids(file: bytes, *tokens: str) -> list[int]:
    """Return the ids of tokens, as the vocabulary of a file writes them."""
    found = library.Tokenizer.from_buffer(file)
    numbers: list[int] = [found.token_to_id(token) for token in tokens]
    assert None not in numbers, tokens
    return numbers
