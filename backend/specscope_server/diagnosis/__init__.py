"""Evidence to findings: pure functions, no I/O. See ``docs/diagnosis.md``."""

from specscope_server.diagnosis.model import (
    Diagnosis,
    Evidence,
    ExtendEvidence,
    Finding,
    Number,
    Ruled,
    State,
)
from specscope_server.diagnosis.registry import diagnose

__all__ = ["Diagnosis", "Evidence", "ExtendEvidence", "Finding", "Number", "Ruled", "State", "diagnose"]
