"""Ranks and roles in SGLang's own terms, from its own published configuration, where no CPU engine can run.

SGLang derives its ranks from a launch's arguments and a process' place in it (``publish``,
``runtime_context.py``); that code runs here as in a scheduler, without the engine behind it.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from sglang_engine import sglang_python
from tiny_prompts import TINY

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

SCRIPT = """
import dataclasses, json, os, sys
from sglang.srt.runtime_context import SpawnRanks, publish
from sglang.srt.server_args import ServerArgs
from specscope.engines.sglang import group, loaded

for number, (arguments, place) in enumerate(json.load(sys.stdin)):
    if os.fork() == 0:  # what is published stays for the life of a process
        publish(
            ServerArgs(model_path=sys.argv[1], device="cpu", **arguments),
            role="scheduler",
            ranks=SpawnRanks(**place),
        )
        ranks, emits = loaded._ranks()
        told = dataclasses.asdict(ranks) | {"emits": emits, "size": group.size()}
        print("told", json.dumps([number, told]), flush=True)
        os._exit(0)
    os.wait()
"""

ATTENTION_DP: dict[str, Any] = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}
SHAPES: list[tuple[dict[str, Any], dict[str, int], dict[str, Any]]] = [
    # The last stage of a pipeline tells; the ranks of one stage must agree.
    ({"tp_size": 2, "pp_size": 2}, {"world_rank": 2}, {"tp": 0, "pp": 1, "size": 2}),
    ({"tp_size": 2, "pp_size": 2}, {"world_rank": 3}, {"tp": 1, "pp": 1, "size": 2, "emits": False}),
    ({"tp_size": 2, "pp_size": 2}, {"world_rank": 0}, {"size": 2, "emits": False}),
    # Data-parallel attention: replicas within one tensor-parallel group.
    (ATTENTION_DP, {"world_rank": 0}, {"size": 2}),
    (ATTENTION_DP, {"world_rank": 2}, {"tp": 2, "dp": 1, "size": 2}),
    (ATTENTION_DP, {"world_rank": 3}, {"tp": 3, "dp": 1, "size": 2, "emits": False}),
    # Replicas under the data-parallel controller are engines of their own.
    ({"dp_size": 2}, {"world_rank": 0, "dp_rank": 1}, {"dp": 1}),
    ({"disaggregation_mode": "prefill"}, {"world_rank": 0}, {"serving_role": "prefill"}),
    ({"disaggregation_mode": "decode"}, {"world_rank": 0}, {"serving_role": "decode"}),
]
ALONE: dict[str, Any] = {"tp": 0, "dp": 0, "pp": 0, "serving_role": "both", "emits": True, "size": 1}


@pytest.fixture(scope="module")
def told() -> dict[int, dict[str, Any]]:
    run = subprocess.run(
        [str(sglang_python()), "-c", SCRIPT, str(TINY / "target")],
        input=json.dumps([shape[:2] for shape in SHAPES]),
        text=True,
        capture_output=True,
        check=True,
        env={
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": "/usr/bin:/bin",
        },
    )
    lines = [json.loads(line[5:]) for line in run.stdout.splitlines() if line.startswith("told ")]
    assert len(lines) == len(SHAPES), run.stderr[-3000:]
    return dict(lines)


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_ranks_and_roles(told: dict[int, dict[str, Any]], number: int) -> None:
    assert told[number] == ALONE | SHAPES[number][2]
