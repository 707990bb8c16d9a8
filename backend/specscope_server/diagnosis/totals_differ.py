"""F24: the metric lies. The engine's own counters of a request are not what its steps add up to.

Both numbers are exact counts of the same steps, so one difference is enough. Which of the two is wrong is
not decided here; the steps of the request can be looked at one by one.
"""

from __future__ import annotations

from specscope_server.diagnosis import facts, quirks
from specscope_server.diagnosis.model import CERTAIN, WARNING, Difference, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND = "totals_differ"
F24 = "F24"
EXAMPLES = 3


def judge(evidence: Evidence, roots: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the engine's counters of the requests of the window are those of their steps."""
    told = evidence.reconciliation
    if told.differing:
        return _finding(evidence)
    if told.compared:
        return CLEAR
    if not told.not_compared:
        return Unknown(f"no request ended {facts.window_text(evidence)}")
    why = "; ".join(f"{n}: {reason}" for reason, n in told.not_compared.items())
    return Unknown(f"no request that ended {facts.window_text(evidence)} could be compared ({why})")


def _finding(evidence: Evidence) -> Finding:
    told = evidence.reconciliation
    one = told.differing[0]
    what, ours, engines = _first(one)
    count = len(told.differing)
    requests = f"{count} request{' has' if count == 1 else 's have'}"
    return Finding(
        kind=KIND,
        fault_class=F24,
        severity=WARNING,
        confidence=CERTAIN,
        title="The engine's counters and its steps differ",
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {requests} other totals in the engine's own counters"
            f" than in the steps that the tracer saw: of {one.rid or one.uid} the engine says {engines}"
            f" {what}, its steps add up to {ours}. One of the two counts wrongly, so what the engine's"
            " metrics, log and answers say of acceptance cannot be relied on."
        ),
        numbers=_numbers(evidence),
        ruled_out=_ruled_out(evidence),
        next_check="Open an example request and add up its verify steps by hand, then compare with the"
        " spec_verify_ct and spec_num_correct_drafts of its meta_info",
        fix="Do not use the engine's own acceptance numbers until its counter is mended; update the engine,"
        " and look for another plugin or patch that changes its counters.",
    )


def _ruled_out(evidence: Evidence) -> tuple[Ruled, ...]:
    lost = Ruled(
        "steps lost by the tracer",
        "only requests seen whole are compared, and none whose tracer lost records or failed in a hook"
        " unless the engine's count is the smaller one",
    )
    known = quirks.of(evidence.config)
    if not known:
        return (lost,)
    names = ", ".join(quirk.name for quirk in known)
    return (lost, Ruled("a known quirk of the engine", f"none touches these two counters ({names})"))


def _first(one: Difference) -> tuple[str, int, int]:
    """Return (what, ours, the engine's) of the first total that differs."""
    if one.accepted != one.engine.accepted:
        return "accepted drafts", one.accepted, one.engine.accepted
    return "verify steps", one.verify_steps, one.engine.verify_steps


def _numbers(evidence: Evidence) -> tuple[Number, ...]:
    told, place = evidence.reconciliation, facts.link(evidence)
    numbers = [
        Number("requests whose totals differ", len(told.differing), 0, "requests", place),
        Number("requests compared", told.compared, None, "requests", place),
    ]
    for one in told.differing[:EXAMPLES]:
        at, name = f"/requests/{one.uid}", one.rid or one.uid
        pairs = (
            ("verify steps", one.engine.verify_steps, one.verify_steps),
            ("accepted drafts", one.engine.accepted, one.accepted),
        )
        numbers += [
            Number(f"{what} of {name}, as the engine counts", engines, ours, what.split()[-1], at)
            for what, engines, ours in pairs
        ]
    numbers += [
        Number(f"requests not compared: {reason}", n, None, "requests", place)
        for reason, n in told.not_compared.items()
    ]
    return tuple(numbers)
