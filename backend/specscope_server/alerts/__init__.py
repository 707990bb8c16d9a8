"""Rules over diagnoses, and the delivery of what they say. See ``docs/guide/alerts.md``."""

from specscope_server.alerts.evaluator import Evaluator
from specscope_server.alerts.targets import Target, TargetError, parse_target

__all__ = ["Evaluator", "Target", "TargetError", "parse_target"]
