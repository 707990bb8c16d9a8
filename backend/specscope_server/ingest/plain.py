"""Another tool's names and values as a line can show them: short, clean, without bytes and mappings."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from specscope_server.ingest.values import clean

MAX_ATTRIBUTES: Final = 24
"""Attributes kept of one span or record, the first ones; SGLang sends up to some twenty."""
MAX_NAME: Final = 200
MAX_VALUE: Final = 200
"""Characters kept of a name or an attribute's value. What is cut is another tool's, which has it whole."""


def name(text: str) -> str:
    """Return a name, clean and cut."""
    return clean(text[:MAX_NAME])


def attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Return the first attributes; of a doubled one the last counts."""
    return {name(pair.key): value(pair.value) for pair in islice(pairs, MAX_ATTRIBUTES)}


def value(told: AnyValue, limit: int = MAX_VALUE) -> Any:
    """Return numbers and truth values as they are, all else as text of at most ``limit`` characters."""
    kind = told.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(told, kind)
    if kind == "double_value":
        return found if abs(found) < 1e308 else str(found)
    if kind in ("bool_value", "int_value"):
        return found
    if kind == "array_value":
        text = ", ".join(_in_array(one) for one in told.array_value.values[:MAX_ATTRIBUTES])
    elif kind == "string_value":
        text = told.string_value
    else:  # bytes, or a mapping: nothing that a line could show
        text = kind.removesuffix("_value")
    return clean(text[:limit])


def _in_array(told: AnyValue) -> str:
    """Return what stands in an array; of one within another no more than that it is one.

    Each might hold 24 others, and so on, all of which would be read for a text of 200 characters.
    """
    return "array" if told.WhichOneof("value") == "array_value" else str(value(told))


def text(told: AnyValue, limit: int) -> str:
    """Return a body as text of at most ``limit`` characters; empty where there is none.

    A mapping is told as ``key=value`` pairs, one level of it.
    """
    if told.WhichOneof("value") == "kvlist_value":
        pairs = attributes(told.kvlist_value.values)
        return ", ".join(f"{key}={found}" for key, found in pairs.items())[:limit]
    found = value(told, limit)
    return "" if found is None else str(found)
