"""Hostile values made safe: every attribute is read through here, with its type and range checked."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar, cast

from opentelemetry.proto.common.v1.common_pb2 import ArrayValue, KeyValue, KeyValueList
from specscope import columns

MAX_COUNT: Final = (1 << 53) - 1
"""Largest count: exact in JSON numbers, and 1024 of them still fit a 64-bit sum in the database."""
MAX_SMALL: Final = (1 << 31) - 1
"""Largest rank, pid, sequence number or token count: a 32-bit column."""
MAX_TIME_NS: Final = 7_258_118_400 * 1_000_000_000
"""2200-01-01 in ns since 1970. Wrong clocks are kept and flagged; past this it is no clock."""
MAX_NAME: Final = 128
"""Characters of a name that identifies something; longer ones are refused, not cut: cutting would merge."""
MAX_TEXT: Final = 512
"""Characters of other texts (request ids, reasons, model names); longer ones are cut, and the client told."""
MAX_REASON: Final = 300
"""Characters of a reason; it may quote what a client sent."""
MAX_OPENED: Final = 128 << 20
"""Raw bytes of all packed columns of one export, some times what the largest one of ours has. Each kilobyte
could be unpacked into four megabytes, which takes a tenth of a second."""
MAX_CONFIG: Final = 256 << 10
"""Bytes of an engine's configuration as JSON text."""
MAX_NESTING: Final = 64
"""Objects and lists in one another in a configuration. Ours nest five; the API's JSON writer fails at 255."""

V = TypeVar("V")

_HEX: Final = "0123456789abcdef"
Field = tuple[str, type, int, int]
"""Name, type, and for integers the least and largest value."""


class Invalid(ValueError):
    """A resource, span or point that cannot be stored; the message names the attribute and what is wrong."""


@dataclass(slots=True)
class Tally:
    """What became of the spans or points of one export, with reasons and how often each applied."""

    accepted: int = 0
    foreign: int = 0
    rejected: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])
    notes: Counter[str] = field(default_factory=Counter[str])
    opened: int = 0
    """Raw bytes that the packed columns of the export say they have."""

    def open(self, blob: bytes) -> None:
        """Count the raw bytes of packed columns, as their header tells them.

        Raises:
            Invalid: the export has had its share of them.
        """
        self.opened += int.from_bytes(blob[8:12], "little")
        if self.opened > MAX_OPENED:
            raise Invalid(f"packed columns of more than {MAX_OPENED >> 20} MiB in one export, unpacked")

    def reject(self, reason: str, count: int = 1) -> None:
        """Count ``count`` items as rejected for ``reason``."""
        self.rejected += count
        self.reasons[reason if len(reason) <= MAX_REASON else reason[:MAX_REASON] + "…"] += count

    def too_old(self, count: int) -> None:
        """Count accepted items that the store left out after all: their keys may be forgotten."""
        if count:
            self.accepted -= min(count, self.accepted)
            self.reject("older than what is kept", count)

    def explain(self, most: int = 5) -> str:
        """Return the most frequent reasons and notes as one line, empty when there is nothing to say."""
        told = [*self.reasons.most_common(most), *self.notes.most_common(most)]
        left = len(self.reasons) + len(self.notes) - len(told)
        parts = [text if count == 1 else f"{text} ({count} times)" for text, count in told]
        return "; ".join([*parts, f"and {left} more"] if left > 0 else parts)


def clean(text: str) -> str:
    """Return ``text`` without what databases refuse: NUL and lone surrogates become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def clean_json(value: object, depth: int = 0) -> Any:
    """Return decoded JSON with clean texts, and numbers that JSON cannot hold written as text.

    Raises:
        ValueError: it is nested more than :data:`MAX_NESTING` deep.
    """
    if depth > MAX_NESTING:
        raise ValueError(f"it is nested more than {MAX_NESTING} deep")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [clean_json(v, depth + 1) for v in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {clean(str(k)): clean_json(v, depth + 1) for k, v in items}
    return value


_NAMES: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "int",
    float: "double",
    bytes: "bytes",
    ArrayValue: "array",
    KeyValueList: "kvlist",
}
"""Types that a value has once it is read, as messages name them."""


def _named(wanted: type) -> str:
    return _NAMES.get(wanted, wanted.__name__)


class Attributes:
    """The attributes of one resource, span or point. A value of another type than asked for is invalid."""

    __slots__ = ("_tally", "_values")

    def __init__(self, values: Mapping[str, object], tally: Tally) -> None:
        """Take attributes by name, ``None`` where one has no value. Notes about cut texts go to ``tally``."""
        self._values = values
        self._tally = tally

    @classmethod
    def of(cls, pairs: Iterable[KeyValue], tally: Tally) -> Attributes:
        """Read ``pairs``; of a doubled key the last counts."""
        values: dict[str, object] = {}
        for pair in pairs:
            kind = pair.value.WhichOneof("value")
            values[pair.key] = None if kind is None else getattr(pair.value, kind)
        return cls(values, tally)

    def _get(self, name: str, wanted: type[V]) -> V | None:
        value = self._values.get(name)
        if value is None or type(value) is wanted:
            return value  # pyright: ignore[reportReturnType] - a cast costs as much as the rest
        raise Invalid(f"{name} is a {_named(type(value))}, not a {_named(wanted)}")

    def fields(self, wanted: tuple[Field, ...]) -> list[Any]:
        """Return the values of many fields at once, ``None`` where one is absent."""
        get = self._values.get
        found: list[Any] = []
        for name, kind, low, high in wanted:
            value = get(name)
            if value is not None:
                if type(value) is not kind:
                    self._get(name, kind)  # says what is wrong
                if kind is int and not low <= value <= high:  # pyright: ignore[reportOperatorIssue]
                    raise Invalid(f"{name} is {value}, not from {low} to {high}")
            found.append(value)
        return found

    def text(self, name: str, default: str = "", limit: int = MAX_TEXT) -> str:
        """Return a text, cleaned, and cut at ``limit`` characters with a note."""
        value = self._get(name, str)
        if value is None:
            return default
        text = value if value.isascii() and "\0" not in value else clean(value)
        if len(text) > limit:
            self._tally.notes[f"{name} was cut to {limit} characters"] += 1
            text = text[:limit]
        return text

    def name(self, name: str, default: str | None = None) -> str:
        """Return an identifying text of at most 128 characters, never cut.

        Without ``default`` it must be there.
        """
        text = self._get(name, str)
        if not text:
            if default is None:
                _missing(name)
            return default
        if len(text) > MAX_NAME:
            raise Invalid(f"{name} has {len(text)} characters, at most {MAX_NAME} are allowed")
        if not text.isprintable():
            raise Invalid(f"{name} holds characters that cannot be printed")
        return text

    def hex_id(self, name: str) -> str:
        """Return an id of 32 lower-case hex digits, which must be there."""
        value = self._get(name, str)
        if value is None:
            _missing(name)
        if len(value) != 32 or value.strip(_HEX):
            raise Invalid(f"{name} is not 32 lower-case hex digits")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """Return one of ``allowed``. Without ``default`` it must be there."""
        value = self._get(name, str)
        if value is None:
            if default is None:
                _missing(name)
            return default
        if value not in allowed:
            raise Invalid(f"{name} is none of {', '.join(allowed)}")
        return value

    def integer(self, name: str, high: int = MAX_COUNT, low: int = 0) -> int | None:
        """Return an integer from ``low`` to ``high``, ``None`` when absent."""
        value = self._get(name, int)
        if value is not None and not low <= value <= high:
            raise Invalid(f"{name} is {value}, not from {low} to {high}")
        return value

    def required(self, name: str, high: int = MAX_COUNT, low: int = 0) -> int:
        """Return an integer that must be there."""
        value = self.integer(name, high, low)
        if value is None:
            _missing(name)
        return value

    def number(self, name: str, high: float = 1e12) -> float | None:
        """Return a finite number from 0 to ``high``, ``None`` when absent; an integer will do."""
        value = self._values.get(name)
        if value is None:
            return None
        if type(value) is not float and type(value) is not int:
            raise Invalid(f"{name} is a {_named(type(value))}, not a number")
        found = float(value)
        if not (math.isfinite(found) and 0 <= found <= high):
            raise Invalid(f"{name} is {found}, not from 0 to {high:g}")
        return found

    def flag(self, name: str) -> bool | None:
        """Return a boolean, ``None`` when absent."""
        return self._get(name, bool)

    def data(self, name: str, limit: int) -> bytes | None:
        """Return bytes, ``None`` when absent."""
        value = self._get(name, bytes)
        if value is not None and len(value) > limit:
            raise Invalid(f"{name} has {len(value)} bytes, at most {limit} are allowed")
        if value is not None and value.startswith(columns.MAGIC):
            self._tally.open(value)
        return value

    def first_text(self, name: str) -> str | None:
        """Return the first text of a list of texts, ``None`` when absent or empty."""
        value = self._get(name, ArrayValue)
        if value is None or not value.values:
            return None
        first = value.values[0]
        if first.WhichOneof("value") != "string_value":
            raise Invalid(f"{name} is not a list of texts")
        return clean(first.string_value)[:MAX_TEXT]

    def json_object(self, name: str) -> dict[str, Any]:
        """Return a JSON object sent as text, empty when absent."""
        value = self._get(name, str)
        if value is None:
            return {}
        if len(value) > MAX_CONFIG:
            raise Invalid(f"{name} has {len(value)} characters, at most {MAX_CONFIG} are allowed")
        try:
            document = clean_json(json.loads(value))
        except (ValueError, RecursionError) as error:
            raise Invalid(f"{name} is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise Invalid(f"{name} is not a JSON object")
        return cast("dict[str, Any]", document)


def _missing(name: str) -> NoReturn:
    raise Invalid(f"{name} is missing")


def time_ns(value: int, what: str) -> int:
    """Return a time in ns since 1970.

    Raises:
        Invalid: it is unset, or past the year 2200.
    """
    if not 0 < value <= MAX_TIME_NS:
        raise Invalid(f"{what} is {value}, not a time in ns from 1970 to 2200")
    return value
