"""Making a silence from what a person says of it."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Final

from specscope_server.store.model import SilenceRow

MOST: Final = timedelta(days=366)
"""Longest silence: one that is forgotten must end by itself some day."""


class SilenceError(ValueError):
    """A silence that makes no sense; the message says why."""


def silence(
    *, rule: str, engine: str, starts: datetime, ends: datetime, author: str, comment: str, now: datetime
) -> SilenceRow:
    """Return a new silence; ``rule`` and ``engine`` (name or uid) are patterns with ``*``, empty: all.

    Raises:
        SilenceError: it would be over before it starts, lasts for more than a year, or says no reason.
    """
    if ends <= max(starts, now):
        raise SilenceError("ends: a silence ends after it starts, and later than now")
    if ends - starts > MOST:
        raise SilenceError(f"ends: a silence lasts for at most {MOST.days} days")
    if not comment.strip():
        raise SilenceError("comment: say why nobody has to hear of it")
    for name, text in (("rule", rule), ("engine", engine), ("author", author), ("comment", comment)):
        if len(text) > 500 or not (text.isprintable() or not text):
            raise SilenceError(f"{name}: a text of up to 500 printable characters")
    return SilenceRow(
        silence_uid=secrets.token_hex(8),
        rule=rule.strip(),
        engine=engine.strip(),
        starts=starts,
        ends=ends,
        created=now,
        author=author.strip(),
        comment=comment.strip(),
    )
