"""Forms that change something: where they may come from, and what is in them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request

from specscope_server.auth import origin

FORM: Final = "application/x-www-form-urlencoded"
MAX_BYTES: Final = 64 << 10


async def sent(request: Request, keep: Collection[str] = ()) -> dict[str, list[str]]:
    """Return the fields of a form that one of our own pages sent, those of ``keep`` as they were typed.

    Raises:
        HTTPException: 403 where another site may have sent it, 413 or 415 where it is no form of ours.
    """
    _from_us(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        raise HTTPException(415, f"a form is sent as {FORM}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"the form has more than {MAX_BYTES} bytes")
    found: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=500)
    except ValueError as error:
        raise HTTPException(400, "the form cannot be read") from error
    for name, value in pairs:
        typed = value if name in keep else value.replace("\0", "\ufffd").strip()
        found.setdefault(name, []).append(typed)
    return found


def _from_us(request: Request) -> None:
    """Refuse what a page of another site sends in its reader's name (CSRF).

    Also without a session: whoever can reach an open server is let in, and so is a page that they have open.
    """
    elsewhere = origin.from_elsewhere(request.headers)
    if elsewhere is not None:
        raise HTTPException(403, elsewhere)


def one(form: dict[str, list[str]], name: str) -> str:
    """Return the first value of a field, empty where there is none."""
    return form.get(name, [""])[0]
