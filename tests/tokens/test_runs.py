"""Tokens as text: characters over several tokens, bytes that are none, and tokens that mean harm."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specscope_server.tokens import tokenizer_file
from specscope_server.tokens.committed import Gap, Token
from specscope_server.tokens.runs import LONGEST, Run, runs, text_of, visible
from specscope_server.tokens.vocabulary import Vocabulary
from storekit.tokenizers import HOSTILE, byte_fallback, byte_level, ids, library

TOWER = "🗼".encode()
BYTES = tokenizer_file.read(byte_level()).vocabulary


def tokens(numbers: list[int]) -> list[Token | Gap]:
    return [Token(number, "accepted", place) for place, number in enumerate(numbers)]


def shown(found: list[Run | Gap]) -> list[tuple[str, int]]:
    return [(run.text, len(run.tokens)) for run in found if isinstance(run, Run)]


def of_bytes(data: bytes) -> list[int]:
    """The ids of bytes, one a token, in a byte-level vocabulary."""
    found = {(BYTES.piece(number) or pytest.fail()).content: number for number in range(256)}
    return [found[bytes([byte])] for byte in data]


def test_a_character_over_several_tokens_is_shown_once_over_all_of_them() -> None:
    found = runs(tokens(of_bytes("a🗼b".encode())), BYTES)
    assert shown(found) == [("a", 1), ("🗼", 4), ("b", 1)]
    (_, tower, _) = found
    assert isinstance(tower, Run) and [token.step for token in tower.tokens] == [1, 2, 3, 4]


def test_byte_fallback_is_the_same() -> None:
    file = byte_fallback("▁tower")
    numbers = ids(file, "▁tower", "▁", *(f"<0x{byte:02X}>" for byte in TOWER), "a")
    assert shown(runs(tokens(numbers), tokenizer_file.read(file).vocabulary)) == [
        *((" tower", 1), (" ", 1), ("🗼", 4), ("a", 1)),
    ]


def test_a_token_that_ends_within_a_character_makes_one_run_with_the_next() -> None:
    vocabulary = tokenizer_file.read(byte_level("ab", "cd")).vocabulary
    first, second = TOWER[:2], TOWER[2:]
    numbers = [256, *of_bytes(first), *of_bytes(second), 257]
    assert shown(runs(tokens(numbers), vocabulary)) == [("ab", 1), ("🗼", 4), ("cd", 1)]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"\xff", [("\\xff", 1)]),
        (b"\xf0\x9f", [("\\xf0\\x9f", 2)]),
        (b"\xf0a", [("\\xf0a", 2)]),
        (b"\x97\xbcx", [("\\x97", 1), ("\\xbc", 1), ("x", 1)]),
        (b"\xed\xa0\x80", [("\\xed\\xa0\\x80", 3)]),
    ],
    ids=["never one", "cut at the end", "cut within", "cut at the start", "a surrogate"],
)
def test_bytes_that_are_no_character_are_shown_as_bytes(data: bytes, wanted: list[tuple[str, int]]) -> None:
    assert shown(runs(tokens(of_bytes(data)), BYTES)) == wanted


def test_a_gap_within_a_character_joins_nothing() -> None:
    before, after = of_bytes(TOWER[:2]), of_bytes(TOWER[2:])
    found = runs([*tokens(before), Gap("lost", 3), *tokens(after)], BYTES)
    assert shown(found) == [("\\xf0\\x9f", 2), ("\\x97", 1), ("\\xbc", 1)]
    assert found[1] == Gap("lost", 3)


def test_special_unknown_and_plain_ids() -> None:
    found = runs(tokens([*of_bytes(b"\xf0"), 256, 99_999]), BYTES)
    assert [(run.text, run.kind) for run in found if isinstance(run, Run)] == [
        *(("\\xf0", "text"), ("<|eos|>", "special"), ("99999", "unknown")),
    ]
    (only,) = runs(tokens([7]), None)
    assert isinstance(only, Run) and (only.text, only.kind) == ("7", "id")


def test_hostile_tokens_show_themselves_and_move_nothing() -> None:
    vocabulary = tokenizer_file.read(byte_level(*HOSTILE)).vocabulary
    found = runs(tokens([256 + n for n in range(len(HOSTILE))]), vocabulary)
    texts = [run.text for run in found if isinstance(run, Run)]
    assert texts[:3] == ["<script>alert(1)</script>", "\\u{202e}gnp.exe", "␛[31m␇"]
    assert texts[3] == "x" * LONGEST and isinstance(found[3], Run) and found[3].cut == 5000 - LONGEST
    assert text_of([256, 257], vocabulary) == texts[0] + texts[1]


def test_white_space_is_seen_and_breaks_lines() -> None:
    assert visible("a\n\tb\x7f\u2028") == "a↵\n⇥\tb␡\\u{2028}"
    assert visible("\u0915\u094d\u200d\u0937") == "\u0915\u094d\u200d\u0937"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-3, 300), max_size=60))
def test_every_token_is_in_one_run_in_its_order(numbers: list[int]) -> None:
    given_tokens = tokens(numbers)
    found = runs(given_tokens, BYTES)
    assert [token for run in found if isinstance(run, Run) for token in run.tokens] == given_tokens
    for run in found:
        assert isinstance(run, Run)
        assert all(unicodedata.category(one)[0] != "C" or one in "\n\t\u200c\u200d" for one in run.text), (
            run.text
        )


@pytest.mark.parametrize("sentence", ["naïve café, 東京 🗼\n", "\u202eabc", "ä" * 50])
def test_what_is_shown_is_the_text_of_the_library(sentence: str) -> None:
    file = byte_level("na", "caf", "东")
    tokenizer, vocabulary = library.Tokenizer.from_buffer(file), tokenizer_file.read(file).vocabulary
    numbers = of_bytes(sentence.encode())
    whole = "".join(run.text for run in _runs(numbers, vocabulary))
    assert whole == visible(tokenizer.decode(numbers))


def _runs(numbers: list[int], vocabulary: Vocabulary) -> list[Run]:
    return [run for run in runs(tokens(numbers), vocabulary) if isinstance(run, Run)]
