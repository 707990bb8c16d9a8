"""docs/diagnosis.md names every finding and state, and its numbers are the code's."""

from __future__ import annotations

from pathlib import Path

from specscope_server.diagnosis import sprt
from specscope_server.diagnosis.registry import RULES
from specscope_server.diagnosis.state import WORDS

PAGE = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")


def test_every_finding_says_what_how_recognised_how_confirmed_how_fixed() -> None:
    for rule in RULES:
        section = PAGE.partition(f"\n## `{rule.kind}`")[2].partition("\n## ")[0]
        assert section, rule.kind
        for part in ("How to confirm.", "How to fix."):
            assert part in section, (rule.kind, part)


def test_every_state_has_its_row() -> None:
    for word in WORDS:
        assert f"| `{word}` |" in PAGE


def test_sample_sizes_are_those_of_the_test() -> None:
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in PAGE.splitlines() if "|" in line}
    for p, steps in zip(rows["p"], rows["steps"], strict=True):
        assert abs(sprt.expected_steps(float(p)) - int(steps)) <= 1
