"""Content types and encodings of OTLP/HTTP, and bodies in the one the client speaks."""

from __future__ import annotations

from enum import Enum
from typing import Final

from fastapi import Response
from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.datastructures import Headers

from specscope_server.ingest.inflate import Encoding
from specscope_server.ingest.refusal import Refusal


class Format(Enum):
    """The two encodings of OTLP/HTTP, by their media type."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


SUPPORTED_TYPES: Final = ", ".join(f.value for f in Format)
SUPPORTED_ENCODINGS: Final = ", ".join(e.value for e in Encoding)


def format_of(headers: Headers) -> Format | None:
    """Return the format that ``Content-Type`` names, ``None`` when it is missing or another one."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    return next((f for f in Format if f.value == media), None)


def require_format(headers: Headers) -> Format:
    """Return the format of a request.

    Raises:
        Refusal: 415, the content type is missing or unknown.
    """
    found = format_of(headers)
    if found is None:
        raise Refusal(
            415, f"Content-Type must be one of {SUPPORTED_TYPES}", headers={"Accept": SUPPORTED_TYPES}
        )
    return found


def require_encoding(headers: Headers) -> Encoding:
    """Return how the body is compressed.

    Raises:
        Refusal: 415, ``Content-Encoding`` is not supported.
    """
    name = headers.get("content-encoding", "").strip().lower() or Encoding.IDENTITY.value
    for encoding in Encoding:
        if encoding.value == name:
            return encoding
    raise Refusal(
        415,
        f"Content-Encoding must be one of {SUPPORTED_ENCODINGS}",
        headers={"Accept-Encoding": SUPPORTED_ENCODINGS},
    )


def answer(
    message: Message, form: Format, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return ``message`` as the body of a response in the client's format."""
    if form is Format.JSON:
        body = json_format.MessageToJson(message, indent=None).encode()
    else:
        body = message.SerializeToString()
    return Response(body, status_code=status, media_type=form.value, headers=headers)


def refuse(refusal: Refusal, headers: Headers) -> Response:
    """Return the ``google.rpc.Status`` body of a refusal, as JSON where the request's own type is unknown."""
    return answer(refusal.rpc_status(), format_of(headers) or Format.JSON, refusal.status, refusal.headers)
