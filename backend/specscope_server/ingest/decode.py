"""From the bytes of a body to OTLP messages, for both encodings."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final, NoReturn, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from specscope_server.ingest.content import Format
from specscope_server.ingest.refusal import Refusal

M = TypeVar("M", bound=Message)

HEX_IDS: Final = frozenset({"traceId", "spanId", "parentSpanId"})
"""Fields that OTLP's JSON writes in hex where protobuf's own JSON writes base64."""
MAX_OBJECTS: Final = 1_000_000
"""Opening braces in a JSON body. Each object costs protobuf's parser about 6 µs, whatever it holds: the
largest body of spans of 600 bytes has some 600,000, one of empty spans would take minutes."""
MAX_VALUES: Final = 3_000_000
"""Fields of all objects and entries of all lists in a JSON body, each 2 to 3 µs whether it is known or not;
:data:`MAX_OBJECTS` of attributes have two million."""


def decode(body: bytes, form: Format, message: M) -> M:
    """Fill ``message`` from a body and return it; unknown fields are ignored.

    Raises:
        Refusal: 400, the body is not such a message; 413, it is JSON of more parts than can be read in time.
    """
    if form is Format.PROTOBUF:
        try:
            message.ParseFromString(body)
        except DecodeError as error:
            raise Refusal(400, f"the body is not a protobuf {message.DESCRIPTOR.name}: {error}") from error
        return message
    if body.count(b"{") > MAX_OBJECTS:
        raise Refusal(413, f"the JSON body holds more than {MAX_OBJECTS} objects: send smaller batches")
    try:
        read: object = json.loads(body.decode(), parse_constant=_refuse_constant)
        if not isinstance(read, dict):
            raise TypeError("it is not an object")
        document = cast("dict[str, Any]", read)
        _hex_to_base64(document)
        json_format.ParseDict(document, message, ignore_unknown_fields=True)
    except RecursionError as error:
        raise Refusal(400, "the JSON body is nested too deeply") from error
    except (ValueError, TypeError, json_format.ParseError) as error:
        raise Refusal(400, f"the body is not a JSON {message.DESCRIPTOR.name}: {_short(error)}") from error
    return message


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _short(error: Exception) -> str:
    text = str(error).rstrip(".")
    return text if len(text) <= 300 else text[:300] + "…"


def _hex_to_base64(document: object) -> None:
    """Rewrite the ids in place. Attribute keys are values in OTLP's JSON, so no key can be mistaken.

    Raises:
        Refusal: 413, the document holds more than :data:`MAX_VALUES`.
        ValueError: an id is not hex.
    """
    pending: list[object] = [document]
    found = 0
    while pending:
        node = pending.pop()
        if isinstance(node, (list, dict)):
            found += len(cast("list[object] | dict[str, Any]", node))
            if found > MAX_VALUES:
                raise Refusal(413, f"the JSON body holds more than {MAX_VALUES} values: send smaller batches")
        if isinstance(node, list):
            pending.extend(cast("list[object]", node))
        elif isinstance(node, dict):
            fields = cast("dict[str, Any]", node)
            for name, value in fields.items():
                if name in HEX_IDS and isinstance(value, str):
                    try:
                        fields[name] = base64.b64encode(binascii.unhexlify(value)).decode()
                    except ValueError as error:
                        raise ValueError(f"{name} {value[:40]!r} is not hex: {error}") from error
                else:
                    pending.append(value)
