"""What a rule may answer besides a finding: nothing wrong, or nothing known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specscope_server.diagnosis.model import Evidence, Finding


@dataclass(frozen=True, slots=True)
class Clear:
    """The evidence excludes the finding."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The evidence can neither show nor exclude the finding, and why."""

    reason: str


CLEAR = Clear()


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding. ``judge`` is pure; it is given the findings that come before it as roots.

    ``detail`` is the detail level of the tracer from which on it sees all that it judges by; empty: any.
    """

    kind: str
    judge: Callable[[Evidence, tuple[Finding, ...]], Finding | Clear | Unknown]
    detail: str = ""
