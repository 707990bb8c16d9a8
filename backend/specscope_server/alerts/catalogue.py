"""The built-in rules, and those of a workspace: built-in ones as it changed them, then its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from specscope_server.alerts.rules import (
    INGEST_LAG,
    OTHER_FAULTS,
    TRACER_DROPPING,
    TRACER_SILENT,
    AlertRule,
    RuleError,
    changed,
)
from specscope_server.diagnosis.model import CRITICAL
from specscope_server.store.model import RuleRow

BUILT_IN: Final = (
    AlertRule("silent_path", "Silent path", kinds=("draft_silent", "fc_bypassed"), severity=CRITICAL),
    AlertRule("weights_not_finite", "NaN in weights", kinds=("weights_not_finite",), severity=CRITICAL),
    AlertRule("weights_missing", "Weights missing", kinds=("weights_missing",), severity=CRITICAL),
    AlertRule("other_fault", "Another fault", watches=OTHER_FAULTS, severity=CRITICAL),
    AlertRule("rank_divergence", "Ranks diverge", kinds=("rank_divergence",), severity=CRITICAL),
    AlertRule("collapse", "Acceptance collapsed", kinds=("collapse", "drift"), severity=CRITICAL),
    # By itself: where nothing is promised it has no data, which must not become that of the rule above.
    AlertRule("below_promise", "Below what was promised", kinds=("expectation",)),
    AlertRule("too_good", "Too good acceptance", kinds=("too_good",)),
    AlertRule("zero_acceptance", "Zero acceptance", kinds=("zero_acceptance",), severity=CRITICAL),
    # What speculation gains moves with the traffic, and nobody has to get up for it.
    AlertRule(
        "no_gain", "Speculation does not pay", kinds=("pays_off",), for_s=600.0, recovery_s=600.0
    ),
    AlertRule("metric_mismatch", "Metric mismatch", kinds=("totals_differ",)),
    # Beyond the silence that makes it so (three heartbeats, 15 s): a restart takes a minute.
    AlertRule("tracer_silent", "Tracer silent", watches=TRACER_SILENT, for_s=60.0, recovery_s=0.0),
    AlertRule("tracer_dropping", "Tracer drops records", watches=TRACER_DROPPING),
    # A tracer sends twice a second; half a minute is 60 exports that waited.
    AlertRule("ingest_lag", "Ingest lags", watches=INGEST_LAG, threshold=30.0, for_s=60.0),
)  # fmt: skip
"""On for every engine unless a workspace says otherwise; what explains others comes first."""
_BY_NAME: Final = {rule.name: rule for rule in BUILT_IN}

log = logging.getLogger(__name__)


def built_in(name: str) -> AlertRule | None:
    """Return the built-in rule of a name as it comes."""
    return _BY_NAME.get(name)


def blank(name: str) -> AlertRule:
    """Return what a stored rule of a name changes: the built-in one, or an empty one of the workspace."""
    return _BY_NAME.get(name) or AlertRule(name, name.replace("_", " ").capitalize() or "?")


def effective(stored: Iterable[RuleRow]) -> tuple[AlertRule, ...]:
    """Return the rules of a workspace, also those that are off.

    A stored one that cannot be read (a newer server wrote it) is left out, the built-in one in its place, and
    logged: one rule must not silence the others.
    """
    found = dict(_BY_NAME)
    for row in stored:
        try:
            found[row.name] = changed(blank(row.name), row.body)
        except RuleError as error:
            log.warning("the stored rule %s is not used: %s", row.name, error)
    return tuple(found.values())
