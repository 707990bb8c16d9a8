"""Faults that come with how an engine is started, or with a call that an operator makes while it runs.

Measured on the first tiny pair, chain of four, nine prompts of three domains one at a time (float32, greedy):
acceptance length of all, of each domain, and with eight at once; ``own`` is how many of 18 texts are the
target's own.

==========================  ====  =======  =========  ====  =======  ===
fault                       all   licence  docstring  copy  at once  own
==========================  ====  =======  =========  ====  =======  ===
healthy                     3.04  2.62     3.24       3.38  3.04     18
no_steps_at_any_batch_size  1.00  1.00     1.00       1.00  1.00     18
draft_of_another_training   1.03  1.00     1.08       1.00  1.03     18
window_of_another_draft     2.32  2.62     3.32       1.63  2.32     18
update_reaches_the_draft    1.41  1.22     1.44       1.63  1.41     18
simulation_left_on          5.00  5.00     5.00       5.00  5.00     0
==========================  ====  =======  =========  ====  =======  ===
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STEPS_FILE = "{folder}/steps.json"


@dataclass(frozen=True)
class Start:
    """``arguments`` come after those that switch speculation on; ``{folder}`` is a folder of the run's own,
    in which ``files`` are written first. ``draft_of_the_other_pair``: the draft is another target's.
    ``pushed``: once the engine serves, it is told to update from a checkpoint that holds the target's own
    tensors of which the names end so (``/update_weights_from_disk``).
    """

    name: str
    fault_class: str
    story: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    draft_of_the_other_pair: bool = False
    pushed: tuple[str, ...] = ()


STARTS: dict[str, Start] = {
    one.name: one
    for one in (
        Start(
            "no_steps_at_any_batch_size",
            "F01",
            "The table of steps by batch size was written the wrong way round, none at small sizes and four "
            "from 64 on: the draft is loaded and never asked.",
            ("--speculative-adaptive", "--speculative-adaptive-config", STEPS_FILE, "--disable-cuda-graph"),
            {"SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND": "1"},
            {"steps.json": '{"1": {"candidate_steps": [0]}, "64": {"candidate_steps": [4]}}'},
        ),
        Start(
            "draft_of_another_training",
            "F21",
            "The target was trained anew and the draft was not: the path points at the draft of the other "
            "version, of the same tokenizer and the same shapes.",
            draft_of_the_other_pair=True,
        ),
        Start(
            "window_of_another_draft",
            "F17",
            "The draft's attention window was set for a draft that was trained with one.",
            ("--speculative-draft-window-size", "8"),
        ),
        Start(
            "update_reaches_the_draft",
            "F21",
            "A trainer that trains the MLPs alone pushes the target's. The engine loads the push into every "
            "model it runs, and the draft's only layer has the names and shapes of the target's first.",
            pushed=("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"),
        ),
        Start(
            "simulation_left_on",
            "F22",
            "A benchmark's simulated acceptance was left in the environment: each verify step takes the "
            "whole draft, whatever the target says.",
            environment={
                "SGLANG_SIMULATE_ACC_LEN": "5",
                "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
                "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
            },
        ),
    )
}
