"""The tiny pair's prompts are sound: readable, of all three domains, with answers that add up."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from scripts.engine import TINY, read_prompts

ENTRIES: list[dict[str, Any]] = json.loads((TINY / "prompts.json").read_text(encoding="utf-8"))
VOCABULARY = 1024
DEPTH = 4
BOS, USER, ASSISTANT = 1, 3, 4


def _byte_of() -> dict[str, int]:
    """Byte-level BPE's alphabet: printable bytes are themselves, the rest follow from U+0100 in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {chr(256 + n): value for n, value in enumerate(rest)}


def _pieces() -> dict[int, str]:
    tokenizer = json.loads((TINY / "target" / "tokenizer.json").read_text(encoding="utf-8"))
    return {number: piece for piece, number in tokenizer["model"]["vocab"].items()}


PIECES, BYTE_OF = _pieces(), _byte_of()


def _text(ids: list[int]) -> str:
    return bytes(BYTE_OF[char] for number in ids for char in PIECES[number]).decode()


def test_there_are_enough_of_each_domain_and_each_is_there_once() -> None:
    prompts = read_prompts()
    domains = Counter(prompt.domain for prompt in prompts)
    assert set(domains) == {"licence", "docstring", "copy"}
    assert min(domains.values()) >= 16
    assert len({prompt.name for prompt in prompts}) == len({prompt.ids for prompt in prompts}) == len(prompts)
    assert {prompt.domain for prompt in prompts[:3]} == set(domains)  # any head of the list has all three


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["id"] for entry in ENTRIES])
def test_the_ids_are_the_text_in_its_domains_frame(entry: dict[str, Any]) -> None:
    ids = entry["prompt"]
    assert all(0 <= number < VOCABULARY for number in ids + entry["reference"])
    if entry["domain"] == "licence":
        assert ids[0] == BOS
        body = ids[1:]
    else:
        assert ids[:2] == [BOS, USER]
        assert ids[-1] == ASSISTANT
        body = ids[2:-1]
    assert _text(body) == entry["text"]
    if entry["domain"] == "copy":
        assert entry["text"].startswith("Repeat: ")
    if entry["domain"] == "docstring":
        assert entry["text"].startswith(("def ", "class "))


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["id"] for entry in ENTRIES])
def test_the_accepted_counts_make_the_reference(entry: dict[str, Any]) -> None:
    accepted, wanted = entry["accepted"], len(entry["reference"])
    assert wanted == 48
    assert all(0 <= count <= DEPTH for count in accepted)
    # One token from the prefill, then accepted + 1 a step; the last step may go past the end.
    made = 1 + sum(accepted) + len(accepted)
    assert wanted <= made < wanted + DEPTH + 1
    assert made - (accepted[-1] + 1) < wanted


def test_the_read_me_states_the_files_own_numbers() -> None:
    steps = [count for entry in ENTRIES for count in entry["accepted"]]
    length = 1 + sum(steps) / len(steps)
    row = f"| the {len(ENTRIES)} | chain, 4 deep | {sum(steps)} in {len(steps)} | {length:.4f} |"
    assert row in (TINY / "README.md").read_text(encoding="utf-8")
