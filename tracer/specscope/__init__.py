"""SpecScope's tracer: what runs beside the model, and the ``specscope`` command."""

from specscope.version import __version__

__all__ = ["__version__"]
