"""The verdict on one request: said first, from its own counts, and never more than they carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specscope import convention as c

from specscope_server.diagnosis import zero_acceptance
from specscope_server.store.model import RequestDetail, RequestRow
from specscope_server.web import format as f
from specscope_server.web import stations

BAD: Final = "bad"
WARN: Final = "warn"
OK: Final = "ok"
OFF: Final = "off"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``tone`` colours it; ``headline`` is one short sentence, ``reasons`` are the ones that carry it."""

    tone: str
    headline: str
    reasons: tuple[str, ...]


def judge(detail: RequestDetail) -> Verdict:
    """Return the verdict on a request."""
    request = detail.request
    short = stations.gaps(stations.stations(detail.boundaries, exact=True))
    acceptance = _acceptance(request)
    if short:
        broken = [s for s in short if s.state == stations.BROKEN] or short
        names = " and ".join(s.boundary for s in broken)
        verb = "never ran" if broken[0].state == stations.BROKEN else "ran too seldom"
        return Verdict(BAD, f"{names} {verb}", (*(s.sentence for s in short), acceptance))
    if not request.totals.verify_steps:
        return Verdict(OFF, "No verify step", (_no_steps(request), *_ending(request)))
    if not request.totals.drafted_depth:
        why = "The verify steps of this request had no draft token to verify: its rate is undefined, not 0."
        return Verdict(WARN, "Nothing was drafted", (why, *_ending(request)))
    if not request.totals.accepted:
        test = zero_acceptance.of_request(request.totals.verify_steps, request.totals.zero_accept_steps)
        tested = () if test is None else (zero_acceptance.request_words(test),)
        reasons = (acceptance, *tested, *_crossed(detail), *_ending(request))
        return Verdict(BAD, "Every draft token was rejected", reasons)
    tone = WARN if request.state == "lost" else OK
    length = f.decimal(request.acceptance_length)
    return Verdict(
        tone, f"{length} tokens per verify step", (acceptance, *_crossed(detail), *_ending(request))
    )


def _acceptance(request: RequestRow) -> str:
    totals = request.totals
    if not totals.verify_steps:
        return "No verify step ran, so acceptance is undefined."
    return (
        f"{f.count(totals.accepted)} of {f.count(totals.drafted_depth)} drafted positions were accepted"
        f" over {f.count(totals.verify_steps)} verify steps;"
        f" {f.count(totals.zero_accept_steps)} of these accepted nothing."
    )


def _crossed(detail: RequestDetail) -> tuple[str, ...]:
    seen = [s for s in detail.boundaries if s.armed and s.expected]
    unseen = sorted({s.boundary for s in detail.boundaries if not s.armed})
    said: list[str] = []
    if seen:
        said.append("Every boundary that could be observed was crossed as often as expected.")
    else:
        said.append("This request brought no boundary counts, so nothing is said of the path.")
    if unseen:
        said.append(f"Not observable: {', '.join(unseen)}.")
    return tuple(said)


def _no_steps(request: RequestRow) -> str:
    if request.kind == c.KIND_HEALTH_CHECK:
        return "A health check asks for one token, which prefill gives: there is nothing to verify."
    if request.state == c.STATE_RUNNING:
        return "The request is running and has not reached its first verify step."
    if request.output_tokens is not None and request.output_tokens <= 1:
        return "It ended with the token that prefill gives, so there was nothing to verify."
    return "It produced output without a verify step: speculation was off or skipped for it."


def _ending(request: RequestRow) -> tuple[str, ...]:
    if request.state == "lost":
        return ("Its process fell silent before the end; the numbers are as last heard.",)
    if request.state == c.STATE_ABORTED:
        return ("It was aborted before its end.",)
    return ()


def longest_rejection(steps: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Return (length, index of its first step) of the longest run of drafting steps that accepted nothing.

    ``None`` when no step drafted; the steps must be consecutive.
    """
    best: tuple[int, int] | None = None
    run = start = 0
    for index, step in enumerate(steps):
        if not step.get("drafted_depth"):
            run = 0
            continue
        if step.get("accepted"):
            run = 0
        else:
            start = index if run == 0 else start
            run += 1
        if best is None or run > best[0]:
            best = (run, start if run else index)
    return best
