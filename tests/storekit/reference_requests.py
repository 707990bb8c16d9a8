"""A request of the tokens 100, 101, ... as an engine at detail level ``full`` tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specscope.hidden import HiddenRow
from specscope_server.store.told import Batch, EngineReport

from storekit import facts, references
from storekit.references import IDS, WIDTH

PROMPT = 20
CONFIG: dict[str, Any] = {
    "target": {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": WIDTH,
        "num_hidden_layers": 8,
        "vocab_size": 1024,
    },
    "capture": {"layer_ids": [2, 4, 5], "aux_states": 3},
}


def report(**config: Any) -> EngineReport:
    """Return what the engine tells of itself."""
    return replace(facts.REPORT, config=CONFIG | config)


def told(uid: str, looks: list[HiddenRow], *, tokens: bool = True, prompt: bool = True) -> Batch:
    """Return a request with ten verify steps that commit four tokens each; a prefill gave the first token.

    Without ``tokens`` or ``prompt`` its output ids, or its prompt, are not told.
    """
    steps = [
        facts.step(
            number + 2,
            context=PROMPT + 1 + 4 * number,
            committed=4,
            output_ids=list(IDS[PROMPT + 1 + 4 * number :][:4]) if tokens else None,
            root=IDS[PROMPT] if tokens and number == 0 else None,
        )
        for number in range(10)
    ]
    parts: list[Any] = [report(), facts.request(uid), facts.chunk(uid, steps=steps, looks=looks)]
    if prompt:
        parts.append(facts.prompt(uid, IDS[:PROMPT]))
    return facts.batch(*parts, detail="full")


def healthy(uid: str = "u0", scale: float = 1.0) -> Batch:
    """Return a request whose states are those of :func:`storekit.references.states`, times ``scale``."""
    return told(uid, references.rows(references.states() * scale))
