"""Engine starts shared by the tests: each runs from start to end before the next one, as memory wants it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from otlp_receiver import Receiver, Told
from sglang_engine import CHAIN, ROOT, TREE, Server, speculation
from sglang_runs import REFERENCES, ChainRun, Run, ask, special, traced


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> ChainRun:
    receiver = Receiver()
    folder = tmp_path_factory.mktemp("chain")
    with Server(folder, speculation(CHAIN), traced(receiver)) as server:
        at_start = receiver.wait(
            "the warm-up, counted and told",
            lambda t: t.metric("spec_decode.requests", kind="warmup") == 1 and len(t.requests) == 1,
        )
        for _ in range(3):
            assert server.get("/health_generate") == 200
        after_health = receiver.wait(
            "the health checks", lambda t: t.metric("spec_decode.requests", kind="health_check") == 3
        )
        answers = ask(server) | special(server)
        told = receiver.settled([*answers, "aborted"])
        lines = server.ours()
    receiver.close()
    return ChainRun(answers, told, lines, at_start, after_health)


@pytest.fixture(scope="session")
def chain_untraced(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _untraced(tmp_path_factory.mktemp("chain-untraced"), speculation(CHAIN))


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Run:
    receiver = Receiver()
    with Server(tmp_path_factory.mktemp("tree"), speculation(TREE), traced(receiver)) as server:
        answers = ask(server)
        told = receiver.settled(list(answers))
        lines = server.ours()
    receiver.close()
    return Run(answers, told, lines)


@pytest.fixture(scope="session")
def tree_untraced(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _untraced(tmp_path_factory.mktemp("tree-untraced"), speculation(TREE))


def _untraced(folder: Path, arguments: list[str]) -> Run:
    """The same engine with the tracer installed and told to be off."""
    with Server(folder, arguments, {}) as server:
        answers = ask(server)
        lines = server.ours()
    return Run(answers, Told({}, [], 0, [], {}), lines)


@pytest.fixture(scope="session")
def seed_fault(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The draft config says that no aux hidden states are used, so fc is bypassed in silence."""
    receiver = Receiver()
    folder = tmp_path_factory.mktemp("seed-fault")
    draft = folder / "draft"
    subprocess.run([sys.executable, "-m", "scripts.variants", "seed-fault", str(draft)], cwd=ROOT, check=True)
    with Server(folder, speculation(CHAIN, draft), traced(receiver, SPECSCOPE_DETAIL="steps")) as server:
        answers = server.generate_all(REFERENCES, 1)
        told = receiver.settled(list(answers))
        lines = server.ours()
    receiver.close()
    return Run(answers, told, lines)
