"""What the zoo serves: mechanisms of faults, and controls that must not be taken for any."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import faulty_draft
import patching
from exports import EXPORTS
from sglang_engine import CHAIN, TREE
from starts import STARTS
from tiny_prompts import ASSISTANT, BOS, REPEAT, USER, references, varied

OWN, EXPORT, START, PATCH, CONTROL = "own", "export", "start", "patch", "control"
KINDS = (OWN, EXPORT, START, PATCH, CONTROL)
NEW_TOKENS = 32
DEEP = (
    *("--speculative-num-steps", "8", "--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "9"),
)
"""A chain twice as deep as the draft was trained for."""
LOADED = ("F08", "F09", "F10", "F11")
"""Classes of what is loaded: such a fault is there before the tracer looks at the weights."""

OWN_CLASSES: Mapping[str, str] = {
    **dict.fromkeys(("a1", "a2"), "F04"),
    **dict.fromkeys(("b1", "b2", "b3", "b4"), "F10"),
    **dict.fromkeys(("c1", "c2", "c3"), "F09"),
    **dict.fromkeys(("d1", "d2", "d3", "i", "i2"), "F08"),
    **dict.fromkeys(("e1", "e2", "e3", "f1", "f2", "f3", "f4"), "F05"),
    "k1": "F14",
    **dict.fromkeys(("k2", "k3", "k4"), "F06"),
    "q": "F12",
    "r": "F07",
}
"""Classes of the faults in ``tests/engines/faulty_draft.py``, whose numbers the rules were made with."""

Prompts = dict[str, list[int]]


@dataclass(frozen=True)
class Round:
    """How prompts are asked: so many at once, with these sampling parameters, ``again`` from the cache."""

    prompts: Callable[[int], Prompts]
    at_once: int = 4
    sampling: Mapping[str, float] = field(default_factory=dict[str, float])
    again: bool = False


Load = tuple[Round, ...]


@dataclass(frozen=True)
class Case:
    """One launch of an engine: a mechanism, or a control. Each load is judged alone, once with each seed.

    ``fault_class`` is empty for a control: nothing may be named. ``early``: the fault is there before the
    tracer starts. ``update``: an operator updates the target's weights once the fault is laid.
    """

    name: str
    kind: str
    fault_class: str
    loads: Mapping[str, Load]
    shape: tuple[str, ...] = CHAIN
    ranks: int = 1
    early: bool = False
    update: bool = False


def mixed(seed: int, each: int = 5) -> Prompts:
    """Prompts of all three domains, ``each`` of every one, another choice with every seed."""
    dice = random.Random(seed)
    pool = [(one.domain, one.prompt) for one in references()] + varied()
    found: Prompts = {}
    for domain in ("licence", "docstring", "copy"):
        of_it = [prompt for where, prompt in pool if where == domain]
        found |= {f"{domain}-{n}": prompt for n, prompt in enumerate(dice.sample(of_it, each))}
    return found


def everything() -> list[list[int]]:
    """All prompts that :func:`mixed` draws from: those that a reference is made of."""
    return [one.prompt for one in references()] + [prompt for _, prompt in varied()]


def dozen(seed: int) -> Prompts:
    """A dozen prompts of each domain."""
    return mixed(seed, 12)


def noise(seed: int) -> Prompts:
    """Prompts of random bytes' tokens: nothing that target or draft was ever shown."""
    dice = random.Random(seed)
    return {f"noise-{n}": [1, *(dice.randrange(8, 264) for _ in range(30))] for n in range(16)}


def long(seed: int, count: int = 3) -> Prompts:
    """Prompts of several hundred tokens: texts of one domain one after the other, and long copying tasks."""
    texts = mixed(seed, 8)
    joined = [token for name, prompt in texts.items() if "copy" not in name for token in prompt]
    words = [token for name, prompt in texts.items() if "copy" in name for token in prompt[7:-1]]
    found: Prompts = {}
    for n in range(count):
        found[f"long-{n}"] = [1, *joined[n * 20 :], *joined][:400]
        found[f"long-copy-{n}"] = [BOS, USER, *REPEAT, *words[n * 8 :], ASSISTANT][:200]
        found[f"long-copy-{n}"][-1] = ASSISTANT
    return found


def few(seed: int) -> Prompts:
    """One long prompt of each kind."""
    return long(seed, 1)


def bare(seed: int) -> Prompts:
    """The prompts without their chat template: the target goes on in another way."""
    return {name: [1, *prompt[2:-1]] for name, prompt in mixed(seed).items() if "licence" not in name}


def one_domain(domain: str) -> Callable[[int], Prompts]:
    """Prompts of one domain alone."""
    return lambda seed: {name: one for name, one in mixed(seed, 12).items() if name.startswith(domain)}


TRAFFIC: Mapping[str, Load] = {
    "traffic": (
        Round(few, 2),
        Round(lambda seed: mixed(seed, 4), 4),
        Round(lambda seed: mixed(seed, 4), 4, again=True),
        Round(lambda seed: mixed(seed + 500, 3), 8),
    )
}
"""What every mechanism is served: long and short, cold and from the cache, in small and large batches."""

HEALTHY: Mapping[str, Load] = {
    "one at a time": (Round(dozen, 1),),
    "four at once": (Round(dozen, 4),),
    "eight at once": (Round(dozen, 8),),
    "from the cache": (Round(dozen, 4, again=True),),
    "long context": (Round(lambda seed: long(seed, 6), 2),),
    **TRAFFIC,
}
WORKLOADS: Mapping[str, Load] = {
    "noise": (Round(noise),),
    "no template": (Round(bare),),
    "sampled": (Round(dozen, 4, {"temperature": 1.0}),),
    "licences alone": (Round(one_domain("licence")),),
    "copies alone": (Round(one_domain("copy")),),
}


def cases() -> Iterator[Case]:
    """Yield every case: controls, mechanisms written without reading the rules, then the others."""
    yield Case("healthy", CONTROL, "", {**HEALTHY, **WORKLOADS})
    yield Case(
        "tree",
        CONTROL,
        "",
        {name: HEALTHY[name] for name in ("four at once", "from the cache", "traffic")},
        TREE,
    )
    yield Case("deep", CONTROL, "", {"four at once": HEALTHY["four at once"], **TRAFFIC}, DEEP)
    for export in EXPORTS.values():
        yield Case(export.name, EXPORT, export.fault_class, TRAFFIC)
    for start in STARTS.values():
        yield Case(start.name, START, start.fault_class, TRAFFIC, update=bool(start.pushed))
    for name, patch in patching.faults().items():
        yield Case(
            name,
            PATCH,
            patch.fault_class,
            TRAFFIC,
            TREE if patch.needs == "a tree" else CHAIN,
            2 if "ranks" in patch.needs else 1,
            early=patch.fault_class in LOADED,
            update="update" in patch.needs,
        )
    for name, fault_class in OWN_CLASSES.items():
        assert name in faulty_draft.FAULTS
        yield Case(name, OWN, fault_class, TRAFFIC, early=fault_class in LOADED)
