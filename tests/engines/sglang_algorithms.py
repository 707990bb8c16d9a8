"""The speculative algorithms that run without a GPU, how each is started, and what it must cross.

What a pass crosses is written out here as it was seen with a probe on SGLang 0.5.23, apart from the
tracer's own contracts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from otlp_receiver import Told
from sglang_engine import ROOT, Server, sglang_python
from sglang_runs import LONG, REFERENCES, STOP_AFTER, Answers
from specscope import convention as c
from specscope.records import Expectation
from tiny_prompts import TINY, references

PLUGIN: Final = '''
"""A speculative algorithm that is none of SGLang's: it drafts as NGRAM does, under a name of its own."""


def register():
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo

    class OurAlgorithm(CustomSpecAlgo):
        # SGLang 0.5.23 calls these and gives the base class none (scheduler.py:1540, 1681).
        def carries_draft_hidden_states(self):
            return False

        def need_topk(self):
            return False

        def create_future_map(self, *args, **kwargs):
            return SpeculativeAlgorithm.NGRAM.create_future_map(*args, **kwargs)

    @SpeculativeAlgorithm.register("OURS", supports_overlap=False, spec_class=OurAlgorithm)
    def worker(server_args):
        from sglang.srt.speculative.ngram_worker import NGRAMWorker

        class OurWorker(NGRAMWorker):
            pass

        return OurWorker
'''

Counts = Mapping[Expectation, int]

_PROPOSED: Final = {
    (c.DRAFT_PROPOSE, c.NO_SOURCE): 1,
    (c.TARGET_VERIFY, c.NO_SOURCE): 1,
    (c.ENGINE_COMMIT, c.NO_SOURCE): 1,
}
_EXTENDED: Final = {(c.DRAFT_EXTEND, c.TARGET_FED): 1, (c.DRAFT_FORWARD, c.TARGET_FED): 1}
_FC: Final = {(c.DRAFT_FC, c.TARGET_FED): 1}

_LAYERED: Final = {
    (c.DRAFT_EXTEND, c.TARGET_FED): 1,
    (c.DRAFT_FORWARD, c.TARGET_FED): 3,
    (c.DRAFT_FC, c.TARGET_FED): 3,
}


@dataclass(frozen=True)
class Algorithm:
    """One way to start the engine, and what its path looks like.

    ``nodes`` is how many drafts a verify step has, ``depth`` how deep they go at most. ``prefill`` and
    ``verify`` are the crossings of one pass. ``fed`` is, of each draft extend, how wide the hidden states are
    that it gets and that the projection takes; ``None`` where there is none.
    """

    flags: tuple[str, ...]
    nodes: int
    depth: int
    prefill: Counts
    verify: Counts
    name: str
    fed: tuple[int, int | None] | None = None
    chain: bool = True
    draft: str = ""
    """What ``models/tiny/derive.py`` makes as the draft."""
    target: bool = False
    """Whether that is the target too."""
    plugin: bool = False
    confident: bool = True
    """Whether its draft's logits are seen position by position."""
    viewed: bool = True
    """Whether it verifies through ``eagle_sample``, where the target's logits are seen."""
    padded: bool = False
    """Whether placeholders fill the tree up to ``nodes``: they are no drafts, and SGLang counts them."""


def _shape(steps: int, topk: int, nodes: int) -> tuple[str, ...]:
    return (
        "--speculative-num-steps", str(steps), "--speculative-eagle-topk", str(topk),
        "--speculative-num-draft-tokens", str(nodes),
    )  # fmt: skip


_EAGLE_VERIFY: Final = (
    _EXTENDED
    | _FC
    | {(c.DRAFT_FORWARD, c.SELF_FED): 2, (c.DRAFT_FC, c.SELF_FED): 2}
    | _PROPOSED
)  # fmt: skip

ALGORITHMS: Final[Mapping[str, Algorithm]] = MappingProxyType(
    {
        "eagle": Algorithm(
            flags=("--speculative-algorithm", "EAGLE", *_shape(3, 1, 4)),
            draft="eagle",
            name="EAGLE",
            nodes=3,
            depth=3,
            prefill=_EXTENDED | _FC,
            verify=_EAGLE_VERIFY,
            fed=(128, 128),
        ),
        "eagle-tree": Algorithm(
            flags=("--speculative-algorithm", "EAGLE", *_shape(3, 4, 12)),
            draft="eagle",
            name="EAGLE",
            nodes=11,
            depth=3,
            chain=False,
            prefill=_EXTENDED | _FC,
            verify=_EAGLE_VERIFY,
            fed=(128, 128),
        ),
        "nextn": Algorithm(
            flags=("--speculative-algorithm", "NEXTN", *_shape(3, 1, 4)),
            draft="mimo",
            target=True,
            name="EAGLE",
            nodes=3,
            depth=3,
            prefill=_EXTENDED | _FC,
            verify=_EAGLE_VERIFY,
            fed=(128, 128),
        ),
        "standalone": Algorithm(
            flags=("--speculative-algorithm", "STANDALONE", *_shape(3, 1, 4)),
            draft="standalone",
            name="STANDALONE",
            nodes=3,
            depth=3,
            prefill=_EXTENDED,
            verify=_EXTENDED | {(c.DRAFT_FORWARD, c.SELF_FED): 2} | _PROPOSED,
            fed=(0, None),
        ),
        "ngram": Algorithm(
            flags=("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "6"),
            name="NGRAM",
            nodes=5,
            depth=5,
            chain=False,
            confident=False,
            padded=True,
            prefill={},
            verify=_PROPOSED,
        ),
        # One draft layer a step, all of them in the draft extend; proposing only gathers.
        "multi-layer": Algorithm(
            flags=(
                "--speculative-algorithm",
                "EAGLE",
                "--enable-multi-layer-eagle",
                "--disable-hybrid-swa-memory",
                *_shape(3, 1, 4),
            ),
            draft="multi-layer",
            name="MULTI_LAYER_EAGLE",
            nodes=3,
            depth=3,
            confident=False,
            prefill=_LAYERED,
            verify=_LAYERED | _PROPOSED,
            fed=(128, 128),
        ),
        "plugin": Algorithm(
            flags=("--speculative-algorithm", "OURS", "--disable-overlap-schedule", *_shape(1, 1, 6)),
            plugin=True,
            name="OURS",
            confident=False,
            viewed=False,
            nodes=5,
            depth=5,
            chain=False,
            prefill={},
            verify=_PROPOSED,
        ),
    }
)


def derive(name: str, folder: Path) -> Path:
    """Write a derived checkpoint; torch is in the engine's environment, not in that of the tests."""
    script = TINY / "derive.py"
    subprocess.run([sglang_python(), script, name, folder], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return folder


def start(algorithm: Algorithm, folder: Path, environment: dict[str, str]) -> Server:
    """Start the engine with ``algorithm``; the caller enters and leaves it."""
    arguments = list(algorithm.flags)
    if algorithm.draft:
        made = str(derive(algorithm.draft, folder / algorithm.draft))
        arguments += ["--speculative-draft-model-path", made]
        if algorithm.target:
            arguments += ["--model-path", made]  # the last one counts
    if algorithm.plugin:
        environment = environment | {"PYTHONPATH": str(_plugin(folder / "plugin"))}
    return Server(folder, arguments, environment)


def _plugin(folder: Path) -> Path:
    """Write an installed SGLang plugin, as a wheel would leave it on the path."""
    about = folder / "ours-0.dist-info"
    about.mkdir(parents=True)
    (folder / "ours.py").write_text(PLUGIN, "utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 0\n", "utf-8")
    (about / "entry_points.txt").write_text("[sglang.srt.plugins]\nours = ours:register\n", "utf-8")
    return folder


def ask(server: Server) -> Answers:
    """The references six at a time, a prefill in chunks, then radix hits, a stop and a single token."""
    first = references()[0]
    answers = server.generate_all(REFERENCES, 6)
    answers["long"] = server.generate("long", LONG, 8)
    answers["long-again"] = server.generate("long-again", LONG, 8)
    answers["one-token"] = server.generate("one-token", first.prompt, 1)
    stop = first.continuation[STOP_AFTER]
    answers["stopped"] = server.generate("stopped", first.prompt, stop_token_ids=[stop], ignore_eos=False)
    return answers


@dataclass(frozen=True)
class AlgorithmRun:
    """What an engine with ``algorithm`` answered and what its tracer told."""

    algorithm: Algorithm
    answers: Answers
    told: Told
    lines: list[str]
