"""F15: the draft's own cache goes stale inside a request: worse after full accepts, worse as it generates.

Two signals from the very same requests. *After*: a request that is easy accepts more both now and next, so
any mixture of easy and hard text makes acceptance after a full accept **higher** than after a full refusal.
The reverse needs a cause in the engine (or text that alternates by itself, hence only suspected). *Grows*:
acceptance falls with the number of verify steps since the prompt. With a reference of the draft, *states*:
what it leaves is right after prefills and wrong after verify steps, at contexts of the same lengths.
"""

from __future__ import annotations

from typing import Final

from specscope import convention as c

from specscope_server.diagnosis import draft_state, facts, slice_compare
from specscope_server.diagnosis.carry_rows import PREFILL
from specscope_server.diagnosis.draft_state import Split
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, WARNING, Evidence, Finding, Ruled
from specscope_server.diagnosis.slice_compare import BETWEEN, Demand, Worse
from specscope_server.diagnosis.step_evidence import AFTER, LENGTH, SINCE_PREFILL
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "draft_kv_stale"
FAULT: Final = "F15"
REVERSED: Final = Demand(gap=0.2, ratio=0.5)


def after(evidence: Evidence) -> Worse | None:
    """Return that steps after a full accept are worse than after a full refusal; ``None``: they are not."""
    values = evidence.steps.slices.get(AFTER, {})
    if "all" not in values or "none" not in values:
        return None
    return slice_compare.worse(
        evidence,
        AFTER,
        ("a step after nothing was accepted", values["none"]),
        ("a step after all was accepted", values["all"]),
        REVERSED,
    )


def grows(evidence: Evidence) -> Worse | None:
    """Return that acceptance falls with the steps since the prompt, and more surely than with length."""
    since = slice_compare.cuts(
        evidence,
        SINCE_PREFILL,
        evidence.steps.slices.get(SINCE_PREFILL, {}),
        BETWEEN,
        lambda n: (f"fewer than {n} verify steps since the prompt", f"{n} or more of them"),
    )
    if since is None:
        return None
    length = slice_compare.cuts(
        evidence,
        LENGTH,
        evidence.steps.slices.get(LENGTH, {}),
        BETWEEN,
        lambda n: (f"contexts below {n}", f"contexts of {n} and longer"),
    )
    return since if length is None or since.log_evidence > length.log_evidence else None


def states(evidence: Evidence) -> Split | None:
    """Return that what the draft leaves is right after prefills and wrong after verify steps.

    Only tokens at positions that prefills ended at too, of requests whose prefill was right: positions and
    what a prefill wrote are then no cause.
    """
    if not draft_state.inputs_right(evidence):
        return None
    filled = [one for one in evidence.draft_states if one.after == PREFILL]
    begun = {one.request for one in filled if one.error < draft_state.RIGHT}
    longest = max((one.position for one in filled), default=0)
    later = [
        one
        for one in evidence.draft_states
        if one.after != PREFILL and one.request in begun and one.position <= longest
    ]
    return draft_state.split(("tokens after a prefill", filled), ("after verify steps", later))


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft's cache seems to go stale within requests."""
    shown = states(evidence)
    if shown is not None and not _scheduled(found):
        return _shown(evidence, shown, found)
    if not evidence.steps.slices.get(AFTER) and not evidence.steps.slices.get(SINCE_PREFILL):
        return Unknown("no single verify steps were recorded: what a step came after is not known")
    if slice_compare.steps_a_request(evidence) is None:
        return Unknown(slice_compare.too_little(evidence))
    reverse, growing = after(evidence), grows(evidence)
    if reverse is None and growing is None:
        return CLEAR
    told = [one for one in (reverse, growing) if one is not None]
    words = "; and ".join(one.words for one in told)
    ruled = [Ruled("F13 positions", "it grows with what was generated more than with the whole context")]
    if reverse is not None:
        ruled.append(Ruled("F23 workload", "a mixture of easy and hard text gives the reverse order"))
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=SUSPECTED,
        title="The draft's cache seems stale within requests",
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {words}. The draft seems to read cache entries of"
            " tokens that were refused, or that were never rewritten after verification."
        ),
        numbers=(*(number for one in told for number in one.numbers(evidence)), *facts.examples(evidence)),
        ruled_out=tuple(ruled if growing is not None else ruled[1:]),
        next_check="A/B: send a long request's text so far as a new prompt. Accepted again as at the start of"
        " a request, the cache was stale; refused alike, the text is harder there (F23)",
        fix="Restart with another attention backend of the draft (SGLang:"
        " --speculative-draft-attention-backend) and report both requests to the engine.",
        boundary=c.DRAFT_EXTEND,
        root=slice_compare.root(found),
    )


def _scheduled(found: tuple[Finding, ...]) -> bool:
    """Say whether rows or graphs are found to be the cause: verify steps are where these are."""
    return any(one.kind == "row_or_graph_stale" and one.confidence == CERTAIN for one in found)


def _shown(evidence: Evidence, shown: Split, found: tuple[Finding, ...]) -> Finding:
    # Where all that is wrong ran in graphs and no prefill did, a graph's stale buffers would look alike.
    eager = sum(one.mode == c.EAGER for one in shown.bad.wrong) >= draft_state.MIN_TOKENS
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=CERTAIN if eager else SUSPECTED,
        title="The draft's cache goes stale within requests",
        sentence=(
            f"{facts.window_text(evidence).capitalize()} {shown.words}, in the same requests. What the draft"
            " was fed is right: its cache holds tokens that were refused, or that were never rewritten after"
            " verification."
        ),
        numbers=shown.numbers(evidence),
        ruled_out=(
            Ruled("F13 positions, F17 window", "prefills of the same lengths are right"),
            Ruled("wrong inputs", "fed states, fc's output and embeddings equal the reference"),
            *((Ruled("F18 graphs", "eager passes are wrong too"),) if eager else ()),
        ),
        next_check="A/B: send a long request's text so far as a new prompt: its draft states equal the"
        " reference then",
        fix="Restart with another attention backend of the draft (SGLang:"
        " --speculative-draft-attention-backend) and report both requests to the engine.",
        boundary=c.DRAFT_EXTEND,
        root=slice_compare.root(found),
    )
