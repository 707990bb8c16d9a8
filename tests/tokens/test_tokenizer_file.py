"""From a tokenizer.json to what its tokens are: every kind of decoder, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specscope import tokenizer_facts
from specscope_server.tokens import tokenizer_file, vocabulary
from specscope_server.tokens.vocabulary import Piece, Vocabulary, VocabularyError
from storekit.tokenizers import HOSTILE, byte_fallback, byte_level, ids, library, word_pieces

TINY = Path(__file__).parents[2] / "models" / "tiny" / "target"


def text(found: Vocabulary, numbers: list[int]) -> str:
    pieces = [found.piece(number) for number in numbers]
    return b"".join(piece.content for piece in pieces if piece is not None).decode()


def test_the_hash_is_the_one_that_an_engine_tells() -> None:
    read = tokenizer_file.read((TINY / "tokenizer.json").read_bytes())
    told = tokenizer_facts.of(str(TINY))
    assert told is not None
    assert (read.hash, read.vocabulary.tokens) == (told["hash"], told["tokens"])


@pytest.mark.parametrize("sentence", ["def f(x):\n\treturn x ** 2", "naïve café, 東京 🗼", "a  b\r\nc"])
def test_tokens_of_a_real_tokenizer_add_up_to_its_text(sentence: str) -> None:
    data = (TINY / "tokenizer.json").read_bytes()
    found = tokenizer_file.read(data).vocabulary
    assert (
        text(found, library.Tokenizer.from_buffer(data).encode(sentence, add_special_tokens=False).ids)
        == sentence
    )


def test_byte_fallback_tokens_are_their_bytes_and_spaces_are_kept() -> None:
    file = byte_fallback("▁tower", "s")
    found = tokenizer_file.read(file).vocabulary
    numbers = ids(file, "▁tower", "s", "▁", "<0xF0>", "<0x9F>", "<0x97>", "<0xBC>")
    assert text(found, numbers) == " towers 🗼"
    assert found.piece(1) == Piece(b"<s>", True)


def test_word_pieces_begin_with_a_space_unless_they_go_on() -> None:
    file = word_pieces("speculative", "de", "##coding")
    found = tokenizer_file.read(file).vocabulary
    assert text(found, ids(file, "speculative", "de", "##coding")) == " speculative decoding"


def test_hostile_tokens_are_only_bytes() -> None:
    file = byte_level(*HOSTILE, special=("<|</td>|>",))
    found = tokenizer_file.read(file).vocabulary
    assert [text(found, [256 + place]) for place in range(len(HOSTILE))] == list(HOSTILE)
    assert found.piece(256 + len(HOSTILE)) == Piece(b"<|</td>|>", True)


def test_ids_without_a_token_are_told_apart_from_empty_ones() -> None:
    found = vocabulary.made({0: Piece(b"", False), 3: Piece(b"x", True)})
    assert [found.piece(number) for number in (-1, 0, 1, 3, 4, 1 << 40)] == [
        *(None, Piece(b"", False), None, Piece(b"x", True), None, None)
    ]
    assert found.tokens == 2


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.integers(0, 3000), st.builds(Piece, st.binary(max_size=40), st.booleans()), min_size=1)
)
def test_what_is_packed_unpacks_to_the_same(pieces: dict[int, Piece]) -> None:
    again = vocabulary.unpack(vocabulary.made(pieces).pack())
    assert {number: again.piece(number) for number in pieces} == pieces
    assert again.tokens == len(pieces)


def wrong(**changes: Any) -> bytes:
    told = json.loads(word_pieces("x"))
    return json.dumps(told | changes).encode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no tokenizer.json"),
        (b"[1]", "no tokenizer.json"),
        (b"[" * 200_000, "no tokenizer.json"),
        (b"{}", "KeyError: 'model'"),
        (b'{"model":{"vocab":{"a":0}}}', "tokenizers cannot read it"),
        (wrong(decoder={"type": "WordPiece"}), "tokenizers cannot read it"),
        (wrong(model={"type": "WordLevel", "vocab": {"a": 4_000_000_000}, "unk_token": "a"}), "outside 0.."),
        (wrong(model={"type": "WordLevel", "vocab": {}, "unk_token": "a"}), "no token"),
    ],
    ids=["empty", "list", "deep", "no model", "no kind", "no decoder", "huge id", "no token"],
)
def test_what_is_none_says_why(data: bytes, said: str) -> None:
    with pytest.raises(VocabularyError, match=said):
        tokenizer_file.read(data)


@pytest.mark.parametrize("cut", [0, 3, 9, 40, -1])
def test_a_damaged_vocabulary_is_refused(cut: int) -> None:
    packed = vocabulary.made({number: Piece(b"ab", False) for number in range(50)}).pack()
    with pytest.raises(VocabularyError):
        vocabulary.unpack(packed[:cut])


def test_a_vocabulary_that_says_that_it_is_huge_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = vocabulary.made({0: Piece(b"x" * 1000, False)}).pack()
    monkeypatch.setattr(vocabulary, "MAX_BYTES", 999)
    with pytest.raises(VocabularyError, match="says that it has 1005 bytes"):
        vocabulary.unpack(packed)
