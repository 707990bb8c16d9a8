"""Evidence as the tiny pair gives it, healthy and with the seed's fault (SGLang 0.5.23, chain of 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specscope import convention as c
from specscope.rollup import Counts
from specscope_server.diagnosis import Evidence, ExtendEvidence
from specscope_server.diagnosis.model import Reconciliation
from specscope_server.store.model import BoundaryState

NOW = 1_800_000_000.0
UID = "eng-1"
H = 128
CONFIG: dict[str, Any] = {
    "draft": {"hidden_size": H},
    "fc": {"in": 3 * H, "out": H},
    "speculative": {"num_steps": 4},
    "arguments": {"speculative_draft_model_path": "models/tiny/draft"},
}
OFF_CONFIG = {**CONFIG, "draft": {"hidden_size": H, "eagle_config": {"use_aux_hidden_state": False}}}

Path = dict[tuple[str, str], tuple[int, int]]
"""(boundary, source) to (expected, observed)."""


def path(steps: int, prefills: int, num_steps: int = 4) -> Path:
    """Return a complete path of ``steps`` verify steps and ``prefills`` prefill passes."""
    fed = steps + prefills
    counts = {
        (c.AUX_CAPTURE, c.NO_SOURCE): fed,
        (c.DRAFT_EXTEND, c.TARGET_FED): fed,
        (c.DRAFT_FC, c.TARGET_FED): fed,
        (c.DRAFT_FORWARD, c.TARGET_FED): fed,
        (c.DRAFT_FORWARD, c.SELF_FED): steps * (num_steps - 1),
        (c.DRAFT_MAP, c.NO_SOURCE): steps,
        (c.DRAFT_PROPOSE, c.NO_SOURCE): steps,
        (c.TARGET_VERIFY, c.NO_SOURCE): steps,
        (c.ENGINE_COMMIT, c.NO_SOURCE): steps,
    }
    return {key: (n, n) for key, n in counts.items()}


def ledger(counts: Path, *, armed: bool = True, mode: str = c.EAGER) -> tuple[BoundaryState, ...]:
    """Return a path as lines of the ledger."""
    return tuple(
        BoundaryState(boundary, source, expected, {mode: seen}, armed, "" if armed else "no such symbol")
        for (boundary, source), (expected, seen) in counts.items()
    )


def counts(steps: int, accepted: int, zero_steps: int, depth: int = 4, undrafted: int = 0) -> Counts:
    """Return rollup sums of a chain; every step gets its bonus token."""
    return Counts(
        steps=steps,
        drafted_depth=(steps - undrafted) * depth,
        drafted_nodes=(steps - undrafted) * depth,
        accepted=accepted,
        bonus=steps,
        committed=steps + accepted,
        zero_steps=zero_steps,
        undrafted_steps=undrafted,
    )


def evidence(
    lines: tuple[BoundaryState, ...],
    summed: Counts | None,
    *,
    users: int = 20,
    checks: int = 0,
    extends: tuple[ExtendEvidence, ...] = (),
    config: Mapping[str, Any] = CONFIG,
) -> Evidence:
    """Return the evidence of an engine that was heard a second ago and is set to draft."""
    return Evidence(
        engine_uid=UID,
        name="tiny",
        now=NOW,
        window_s=300,
        last_received=NOW - 1,
        heartbeat_s=3,
        speculation=True,
        config=config,
        window=lines,
        since_start=lines,
        counts=summed,
        positions=(),
        requests={c.KIND_USER: users, c.KIND_HEALTH_CHECK: checks},
        window_requests={c.KIND_USER: users, c.KIND_HEALTH_CHECK: checks},
        extends=extends,
        example_requests=("req-1", "req-2") if users else (),
        reconciliation=Reconciliation(users + checks),
    )


def fed(width: int, fc_in: int, aux: int, passes: int, fc_ran: int | None, after: str) -> ExtendEvidence:
    """Return one kind of draft extend."""
    return ExtendEvidence(after, width, fc_in, aux, passes, fc_ran)


HEALTHY = evidence(
    ledger(path(400, 32)),
    counts(400, 776, 112),
    extends=(
        fed(3 * H, 3 * H, 3, 32, 32, "prefill"),
        fed(3 * H, 3 * H, 3, 400, 400, "verify"),
    ),
)
"""Acceptance length 2.94, first token accepted in 72 % of the steps."""

SEED_FAULT = evidence(
    ledger(
        {
            **path(763, 32),
            (c.DRAFT_FC, c.TARGET_FED): (795, 0),
            (c.AUX_CAPTURE, c.NO_SOURCE): (795, 0),
        }
    ),
    counts(763, 87, 763 - 83),
    extends=(
        fed(H, 3 * H, 0, 32, 0, "prefill"),
        fed(H, 3 * H, 0, 763, 0, "verify"),
    ),
    config=OFF_CONFIG,
)
"""87 accepted of 763 verify steps, acceptance length 1.114."""


def with_path(base: Evidence, **changes: tuple[int, int]) -> Evidence:
    """Return ``base`` with (expected, observed) of boundaries changed, keyed ``fc``, ``propose``, ..."""
    keys = {
        "aux": (c.AUX_CAPTURE, c.NO_SOURCE),
        "extend": (c.DRAFT_EXTEND, c.TARGET_FED),
        "fc": (c.DRAFT_FC, c.TARGET_FED),
        "fed_forward": (c.DRAFT_FORWARD, c.TARGET_FED),
        "self_forward": (c.DRAFT_FORWARD, c.SELF_FED),
        "propose": (c.DRAFT_PROPOSE, c.NO_SOURCE),
        "verify": (c.TARGET_VERIFY, c.NO_SOURCE),
    }
    wanted = {keys[name]: value for name, value in changes.items()}
    lines = tuple(
        replace(
            line,
            expected=wanted[line.boundary, line.source][0],
            observed={c.EAGER: wanted[line.boundary, line.source][1]},
        )
        if (line.boundary, line.source) in wanted
        else line
        for line in base.window
    )
    return replace(base, window=lines, since_start=lines)
