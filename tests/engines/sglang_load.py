"""A mixed load on one engine: every kind of request that a scheduler treats in a way of its own."""

from __future__ import annotations

import json
import random
import re
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sglang_engine import Server
from tiny_prompts import ASSISTANT, BOS, REPEAT, USER, references, varied

GRAMMAR = "(yes|no|maybe|never)( [a-z]{2,6}){2,5}"
"""A regular expression that a request's output must match: its end cuts what was accepted."""
SEVERAL = "several"
KINDS = (
    *("plain",) * 8,
    *("stream",) * 3,
    *("stop",) * 3,
    *(SEVERAL,) * 2,
    *("grammar", "long", "again", "abort"),
)


@dataclass
class Load:
    """What was asked, and what came back: answers by rid; ``prefixes`` were asked for by ``n`` > 1."""

    answers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    prefixes: int = 0
    checks: int = 0

    @property
    def users(self) -> int:
        """How many requests of users the engine got."""
        return len(self.answers) + self.prefixes

    @property
    def meta(self) -> dict[str, dict[str, Any]]:
        """SGLang's ``meta_info`` of every answered request."""
        return {rid: answer["meta_info"] for rid, answer in self.answers.items()}


def run(server: Server, count: int, at_once: int = 8, seed: int = 11) -> Load:
    """Ask for at least ``count`` requests of all kinds, ``at_once`` at a time, and one after all of them."""
    load, rng = Load(), random.Random(seed)
    prompts = _prompts(count, rng)
    asked: list[Asked] = [
        (f"load-{n}", KINDS[n % len(KINDS)], prompts[n], rng.randint(8, 24)) for n in range(count)
    ]
    rng.shuffle(asked)
    with ThreadPoolExecutor(at_once) as pool:
        for number, (kind, answers) in enumerate(pool.map(partial(_ask, server), asked)):
            _keep(load, kind, answers)
            if number % 50 == 0:
                assert server.get("/health_generate") == 200
                load.checks += 1
    # With nothing running this one becomes a request; those above may have met a busy scheduler.
    assert server.get("/health_generate") == 200
    load.checks += 1
    # How many became one is not known here. A request that comes last is: who has heard of it heard of all.
    _keep(load, *_ask(server, ("load-last", "plain", prompts[0], 8)))
    return load


def _keep(load: Load, kind: str, answers: Iterable[dict[str, Any]]) -> None:
    load.prefixes += kind == SEVERAL
    for answer in answers:
        load.answers[answer["meta_info"]["id"]] = answer
        load.kinds[answer["meta_info"]["id"]] = kind


Asked = tuple[str, str, list[int], int]
"""(rid, kind, prompt, new tokens)."""


def _ask(server: Server, asked: Asked) -> tuple[str, list[dict[str, Any]]]:
    """Ask for one of them; return its kind and the answers, several of ``n`` > 1."""
    rid, kind, prompt, tokens = asked
    settings: dict[str, Any] = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    body: dict[str, Any] = {"rid": rid, "input_ids": prompt, "sampling_params": settings}
    if kind == "abort":
        settings["max_new_tokens"] = 900
        return kind, [_streamed(server, body, abort=True)]
    if kind == "stream":
        return kind, [_streamed(server, body)]
    if kind == SEVERAL:
        del body["rid"]  # SGLang gives each of them an id of its own
        settings["n"] = 2
        return kind, server.post("/generate", body)
    if kind == "stop":
        settings |= {"stop": [" the", "\n"], "stop_token_ids": [2], "ignore_eos": False}
    if kind == "grammar":
        settings |= {"regex": GRAMMAR, "ignore_eos": False}
    return kind, [server.post("/generate", body)]


def _streamed(server: Server, body: dict[str, Any], *, abort: bool = False) -> dict[str, Any]:
    """Return the last event of a streamed answer, which holds it whole; ``abort`` it after the first one."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(
        server.url + "/generate", json.dumps(body | {"stream": True}).encode(), headers
    )
    last = ""
    with urllib.request.urlopen(request, timeout=120) as answer:
        for line in answer:
            text = line.decode().removeprefix("data: ").strip()
            if abort:
                server.post("/abort_request", {"rid": body["rid"]})
                abort = False
            last = text if text and text != "[DONE]" else last
    return json.loads(last)


def _prompts(count: int, rng: random.Random) -> list[list[int]]:
    """Prompts of all three domains, 5 to 180 tokens; ``again`` repeats a long one, for the prefix cache."""
    known = [one.prompt for one in references()] + [ids for _, ids in varied()]
    words = sorted({token for ids in known for token in ids if token > ASSISTANT})
    found: list[list[int]] = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        base = known[rng.randrange(len(known))]
        if kind == "long":
            base = [BOS, *(rng.choice(words) for _ in range(rng.randint(80, 180)))]
        elif kind == "again":
            base = found[number - 1]  # the long one
        elif number % 3 == 0:
            drawn = [rng.choice(words) for _ in range(rng.randint(4, 20))]
            base = [BOS, USER, *REPEAT, *drawn, ASSISTANT]
        found.append(base)
    return found


def counters(text: str) -> dict[str, float]:
    """The counters of a Prometheus page by name, summed over their labels."""
    found: dict[str, float] = {}
    for name, value in re.findall(r"^(sglang:\w+)(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def page(server: Server, path: str) -> str:
    """The text of a page of the engine."""
    with urllib.request.urlopen(server.url + path, timeout=60) as answer:
        return answer.read().decode()


@dataclass(frozen=True)
class DecodeLine:
    """What SGLang's log says of one decode batch."""

    step: int
    running: int
    accept_length: float
    accept_rate: float


def decode_lines(log: str) -> list[DecodeLine]:
    """The decode lines of a log that was written with ``SGLANG_LOG_FORWARD_ITERS``."""
    pattern = r"Decode batch \[(\d+)\], #running-req: (\d+), .*?accept len: ([\d.]+), accept rate: ([\d.]+)"
    return [
        DecodeLine(int(step), int(running), float(length), float(rate))
        for step, running, length, rate in re.findall(pattern, log)
    ]
