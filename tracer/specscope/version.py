"""The version of the whole distribution: tracer, server and pages are released together."""

__version__ = "0.1.0"
