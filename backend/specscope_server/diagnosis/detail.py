"""What cannot be seen because the engine tells too little: the level it runs at, and the one it takes."""

from __future__ import annotations

from typing import Final

from specscope import convention as c

from specscope_server.diagnosis.model import Evidence

SETTING: Final = "SPECSCOPE_DETAIL"


def below(evidence: Evidence, level: str) -> bool:
    """Say whether the engine is known to run below ``level``."""
    levels = c.DETAIL_LEVELS
    return evidence.detail in levels and levels.index(evidence.detail) < levels.index(level)


def reason(evidence: Evidence, why: str, level: str) -> str:
    """Return why a rule cannot judge, with the level that it needs where the engine runs below that."""
    if not level or not below(evidence, level):
        return why
    return (
        f"{why}; detail too low: this sees all that it judges by from {SETTING}={level} on, and the engine"
        f" runs at {evidence.detail}"
    )


def sentence(evidence: Evidence) -> str:
    """Say what somebody asked for and will not see; empty where the level suffices or is not known."""
    if below(evidence, c.DETAIL_STEPS):
        return (
            f"Detail is too low to see single verify steps and hidden states: the engine runs at"
            f" {SETTING}={evidence.detail}, so many kinds of fault can be neither found nor excluded;"
            f" {SETTING}={c.DETAIL_STEPS} shows them."
        )
    if evidence.references and below(evidence, c.DETAIL_FULL):
        return (
            f"Detail is too low to hold this engine against a reference, of which the workspace has"
            f" {evidence.references}: fingerprints are taken at {SETTING}={c.DETAIL_FULL}, and it runs at"
            f" {evidence.detail}."
        )
    return ""
