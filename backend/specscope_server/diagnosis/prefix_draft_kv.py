"""F16: requests that reuse a cached prefix are bad, cold ones good: only the target's cache was restored.

Certain where a reference of the draft shows it at the same tokens, right when cold and wrong when cached.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from specscope import convention as c
from specscope.rollup import CACHED

from specscope_server.diagnosis import draft_state, facts, slice_compare
from specscope_server.diagnosis.carry_rows import mostly_cached
from specscope_server.diagnosis.draft_state import Split
from specscope_server.diagnosis.engine_evidence import DraftState
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, WARNING, Evidence, Finding, Ruled
from specscope_server.diagnosis.slice_compare import BETWEEN
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "prefix_draft_kv"
FAULT: Final = "F16"


def states(evidence: Evidence) -> Split | None:
    """Return that what the draft leaves is right after a cold prompt and wrong after a cached one.

    A template makes nearly every prompt share its first few tokens, so one of which only a few were cached
    counts as cold too; should these few be enough to spoil it, the prompts with none of them remain.
    """
    if not draft_state.inputs_right(evidence):
        return None
    requests: dict[str, list[DraftState]] = defaultdict(list)
    for one in evidence.draft_states:
        requests[one.request].append(one)
    cold: list[DraftState] = []
    few: list[DraftState] = []
    cached: list[DraftState] = []
    for of_it in requests.values():
        count = of_it[0].cached
        if count is not None:
            begin = min(one.position for one in of_it) + 1
            side = cached if mostly_cached(count, begin) else few if count else cold
            side += of_it
    bad = ("behind a cached prefix", cached)
    wide = draft_state.split(
        ("tokens behind a cold prompt, or one of which few were cached", cold + few), bad
    )
    return wide or draft_state.split(("tokens behind a cold prompt", cold), bad)


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether a cached prefix costs the draft its benefit."""
    shown = states(evidence)
    if shown is not None:
        return _shown(evidence, shown, found)
    values = slice_compare.by_value(evidence, CACHED)
    cold, cached = values.get("miss"), values.get("hit")
    if cold is None or cached is None:
        return Unknown(f"all requests {facts.window_text(evidence)} were of one kind, cached or cold")
    why = slice_compare.too_little(evidence, cold, cached)
    if why:
        return Unknown(why)
    worse = slice_compare.worse(
        evidence, CACHED, ("a cold prompt", cold), ("a cached prefix", cached), BETWEEN
    )
    if worse is None:
        return CLEAR
    excuse = slice_compare.traffic_explains(evidence, worse)
    if excuse:
        return Unknown(f"{worse.words}, but {excuse}: it may be the traffic")
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=SUSPECTED,
        title="Requests with a cached prefix are bad",
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {worse.words}. The engine seems to restore the"
            " target's cache of a known prefix without the draft's own, so the draft does not see the prompt."
        ),
        numbers=(*worse.numbers(evidence), *facts.examples(evidence)),
        ruled_out=(
            Ruled("a draft that is broken everywhere", f"cold requests: {worse.good_share.value:.0%}"),
        ),
        next_check="A/B: flush the prefix cache (SGLang: POST /flush_cache) and send the very same prompt"
        " twice: accepted when cold and refused when cached proves it, both refused means the prompts"
        " differ (F23)",
        fix="Serve without the prefix cache (SGLang: --disable-radix-cache) until the engine restores the"
        " draft's cache with the target's.",
        boundary=c.DRAFT_EXTEND,
        root=slice_compare.root(found),
    )


def _shown(evidence: Evidence, shown: Split, found: tuple[Finding, ...]) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=CERTAIN if shown.paired else SUSPECTED,
        title="The draft's cache is lost with a cached prefix",
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {shown.words}. What the draft was fed is right: the"
            " engine restores the target's cache of a known prefix without the draft's own."
        ),
        numbers=shown.numbers(evidence),
        ruled_out=(
            *((Ruled("F23 workload", "the same tokens are right when cold"),) if shown.paired else ()),
            Ruled("a draft that is broken everywhere", f"cold: {shown.good.words} are wrong"),
            Ruled("wrong inputs", "fed states, fc's output and embeddings equal the reference"),
        ),
        next_check="A/B: flush the prefix cache (SGLang: POST /flush_cache) and send a cached prompt again:"
        " its draft states equal the reference then",
        fix="Serve without the prefix cache (SGLang: --disable-radix-cache) until the engine restores the"
        " draft's cache with the target's.",
        boundary=c.DRAFT_EXTEND,
        root=slice_compare.root(found),
    )
