"""OTLP in: decode, group, commit, acknowledge, in that order."""
