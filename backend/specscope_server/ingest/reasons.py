"""Classes of reasons for rejections: few and known, so that counts by reason stay few whatever is sent."""

from __future__ import annotations

import re
from typing import Final

OTHER: Final = "other"

_CLASSES: Final = (
    # The first that fits counts: what a reason is about stands before what is wrong with it.
    ("too_old", r"older than what is kept"),
    ("resource", r"^resource: "),
    (
        "payload",
        r"packed column|\bcolumn (?:version|')|\bcolumns? (?:\[|of )|damaged column|\bbody (?:of|ends|does)|"
        r"\bcodec \d|\brows (?:are over|cannot be)|text index|list lengths|"
        r"^spec_decode\.\S+: spec_decode\.[a-z_.]+(?:: | has | holds | counts )",
    ),
    ("missing", r" is missing\b| lacks? | has no value"),
    (
        "range",
        r" not from | not a time in | not a multiple | not a count | neither 0 nor 1|ends before it starts",
    ),
    ("too_large", r"at most \d+ are allowed|too large|too long|more than \d+ series|beyond \d+"),
    (
        "form",
        r" is a \w+, not a|not \d+ bytes| is none of | is not |cannot be printed|neither a sum nor a gauge",
    ),
)
_PATTERNS: Final = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)

MEANINGS: Final = {
    "too_old": "older than what is kept: its key may be forgotten, so it could be counted twice",
    "resource": "the resource of the export does not say who speaks",
    "payload": "packed columns, ledger counts or a configuration that are damaged or make no sense",
    "missing": "an attribute that must be there is not",
    "range": "a number or time outside of what can be",
    "too_large": "a name or a count that is too long or too large",
    "form": "a value of another type or form than the wire has it",
    OTHER: "anything else; the log has the words",
}
"""Every class with what it means; docs/reference/metrics.md has them and a test compares."""


def class_of(reason: str) -> str:
    """Return the class of a reason as :class:`specscope_server.ingest.values.Tally` collects them."""
    return next((name for name, pattern in _PATTERNS if pattern.search(reason)), OTHER)
