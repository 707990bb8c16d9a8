"""Options of ``specscope serve`` and ``specscope db prune`` for how long what is stored is kept."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Any, Final

import typer

from specscope_server.store.keep import GIB, Keep

STEPS: Final = "SPECSCOPE_RETENTION_STEPS_DAYS"
"""Days that chunks and prompts are kept, 0 for ever. Default 7."""
REQUESTS: Final = "SPECSCOPE_RETENTION_REQUESTS_DAYS"
"""Days that requests are kept, and other tools' spans and logs. Default 30."""
ROLLUPS: Final = "SPECSCOPE_RETENTION_ROLLUPS_DAYS"
"""Days that sums by 10 s are kept: acceptance, hidden states, ledger. Default 30."""
MINUTES: Final = "SPECSCOPE_RETENTION_MINUTES_DAYS"
"""Days that sums by the minute are kept. Default 400."""
ALERTS: Final = "SPECSCOPE_RETENTION_ALERTS_DAYS"
"""Days that closed findings, changes of alerts and sent notifications are kept. Default 90."""
ENGINES: Final = "SPECSCOPE_RETENTION_ENGINES_DAYS"
"""Days after which an engine that is not heard any more goes, with all that is left of it. Default 400."""
MAX_DB_GB: Final = "SPECSCOPE_MAX_DB_GB"
"""GiB that the database may have, else the oldest chunks go. Default 0: no limit."""

VARIABLES: Final = (STEPS, REQUESTS, ROLLUPS, MINUTES, ALERTS, ENGINES, MAX_DB_GB)

_YEARS: Final = 36_500
_LARGEST_GB: Final = 1 << 32


def _days(name: str, variable: str, what: str) -> Any:
    return typer.Option(
        f"--keep-{name}-days", envvar=variable, min=0, max=_YEARS, help=f"Days to keep {what}; 0: for ever."
    )


StepsDays = Annotated[int, _days("steps", STEPS, "steps and prompts")]
RequestsDays = Annotated[int, _days("requests", REQUESTS, "requests, foreign spans and logs")]
RollupsDays = Annotated[int, _days("rollups", ROLLUPS, "sums by 10 s")]
MinutesDays = Annotated[int, _days("minutes", MINUTES, "sums by the minute")]
AlertsDays = Annotated[int, _days("alerts", ALERTS, "closed findings and alert history")]
EnginesDays = Annotated[int, _days("engines", ENGINES, "engines that are not heard any more")]
MaxDbGb = Annotated[
    float,
    typer.Option(
        "--max-db-gb",
        envvar=MAX_DB_GB,
        min=0,
        max=_LARGEST_GB,
        help="GiB the database may have, else the oldest steps go; 0: any.",
    ),
]
DEFAULT: Final = Keep()


def keep_of(
    steps: int, requests: int, rollups: int, minutes: int, alerts: int, engines: int, max_db_gb: float
) -> Keep:
    """Return the options as the store takes them."""
    return Keep(steps, requests, rollups, minutes, alerts, engines, ceil(max_db_gb * GIB))
