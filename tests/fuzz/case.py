"""One HTTP request as bytes: a line of JSON with method, path and headers, then the body.

A reproducer is therefore a file that a person can read. Bytes that have no such line are a body of the
default request, so that a fuzzer may do to them what it likes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, cast

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"


@dataclass(frozen=True)
class Case:
    """A request that somebody might send."""

    body: bytes = b""
    path: str = "/v1/traces"
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = (("content-type", PROTOBUF),)

    def header(self, name: str) -> str:
        """The first value of a header, empty when there is none."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    def with_header(self, name: str, value: str | None) -> tuple[tuple[str, str], ...]:
        """The headers with one replaced, or left out."""
        kept = tuple(pair for pair in self.headers if pair[0].lower() != name)
        return kept if value is None else (*kept, (name, value))

    def to_bytes(self) -> bytes:
        """The case as one piece."""
        about = {"method": self.method, "path": self.path, "headers": self.headers}
        return json.dumps(about).encode() + b"\n" + self.body


def parse(data: bytes) -> Case:
    """Read :meth:`Case.to_bytes`; anything else is a body."""
    line, _, body = data.partition(b"\n")
    try:
        about = cast("dict[str, Any]", json.loads(line))
        headers = tuple((str(name), str(value)) for name, value in about["headers"])
        return Case(body, str(about["path"]), str(about["method"]), headers)
    except (ValueError, KeyError, TypeError, RecursionError):
        return Case(data)
