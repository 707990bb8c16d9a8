"""What endpoints that change something share: JSON bodies, which no page of another site can send."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from specscope_server.api.errors import ApiError

JSON = "application/json"


def _json_only(request: Request) -> None:
    """Refuse a body that a plain form of another site could send without asking first.

    Raises:
        ApiError: 415, the body is not called JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ApiError(415, "unsupported_media_type", f"this endpoint takes {JSON}", "Set Content-Type.")


JsonOnly = Annotated[None, Depends(_json_only)]
