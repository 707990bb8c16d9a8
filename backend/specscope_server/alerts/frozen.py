"""The evidence of a change as it is kept: what was known then, when the data it came from is long gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from specscope_server.diagnosis import Diagnosis, Evidence, Finding


def frozen(evidence: Evidence, said: Diagnosis, findings: Sequence[Finding]) -> Mapping[str, Any]:
    """Return what is kept with a change of state: findings whole, the state, and the numbers around them.

    ``others`` names what else was found, ``unknown`` what could be neither found nor excluded.
    """
    counts = evidence.counts
    ours = {finding.kind for finding in findings}
    return {
        "at": evidence.now,
        "window_s": evidence.window_s,
        "state": said.state.word,
        "state_reason": said.state.reason,
        "verify_steps": None if counts is None else counts.steps,
        "acceptance_length": None
        if counts is None or not counts.steps
        else (counts.accepted + counts.bonus) / counts.steps,
        "positions": [list(pair) for pair in evidence.positions],
        "ledger": [
            {
                "boundary": line.boundary,
                "source": line.source,
                "expected": line.expected,
                "observed": line.observed_total,
                "armed": line.armed,
            }
            for line in evidence.window
        ],
        "dropped": dict(evidence.dropped),
        "requests": dict(evidence.window_requests),
        "examples": list(evidence.example_requests),
        "findings": [asdict(finding) for finding in findings],
        "others": [finding.kind for finding in said.findings if finding.kind not in ours],
        "unknown": dict(said.unknown),
    }
