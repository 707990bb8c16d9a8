"""Known differences between an engine's own numbers and ours: by design, so no fault. Data, by engine.

None touches the two counters that :mod:`.totals_differ` compares. ``docs/engines.md`` explains each, and
``tests/engines/test_sglang_reconcile.py`` shows on a real engine that each is exactly as large as said here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from specscope_server.diagnosis import facts


@dataclass(frozen=True, slots=True)
class Quirk:
    """``numbers`` of the engine are not what their name says, but ``what``."""

    name: str
    numbers: str
    what: str


QUIRKS: Final[Mapping[str, tuple[Quirk, ...]]] = {
    "sglang": (
        Quirk(
            "prefill token",
            "meta_info spec_accept_length",
            "completion tokens by verify steps: the token of the prefill counts, and one more for each"
            " retraction; what a stop cut away does not. Nothing accepted reads above 1",
        ),
        Quirk(
            "tree in the denominator",
            "meta_info spec_num_proposed_drafts, spec_accept_rate; accept rate in log and gauge",
            "verify steps times the configured nodes of a tree without its root, however deep the tree is",
        ),
        Quirk(
            "keys absent",
            "meta_info spec_*",
            "left out of answers for which nothing was verified, which is not 0",
        ),
        Quirk(
            "last window",
            "gauges sglang:spec_accept_length, sglang:spec_accept_rate",
            "the mean of the last --decode-log-interval decode batches alone, kept while the engine idles",
        ),
        Quirk(
            "rows of the log",
            "accept len and accept rate in log and gauge",
            "rounded to two digits, over every row of a batch: warm-up, aborted and overshoot rows count",
        ),
        Quirk(
            "who is counted",
            "counters sglang:spec_verify_calls_total, generation_tokens_total, num_requests_total",
            "warm-up and aborted requests count, health checks do not; counted when a request ends",
        ),
        Quirk(
            "prefix requests",
            "counters sglang:num_requests_total, prompt_tokens_total",
            "n > 1 sends one request more for each prompt: it asks for no token and fills the prefix cache",
        ),
        Quirk(
            "re-prefill",
            "completion tokens against committed tokens",
            "the token of the prefill is in no verify step, nor is that of a re-prefill after a retraction",
        ),
        Quirk(
            "cut by a stop",
            "accepted drafts against tokens",
            "accepted is what the verifier took; a stop, a grammar or the length may cut it afterwards",
        ),
        Quirk(
            "busy health check",
            "requests by kind",
            "a health check that meets a busy scheduler is answered without becoming a request",
        ),
    ),
}


def of(config: Mapping[str, Any]) -> tuple[Quirk, ...]:
    """Return the quirks of the engine whose configuration this is; none of an engine that is not known."""
    return tuple(
        quirk
        for name, quirks in QUIRKS.items()
        if facts.setting(config, "versions", name) is not None
        for quirk in quirks
    )
