"""What the demo expects SpecScope to say of its two engines, and how it prints what was said.

Pure functions over the items of `GET /api/v1/engines`; standard library only.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Item = Mapping[str, Any]
"""One engine as the API describes it."""
Expectation = Callable[[Item], list[str]]
"""The ways in which an engine's item is not what the demo must show; empty when it is."""

HEALTHY_LENGTH = 2.0
"""The healthy pair accepts 3.1 tokens a verify step on these prompts; well above this with any of them."""
FAULTY_LENGTH = 1.3
"""With fc bypassed it accepts 1.1; nothing accepted at all would be 1.0."""
COLUMNS = 100
FAULT, BOUNDARY, SOURCE = "F04", "draft.fc", "target_fed"


def fc_crossings(item: Item) -> tuple[int, int] | None:
    """(expected, observed) of `fc` where the target feeds the draft; None without an armed ledger line."""
    for line in item["ledger"]:
        if line["boundary"] == BOUNDARY and line["source"] == SOURCE and line["armed"]:
            return line["expected"], line["observed"]
    return None


def expect_reported(verify_steps: int) -> Expectation:
    """SpecScope knows at least the verify steps that SGLang itself counted in the answers."""

    def check(item: Item) -> list[str]:
        known = item["verify_steps"] or 0
        return (
            [] if known >= verify_steps else [f"{known} verify steps reported, SGLang counted {verify_steps}"]
        )

    return check


def expect_healthy(item: Item) -> list[str]:
    """The engine is healthy: no finding, and a draft that brings something."""
    found = [f"finding {finding['title']!r}" for finding in item["findings"]]
    if item["state"] != "healthy":
        found.append(f"state {item['state']!r}, wanted 'healthy'")
    length = item["acceptance_length"]
    if length is None or length <= HEALTHY_LENGTH:
        found.append(f"acceptance length {length}, wanted more than {HEALTHY_LENGTH}")
    return found


def expect_seed_fault(item: Item) -> list[str]:
    """The seed's fault is named with certainty, and the ledger shows it."""
    found: list[str] = []
    named = [finding for finding in item["findings"] if finding["fault_class"] == FAULT]
    if not named:
        found.append(f"no finding {FAULT}")
    elif named[0]["confidence"] != "certain":
        found.append(f"finding {FAULT} is {named[0]['confidence']}, wanted certain")
    crossings = fc_crossings(item)
    if crossings is None:
        found.append(f"the ledger has no armed line for {BOUNDARY} at {SOURCE} passes")
    elif crossings[0] <= 0 or crossings[1] != 0:
        expected, observed = crossings
        found.append(f"fc ran {observed} times of {expected} expected, wanted 0 of more than 0")
    length = item["acceptance_length"]
    if length is None or length >= FAULTY_LENGTH:
        found.append(f"acceptance length {length}, wanted less than {FAULTY_LENGTH}")
    return found


def described(item: Item) -> Iterator[str]:
    """What SpecScope says of an engine, in lines to print."""
    length, rate, crossings = item["acceptance_length"], item["acceptance_rate"], fc_crossings(item)
    yield f"{item['name']}: {item['state']}"
    if length is not None:
        percent = "undefined" if rate is None else f"{rate:.1%}"
        steps = f"{item['verify_steps']} verify steps"
        yield f"    acceptance length {length:.2f}, acceptance rate {percent}, {steps}"
    if crossings is not None:
        yield f"    fc ran {crossings[1]} of {crossings[0]} times where the target fed the draft"
    for finding in item["findings"]:
        label = " ".join(filter(None, (finding["fault_class"], finding["confidence"])))
        yield f"    finding ({label}): {finding['title']}"
        yield from _wrapped(finding["sentence"], " " * 8)
    if not item["findings"]:
        yield "    no finding"
        yield from _wrapped(item["state_reason"], " " * 8)  # with a finding, it is that finding's sentence


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, initial_indent=indent, subsequent_indent=indent)
