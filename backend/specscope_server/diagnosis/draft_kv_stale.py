"""F15: the draft's own cache goes stale inside a request: worse after full accepts, worse as it generates.

Two signals from the very same requests. *After*: a request that is easy accepts more both now and next, so
any mixture of easy and hard text makes acceptance after a full accept **higher** than after a full refusal.
The reverse needs a cause in the engine (or text that alternates by itself, hence only suspected). *Grows*:
acceptance falls with the number of verify steps since the prompt.
"""

from __future__ import annotations

from typing import Final

from specscope import convention as c

from specscope_server.diagnosis import facts, slice_compare
from specscope_server.diagnosis.model import SUSPECTED, WARNING, Evidence, Finding, Ruled
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


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft's cache seems to go stale within requests."""
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
