"""Prompts for the tiny models, as token ids: the references, and more of all three domains."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TINY = Path(__file__).resolve().parents[2] / "models" / "tiny"
BOS, USER, ASSISTANT = 1, 3, 4
REPEAT = [646, 84, 73, 271, 30]
"""``Repeat:`` in the tiny tokenizer, which opens each task of the copy domain."""


@dataclass(frozen=True)
class Reference:
    """A prompt with its greedy continuation and the drafts accepted per step (chain, 4 steps, fp32)."""

    prompt: list[int]
    continuation: list[int]
    accepted: list[int]

    @property
    def domain(self) -> str:
        if self.prompt[1] != USER:
            return "licence"
        return "copy" if self.prompt[2 : 2 + len(REPEAT)] == REPEAT else "docstring"


def references() -> list[Reference]:
    """The 18 prompts of ``prompts-with-references.json``, six of each domain."""
    raw: list[dict[str, Any]] = json.loads((TINY / "prompts-with-references.json").read_text("utf-8"))
    return [Reference(one["prompt"], one["ref"], one["acc"]) for one in raw]


def varied() -> list[tuple[str, list[int]]]:
    """36 further prompts with their domain, 5 to 70 tokens, twelve of each; always the same."""
    rng = random.Random(7)
    found: list[tuple[str, list[int]]] = []
    words = _words()
    for _ in range(12):
        drawn = [rng.choice(words) for _ in range(rng.randint(4, 20))]
        found.append(("copy", [BOS, USER, *REPEAT, *drawn, ASSISTANT]))
    for domain in ("licence", "docstring"):
        sources = [one for one in references() if one.domain == domain]
        for number in range(12):
            one = sources[number % len(sources)]
            text = [*one.prompt, *one.continuation]
            if domain == "licence":
                start = rng.randint(1, len(text) - 10)
                found.append((domain, [BOS, *text[start : start + rng.randint(4, 60)]]))
            else:
                found.append((domain, text[: len(one.prompt) + rng.randint(1, 40)]))
    return found


def _words() -> list[int]:
    tokenizer = json.loads((TINY / "target" / "tokenizer.json").read_text("utf-8"))
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    return sorted(number for token, number in vocabulary.items() if re.fullmatch("\u0120[a-z]{3,10}", token))
