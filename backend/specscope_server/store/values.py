"""Values on their way in and out of the database: times, ids, text and numbers that every database takes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import Text, TypeDecorator
from sqlalchemy.engine import Dialect

from specscope_server.store.port import Refused

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEY_CHARS = 128
"""Longest text kept in a key: PostgreSQL refuses index rows over 2704 bytes, and a key has up to five."""
LINE_CHARS = 512
"""Longest text kept elsewhere (rid, model name, reason): they are shown on one line and searched."""
MAX_COUNT = 2**40
"""Largest count taken in: 30 years of 1000 a second, and eight million of them still add up in 64 bits."""
MAX_NS = 2**62
"""Largest duration or sequence number taken in."""
LARGE = 1024
"""Characters of a JSON text from which on it is a configuration: long, and the same for long."""
MAX_LARGE = 256
"""Of these so many are remembered, unpacked: each engine's is asked for every two seconds."""


def engine_uid(workspace: str, environment: str, instance: str) -> str:
    """Return the 16 hex digits that name an engine in URLs; the same launch always gets the same ones."""
    digest = hashlib.blake2b(digest_size=8, person=b"specscope.v1")
    for part in ("engine", workspace, environment, instance):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "little") + data)
    return digest.hexdigest()


def to_ns(moment: datetime) -> int:
    """Return nanoseconds since 1970.

    Raises:
        ValueError: the time has no zone.
    """
    if moment.tzinfo is None:
        raise ValueError(f"time {moment.isoformat()} has no zone; give one, e.g. datetime.now(UTC)")
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def from_ns(value: int) -> datetime:
    """Return a UTC time, to the microsecond."""
    return EPOCH + timedelta(microseconds=value // 1000)


def optional_from_ns(value: int | None) -> datetime | None:
    """Return a UTC time, or ``None``."""
    return None if value is None else from_ns(value)


def clean(value: str, limit: int = LINE_CHARS) -> str:
    """Return text that every database stores alike: no NUL, no lone surrogate, not too long."""
    if len(value) <= limit and value.isascii() and "\0" not in value:  # nearly all
        return value
    return value[:limit].replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def key(value: str) -> str:
    """Return text fit for a key, see :data:`KEY_CHARS`."""
    if len(value) <= KEY_CHARS and value.isascii() and "\0" not in value:
        return value
    return clean(value, KEY_CHARS)


def count(value: int, what: str, limit: int = MAX_COUNT) -> int:
    """Return a count as it came.

    Raises:
        Refused: it is negative or over the limit; ``what`` names it.
    """
    if not 0 <= value <= limit:
        raise Refused(f"{what} is {value}, outside 0..{limit}")
    return value


def optional_count(value: int | None, what: str) -> int | None:
    """Return a count as it came, or ``None`` for one that was not told.

    Raises:
        Refused: see :func:`count`.
    """
    return None if value is None else count(value, what)


def finite(value: float | None) -> float | None:
    """Return the number, ``None`` for what is not finite: SQLite keeps NaN as NULL, PostgreSQL does not."""
    return value if value is not None and math.isfinite(value) else None


def _plain(value: object) -> object:
    """Return ``value`` with non-finite numbers as ``None`` and everything unknown to JSON as text."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in cast("list[object]", value)]
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


def packed_json(value: Mapping[str, Any]) -> str:
    """Return an object as :class:`JsonText` keeps it."""
    return json.dumps(_plain(value), sort_keys=True)


def unpacked_json(value: str | None) -> Mapping[str, Any]:
    """Return an object that :class:`JsonText` keeps; it is shared, and nobody may change it."""
    if not value:
        return {}
    return _unpacked_large(value) if len(value) > LARGE else cast("Mapping[str, Any]", json.loads(value))


@lru_cache(MAX_LARGE)
def _unpacked_large(value: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", json.loads(value))


class JsonText(TypeDecorator[Mapping[str, Any]]):
    """A JSON object as text with sorted keys: the same bytes in every database, whatever is in it.

    PostgreSQL's own ``jsonb`` refuses NUL escapes and both ``json`` types refuse NaN, and an engine may
    send either.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: Dialect) -> str | None:
        """Pack an object."""
        return None if value is None else packed_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, Any]:
        """Unpack an object."""
        return unpacked_json(value)
