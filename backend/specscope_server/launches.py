"""Which launch a name means: an engine is one launch, and its name outlives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from specscope_server.diagnosis.state import ENDED, SILENT

Engine = Mapping[str, Any]
"""An engine as the API tells it."""


def meant(
    launches: Sequence[Engine], since: datetime | None = None, until: datetime | None = None
) -> Sequence[Engine]:
    """Return those of several launches of one name that are meant; more than one: the name does not say.

    From ``since`` to ``until`` those that were heard in that time. Up to now (``until`` is ``None``) the ones
    that are heard, and where none is, the last one if the others had gone before it started.
    """
    if since is not None:
        end = until.timestamp() if until is not None else float("inf")
        lived = [
            one
            for one in launches
            if _at(one["started"]) < end and _at(one["last_received"]) >= since.timestamp()
        ]
        launches = lived or launches
    if until is not None or len(launches) < 2:
        return launches
    heard = [one for one in launches if one["state"] not in (ENDED, SILENT)]
    if heard:
        return heard
    last = max(launches, key=lambda one: _at(one["started"]))
    others = (one for one in launches if one is not last)
    return [last] if all(_at(one["last_received"]) <= _at(last["started"]) for one in others) else launches


def _at(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
