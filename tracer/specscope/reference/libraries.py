"""torch, transformers and safetensors, which only this command needs."""

from __future__ import annotations

import importlib
from typing import Any, Final

from specscope.reference import Problem

EXTRA: Final = "specscope[replay]"


def library(name: str) -> Any:
    """Return an imported library of the extra.

    Raises:
        Problem: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Problem(
            f"'specscope fingerprint' runs the target, and {name} cannot be imported ({error}). "
            f"Install it with: pip install '{EXTRA}'"
        ) from error
