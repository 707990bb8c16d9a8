"""Runs docker-compose.yml for real; see run.sh."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from scripts.system import ROOT, SetupError, locked, say
from tests.compose import story
from tests.compose.daemon import docker_daemon, forget_settings, require_programs
from tests.compose.images import make_base, make_postgres, wheels
from tests.compose.stack import Stack

WORK = Path(tempfile.gettempdir()) / "specscope-compose-test"
"""Always the same folder, so that the next run removes what a killed one left."""
LOG = ROOT / "artifacts" / "compose-test.log"


def main() -> int:
    """Return 0 when every check passed, 1 at the first that failed or could not be made."""
    parser = argparse.ArgumentParser(prog="compose-test", description=__doc__)
    parser.add_argument("--without-demo", action="store_true", help="PostgreSQL and the server only")
    options = parser.parse_args()
    forget_settings()
    signal.signal(signal.SIGTERM, _leave)
    LOG.parent.mkdir(exist_ok=True)
    LOG.unlink(missing_ok=True)
    checks = story.Checks()
    failed = 0
    try:
        with locked(WORK.with_suffix(".lock"), f"another compose-test runs; it holds {WORK}.lock"):
            require_programs(LOG)
            with docker_daemon(WORK) as environment, wheels(Path(sys.executable)) as find_links:
                make_base(WORK, find_links, environment, LOG)
                make_postgres(environment, LOG)
                story.tell(Stack(environment, LOG), checks, demo=not options.without_demo)
            checks.expect("the daemon is gone and so is all it kept", not WORK.exists(), WORK)
    except SetupError as error:
        failed = 1
        print(f"compose-test: {error}\nThe whole log is {LOG.relative_to(ROOT)}", file=sys.stderr)
    say("compose-test is done")
    print(f"{checks.passed} passed, {failed} failed")
    return failed


def _leave(_number: int, _frame: FrameType | None) -> None:
    # Unwinds like Ctrl-C, so that the daemon and its files go.
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
