"""F18: only high rows, larger batches or captured graphs are bad: something of an earlier step is reused.

Which row a request gets, how many run beside it and whether the pass is replayed from a graph is the
scheduler's doing, not the prompt's: a sound engine accepts alike in all of them.
"""

from __future__ import annotations

from typing import Final

from specscope import convention as c
from specscope.rollup import BATCH, MODE, ROW

from specscope_server.diagnosis import facts, slice_compare
from specscope_server.diagnosis.model import CRITICAL, SUSPECTED, Evidence, Finding, Ruled
from specscope_server.diagnosis.slice_compare import WITHIN, Worse
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "row_or_graph_stale"
FAULT: Final = "F18"
_TITLES: Final = {
    ROW: "Only high rows of the batch are bad",
    BATCH: "Only larger batches are bad",
    MODE: "Only captured graphs are bad",
}
_CHECKS: Final = {
    ROW: "A/B: send one of the bad requests alone; accepted as usual, its row was the cause. Then start with"
    " --disable-cuda-graph: good rows now name the graph's buffers",
    BATCH: "A/B: the same prompts one by one and all at once; then all at once with --disable-cuda-graph",
    MODE: "A/B: start the engine with --disable-cuda-graph and send the same prompts",
}


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether acceptance depends on what only the scheduler decides."""
    sliced = {one: slice_compare.by_value(evidence, one) for one in (ROW, BATCH, MODE)}
    if not any(len(values) > 1 for values in sliced.values()):
        return Unknown("all steps ran in one row, one size of batch and one mode: nothing to compare")
    if not any(_comparable(evidence, one) for one in sliced):
        return Unknown(slice_compare.too_little(evidence, None))
    told = [
        one
        for one in (
            slice_compare.cuts(
                evidence, ROW, sliced[ROW], WITHIN, lambda n: (f"rows below {n}", f"rows {n} and up")
            ),
            slice_compare.cuts(
                evidence, BATCH, sliced[BATCH], WITHIN, lambda n: (f"batches below {n}", f"batches of {n} up")
            ),
            _graph(evidence),
        )
        if one is not None
    ]
    if not told:
        return CLEAR
    worst = max(told, key=lambda one: one.log_evidence)
    # Requests of another kind that come at busy hours make larger batches worse as well.
    excuse = "" if worst.dimension == ROW else slice_compare.traffic_explains(evidence, worst)
    if excuse:
        return Unknown(f"{worst.words}, but {excuse}: it may be the traffic")
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=SUSPECTED,
        title=_TITLES[worst.dimension],
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {worst.words}. No prompt chooses where it runs, so"
            " the engine seems to reuse data of an earlier step or of another row there."
        ),
        numbers=(*worst.numbers(evidence), *facts.examples(evidence)),
        ruled_out=(
            Ruled("F23 workload", "rows, batches and graphs are dealt out by the scheduler, not by prompts"),
        ),
        next_check=_CHECKS[worst.dimension],
        fix="Run without the graph, or with the largest batch that is well, until the engine is mended;"
        " report the slice where it begins.",
        boundary=c.DRAFT_FORWARD,
        root=slice_compare.root(found),
    )


def _comparable(evidence: Evidence, dimension: str) -> bool:
    enough = [
        counts
        for counts in slice_compare.by_value(evidence, dimension).values()
        if not slice_compare.too_little(evidence, counts)
    ]
    return len(enough) > 1


def _graph(evidence: Evidence) -> Worse | None:
    modes = slice_compare.by_value(evidence, MODE)
    if c.GRAPH not in modes or c.EAGER not in modes:
        return None
    return slice_compare.worse(
        evidence, MODE, ("eager passes", modes[c.EAGER]), ("captured graphs", modes[c.GRAPH]), WITHIN
    )
