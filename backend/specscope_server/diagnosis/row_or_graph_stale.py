"""F18: only high rows, larger batches or captured graphs are bad: something of an earlier step is reused.

Which row a request gets, how many run beside it and whether the pass is replayed from a graph is the
scheduler's doing, not the prompt's: a sound engine accepts alike in all of them. Certain where what the draft
is fed is a copy of what the target packed in low rows, small batches or eager passes and another state in the
others; or where a reference of it shows it at the same tokens, right in the one and wrong in the other.
"""

from __future__ import annotations

from typing import Final

from specscope import convention as c
from specscope.rollup import BATCH, MODE, ROW

from specscope_server.diagnosis import draft_state, facts, fed_rows, slice_compare
from specscope_server.diagnosis.draft_state import Split
from specscope_server.diagnosis.fed_rows import Cut
from specscope_server.diagnosis.model import CERTAIN, CRITICAL, SUSPECTED, Evidence, Finding, Number, Ruled
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


def states(evidence: Evidence) -> tuple[str, Split] | None:
    """Return in which dimension what the draft leaves is right on one side and wrong on the other.

    Of the dimensions that show it at the same tokens: rows before batches, since a high row is one of a large
    batch, and both before graphs. ``None``: none does, or what the draft was fed is not known to be right.
    """
    if not draft_state.inputs_right(evidence):
        return None
    verified = [one for one in evidence.draft_states if one.after == "verify"]
    eager = [one for one in verified if one.mode == c.EAGER]
    graph = [one for one in verified if one.mode == c.GRAPH]
    told = (
        (
            ROW,
            draft_state.cuts(
                verified, lambda one: one.row, lambda n: (f"tokens in rows below {n}", f"in rows {n} and up")
            ),
        ),
        (
            BATCH,
            draft_state.cuts(
                verified,
                lambda one: one.batch,
                lambda n: (f"tokens in batches below {n}", f"in batches of {n} up"),
            ),
        ),
        (MODE, draft_state.split(("tokens of eager passes", eager), ("of captured graphs", graph))),
    )
    shown = [(dimension, one) for dimension, one in told if one is not None]
    return min(shown, key=lambda one: not one[1].paired) if shown else None


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether acceptance depends on what only the scheduler decides."""
    fed = fed_rows.cut(evidence.fed_rows)
    if fed is not None:
        return _fed(evidence, fed, found)
    shown = states(evidence)
    if shown is not None:
        return _shown(evidence, *shown, found)
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


def _shown(evidence: Evidence, dimension: str, shown: Split, found: tuple[Finding, ...]) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=CERTAIN if shown.paired else SUSPECTED,
        title=_TITLES[dimension],
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {shown.words}. What the draft was fed is right, so"
            " the engine reuses data of an earlier step or of another row there."
        ),
        numbers=shown.numbers(evidence),
        ruled_out=(
            *((Ruled("F23 workload", "the same tokens are right elsewhere"),) if shown.paired else ()),
            Ruled("wrong inputs", "fed states, fc's output and embeddings equal the reference"),
        ),
        next_check=_CHECKS[dimension],
        fix="Run without the graph, or with the largest batch that is well, until the engine is mended;"
        " report the slice where it begins.",
        boundary=c.DRAFT_FORWARD,
        root=slice_compare.root(found),
    )


def _fed(evidence: Evidence, fed: Cut, found: tuple[Finding, ...]) -> Finding:
    place = facts.link(evidence, c.DRAFT_EXTEND)
    name = "fed rows that are not what the target packed in the same pass"
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=CERTAIN if fed.certain else SUSPECTED,
        title=_TITLES[fed.dimension],
        sentence=(
            f"After verify steps in {fed.bad} the draft is fed other states than the target packed in the"
            f" same passes, in {fed.wrong} of {fed.of_bad} rows; in {fed.good} {fed.right} of {fed.of_good}"
            f" are copies, as they should be. {fed.same} requests were right here and wrong there. Something"
            " of an earlier step, or of another row, is reused."
        ),
        numbers=(
            Number(f"{name}, {fed.bad}", fed.wrong, 0, f"of {fed.of_bad}", place),
            Number(f"{name}, {fed.good}", fed.of_good - fed.right, 0, f"of {fed.of_good}", place),
            Number("requests that were right in the one and wrong in the other", fed.same, 0, "requests",
                   f"/requests/{fed.example}"),
        ),
        ruled_out=(
            Ruled("F07 hand-over", "what changes states on their way changes them in every row of a batch"),
            Ruled("F23 workload", "rows, batches and graphs are dealt out by the scheduler, not by prompts"),
        ),
        next_check=_CHECKS[fed.dimension],
        fix="Run without the graph, or with the largest batch that is well, until the engine is mended;"
        " report the slice where it begins.",
        boundary=c.DRAFT_EXTEND,
        root=slice_compare.root(found),
    )  # fmt: skip
