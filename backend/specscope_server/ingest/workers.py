"""Counters of several worker processes that add up: prometheus-client's shared directory."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Set for the workers; prometheus-client reads it when it is first imported."""
_LIVE: Final = re.compile(r"gauge_live\w*_(\d+)\.db")


@contextmanager
def shared_counters() -> Generator[Path]:
    """Let the processes started inside share their counters, in a directory that goes when the block ends.

    They must be spawned, not forked: prometheus-client decides at import where its values live. A directory
    that the environment names already is used, and kept.
    """
    if found := os.environ.get(DIRECTORY):
        Path(found).mkdir(parents=True, exist_ok=True)
        yield Path(found)
        return
    with tempfile.TemporaryDirectory(prefix="specscope-counters-") as made:
        os.environ[DIRECTORY] = made
        try:
            yield Path(made)
        finally:
            del os.environ[DIRECTORY]


def directory() -> Path | None:
    """Return where this process shares its counters, ``None`` where it is alone."""
    found = os.environ.get(DIRECTORY)
    return Path(found) if found else None


def forget_dead(where: Path) -> None:
    """Drop what ended workers had waiting; what they counted stays."""
    for path in where.glob("gauge_live*.db"):
        named = _LIVE.fullmatch(path.name)
        if named is not None and not _runs(int(named[1])):
            path.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
