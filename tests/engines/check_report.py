"""Runs the checks of a script in SGLang's environment and prints what became of each, for a test to read."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence


def report(checks: Sequence[Callable[[], None]]) -> None:
    """Print one JSON line: the traceback of each check by its name, empty where it passed."""
    told: dict[str, str] = {}
    for check in checks:
        try:
            check()
        except Exception:
            told[check.__name__] = traceback.format_exc()
        else:
            told[check.__name__] = ""
    print(json.dumps(told))
