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
from tiny_prompts import references, varied

OWN, EXPORT, START, PATCH, CONTROL = "own", "export", "start", "patch", "control"
KINDS = (OWN, EXPORT, START, PATCH, CONTROL)
NEW_TOKENS = 40
DEEP = (
    *("--speculative-num-steps", "8", "--speculative-eagle-topk", "1"),
    "--speculative-num-draft-tokens",
    "9",
)
"""A chain twice as deep as the draft was trained for."""

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
class Load:
    """How prompts are asked: so many at once, with these sampling parameters, ``again`` from the cache."""

    prompts: Callable[[int], Prompts]
    at_once: int = 4
    sampling: Mapping[str, float] = field(default_factory=dict[str, float])
    again: bool = False


@dataclass(frozen=True)
class Case:
    """One launch of an engine: a mechanism under all seeds, or a control under several loads.

    ``fault_class`` is empty for a control: nothing may be named. ``loads`` are judged one by one.
    """

    name: str
    kind: str
    fault_class: str
    shape: tuple[str, ...] = CHAIN
    ranks: int = 1
    loads: Mapping[str, Load] = field(default_factory=dict[str, Load])


def mixed(seed: int, each: int = 5) -> Prompts:
    """Prompts of all three domains, ``each`` of every one, another choice with every seed."""
    dice = random.Random(seed)
    pool = [(one.domain, one.prompt) for one in references()] + varied()
    found: Prompts = {}
    for domain in ("licence", "docstring", "copy"):
        of_it = [prompt for where, prompt in pool if where == domain]
        found |= {f"{domain}-{n}": prompt for n, prompt in enumerate(dice.sample(of_it, each))}
    return found


def noise(seed: int) -> Prompts:
    """Prompts of random bytes' tokens: nothing that target or draft was ever shown."""
    dice = random.Random(seed)
    return {f"noise-{n}": [1, *(dice.randrange(8, 264) for _ in range(30))] for n in range(16)}


def long(seed: int) -> Prompts:
    """Prompts of several hundred tokens: texts of one domain one after the other."""
    texts = mixed(seed, 5)
    joined = [token for name, prompt in texts.items() if "copy" not in name for token in prompt]
    return {f"long-{n}": [1, *joined[n * 20 :], *joined][:500] for n in range(6)}


def bare(seed: int) -> Prompts:
    """The prompts without their chat template: the target goes on in another way."""
    return {name: [1, *prompt[2:-1]] for name, prompt in mixed(seed).items() if "licence" not in name}


def one_domain(domain: str) -> Callable[[int], Prompts]:
    """Prompts of one domain alone."""
    return lambda seed: {name: one for name, one in mixed(seed, 12).items() if name.startswith(domain)}


HEALTHY: Mapping[str, Load] = {
    "one at a time": Load(mixed, 1),
    "four at once": Load(mixed, 4),
    "eight at once": Load(mixed, 8),
    "from the cache": Load(mixed, 4, again=True),
    "long context": Load(long, 2),
}
WORKLOADS: Mapping[str, Load] = {
    "noise": Load(noise),
    "no template": Load(bare),
    "sampled": Load(mixed, 4, {"temperature": 1.0}),
    "licences alone": Load(one_domain("licence")),
    "copies alone": Load(one_domain("copy")),
}


def cases() -> Iterator[Case]:
    """Yield every case, controls first."""
    yield Case("healthy", CONTROL, "", loads={**HEALTHY, **WORKLOADS})
    yield Case(
        "tree",
        CONTROL,
        "",
        TREE,
        loads={"four at once": Load(mixed), "from the cache": Load(mixed, again=True)},
    )
    yield Case("deep", CONTROL, "", DEEP, loads={"four at once": Load(mixed)})
    for name, fault_class in OWN_CLASSES.items():
        assert name in faulty_draft.FAULTS
        yield Case(name, OWN, fault_class)
    for export in EXPORTS.values():
        yield Case(export.name, EXPORT, export.fault_class)
    for start in STARTS.values():
        yield Case(start.name, START, start.fault_class)
    for name, patch in patching.faults().items():
        tree, ranks = "tree" in patch.needs or "tree" in name, 2 if "ranks" in patch.needs else 1
        yield Case(name, PATCH, patch.fault_class, TREE if tree else CHAIN, ranks)
