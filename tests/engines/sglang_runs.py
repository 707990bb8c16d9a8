"""What the tests ask of an engine, and what they keep of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otlp_receiver import Receiver, Told
from sglang_engine import Server
from tiny_prompts import references, varied

Answers = dict[str, dict[str, Any]]

REFERENCES = {f"ref-{number}": one.prompt for number, one in enumerate(references())}
VARIED = {f"{domain}-{number}": ids for number, (domain, ids) in enumerate(varied())}
LONG = [900, *(3 + (7 * i) % 900 for i in range(180))]
"""Three chunks of a prefill that takes 64 tokens at a time."""
STOP_AFTER = 18
"""The stop test ends where the reference continuation has gone on for this many tokens."""


@dataclass(frozen=True)
class Run:
    """What one engine answered and what its tracer told."""

    answers: Answers
    told: Told
    lines: list[str]


@dataclass(frozen=True)
class ChainRun(Run):
    """A chain run, with what was told before any user request: at start, and after health checks."""

    at_start: Told
    after_health: Told


def traced(receiver: Receiver, **more: str) -> dict[str, str]:
    """Everything is taken in every step, so that it is there to be compared and to do harm."""
    wanted = {"SPECSCOPE_DETAIL": "full", "SPECSCOPE_SAMPLE_EVERY": "1"}
    return {"SPECSCOPE_ENDPOINT": receiver.endpoint} | wanted | more


def ask(server: Server) -> Answers:
    """The references one after the other, then the varied prompts eight at a time."""
    return server.generate_all(REFERENCES, 1) | server.generate_all(VARIED, 8)


def special(server: Server) -> Answers:
    """Requests that take the side paths of a scheduler."""
    first = references()[0]
    stop = first.continuation[STOP_AFTER]
    answers = {
        "long": server.generate("long", LONG, 8),
        "long-again": server.generate("long-again", LONG, 8),
        "one-token": server.generate("one-token", first.prompt, 1),
        "stopped": server.generate("stopped", first.prompt, stop_token_ids=[stop], ignore_eos=False),
        "warm": server.generate("warm", first.prompt, 8, temperature=0.7),
    }
    server.abort_running("aborted", first.prompt)
    return answers
