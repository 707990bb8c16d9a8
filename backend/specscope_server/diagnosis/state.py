"""The engine in one word. A silence has many causes; each has its own word and sentence here.

The order of the checks is the meaning: what makes later questions senseless comes first. "No data" is
never read as 0 % and never as health.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from specscope import convention as c

from specscope_server.diagnosis import detail, facts, not_drafting, sprt, workload, zero_acceptance
from specscope_server.diagnosis.model import CERTAIN, Evidence, Finding, State

HEALTHY: Final = "healthy"
FAULTY: Final = "faulty"
SUSPECT: Final = "suspect"
IDLE: Final = "idle"
HEALTH_CHECKS: Final = "health checks only"
NOT_DRAFTING: Final = "not drafting"
OFF: Final = "speculation off"
SILENT: Final = "tracer silent"
ENDED: Final = "ended"
STARTING: Final = "starting"
TOO_LITTLE: Final = "too little data"
NOT_OBSERVABLE: Final = "not observable"
WORDS: Final = (
    HEALTHY, FAULTY, SUSPECT, IDLE, HEALTH_CHECKS, NOT_DRAFTING, OFF, SILENT, ENDED, STARTING, TOO_LITTLE,
    NOT_OBSERVABLE,
)  # fmt: skip


def state(evidence: Evidence, findings: Sequence[Finding]) -> State:
    """Return the one word for this engine and why."""
    if evidence.ended is not None:
        return _ended(evidence, evidence.ended, findings)
    if facts.tracer_silent(evidence):
        return _silent(evidence, findings)
    if evidence.speculation is False:
        return State(OFF, "The engine is set to serve without a draft, so there is nothing to accept.")
    if findings:
        first = findings[0]
        return State(FAULTY if first.confidence == CERTAIN else SUSPECT, first.sentence)
    if _starting(evidence):
        return State(STARTING, "The tracer is heard, but the engine has not told its configuration yet.")
    measured = _measured(evidence)
    if measured is not None:
        return measured
    return _no_measure(evidence)


def _ended(evidence: Evidence, ended: float, findings: Sequence[Finding]) -> State:
    return State(
        ENDED,
        f"The engine was shut down in order {max(evidence.now - ended, 0):.0f} s ago: its tracer said so"
        f" before it ended. Nothing is served any more.{_last(findings)}",
    )


def _last(findings: Sequence[Finding]) -> str:
    return f" What it showed last: {findings[0].title.lower()}." if findings else ""


def _silent(evidence: Evidence, findings: Sequence[Finding]) -> State:
    silence = facts.silence_s(evidence)
    if silence is None:
        return State(SILENT, "The tracer of this engine was never heard.")
    return State(
        SILENT,
        f"Nothing was received from the tracer for {silence:.0f} s, though it sends every"
        f" {evidence.heartbeat_s:g} s also when idle, and no end was told: the engine was killed or crashed,"
        f" or its tracer cannot reach this server. Nothing is known of the engine now.{_last(findings)}",
    )


def _starting(evidence: Evidence) -> bool:
    told = evidence.speculation is not None or evidence.since_start or evidence.counts is not None
    return not told and not any(evidence.requests.values())


def _measured(evidence: Evidence) -> State | None:
    """Return *healthy* where the test shows a benefit by user traffic, ``None`` where it shows nothing."""
    counts = evidence.counts
    if counts is None or _only_checks_ever(evidence):
        return None
    test = zero_acceptance.first_token(counts)
    if test is None or test.decision == sprt.UNDECIDED:
        return None
    watched = any(line.armed for line in (*evidence.window, *evidence.since_start))
    path = (
        "every boundary that can be observed is crossed as often as it must be"
        if watched
        else "but no boundary of its path can be observed, so only the acceptance speaks"
    )
    more = [workload.sentence(evidence), detail.sentence(evidence)]
    if (silent := not_drafting.of(evidence)) is not None and silent.share >= not_drafting.NOTED:
        more.append(silent.sentence(evidence))
    return State(
        HEALTHY,
        f"The draft helps: acceptance length {zero_acceptance.acceptance_length(counts):.2f} over"
        f" {counts.steps} verify steps {facts.window_text(evidence)}; {path}."
        + "".join(f" {sentence}" for sentence in more if sentence),
    )


def _only_checks_ever(evidence: Evidence) -> bool:
    return not evidence.requests.get(c.KIND_USER, 0) and bool(sum(evidence.requests.values()))


def _no_measure(evidence: Evidence) -> State:
    ledger = (*evidence.window, *evidence.since_start)
    span = facts.window_text(evidence)
    steps = evidence.counts.steps if evidence.counts is not None else 0
    if not steps and ledger and not any(line.armed for line in ledger):
        reasons = "; ".join(dict.fromkeys(line.reason for line in ledger if line.reason))
        return State(
            NOT_OBSERVABLE,
            "The tracer's hooks are not installed in this engine, so nothing can be said of its drafts: "
            + (reasons or "the engine is not one this tracer knows"),
        )
    dropped = sum(evidence.dropped.values())
    # First of all: which requests arrived is told by records too, and these may be among the lost.
    if dropped and steps < _verify_passes(evidence):
        return _lost(evidence, dropped, steps)
    users = evidence.window_requests.get(c.KIND_USER, 0)
    checks = evidence.window_requests.get(c.KIND_HEALTH_CHECK, 0)
    warmups = evidence.window_requests.get(c.KIND_WARMUP, 0)
    passes = any(line.expected > 0 for line in evidence.window)
    if not users and (checks or warmups) and (_only_checks_ever(evidence) or not steps):
        kinds = " and ".join(
            f"{n} {one}" + ("s" if n > 1 else "")
            for n, one in ((checks, "health check"), (warmups, "warm-up"))
            if n
        )
        return State(
            HEALTH_CHECKS, f"No user's request arrived {span}, only {kinds}: they say nothing of a draft."
        )
    if not users and not steps and not passes:
        return State(
            IDLE, f"The tracer is alive and no request arrived {span}: no data, which is not health."
        )
    if dropped and not steps:
        return _lost(evidence, dropped, steps)
    silent = not_drafting.of(evidence)
    if silent is not None and silent.share >= not_drafting.MOST:
        return State(NOT_DRAFTING, silent.sentence(evidence))
    return State(TOO_LITTLE, _too_little(evidence, span))


def _lost(evidence: Evidence, dropped: int, steps: int) -> State:
    return State(
        NOT_OBSERVABLE,
        f"The tracer dropped {dropped} records since the engine started: of the {_verify_passes(evidence)}"
        f" verify passes {facts.window_text(evidence)} {steps or 'no'} verify steps got through, so what is"
        " missing here proves nothing.",
    )


def _verify_passes(evidence: Evidence) -> int:
    """Return the verify passes of the window; the ledger counts them beside the records that may be lost."""
    return sum(line.expected for line in evidence.window if line.boundary == c.TARGET_VERIFY)


def _too_little(evidence: Evidence, span: str) -> str:
    if evidence.counts is None:
        users = evidence.window_requests.get(c.KIND_USER, 0)
        passes = any(line.expected > 0 for line in evidence.window)
        if users and passes and not _verify_passes(evidence):
            return (
                f"No speculative request arrived {span}: {users} were served, and none of them needed more"
                " than the token that prefill gives, so there was nothing to draft."
            )
        return f"Requests are served, but no verify step was reported {span} yet."
    test = zero_acceptance.first_token(evidence.counts)
    why = zero_acceptance.undefined(evidence.counts) if test is None else zero_acceptance.undecided(test)
    return f"{why[0].upper()}{why[1:]}."
