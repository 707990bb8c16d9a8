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
_OLDER: Final = "prometheus_multiproc_dir"
"""Its name in older versions, which prometheus-client still looks at."""
_PREFIX: Final = "specscope-counters-"
"""Begins the names of the directories that are ours."""
_LIVE: Final = re.compile(r"gauge_live\w*_(\d+)\.db")


@contextmanager
def shared_counters() -> Generator[Path]:
    """Let the processes started inside share their counters, in a directory that goes when the block ends.

    They must be spawned, not forked: prometheus-client decides at import where its values live.
    """
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as made:
        os.environ[DIRECTORY] = made
        try:
            yield Path(made)
        finally:
            del os.environ[DIRECTORY]


def directory() -> Path | None:
    """Return where this process shares its counters, ``None`` where it is alone."""
    found = os.environ.get(DIRECTORY)
    return Path(found) if found and Path(found).name.startswith(_PREFIX) else None


def leave_others_alone() -> None:
    """Forget a directory that the environment names for other programs.

    Inference engines are started with one. In it our counters would stand among theirs and those of servers
    that ran before, and where it is missing prometheus-client fails. To be called before that is imported.
    """
    if directory() is None:
        os.environ.pop(DIRECTORY, None)
    os.environ.pop(_OLDER, None)


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
