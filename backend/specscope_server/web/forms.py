"""Forms that change something: where they may come from, and what is in them."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import HTTPException, Request

FORM: Final = "application/x-www-form-urlencoded"
MAX_BYTES: Final = 64 << 10


async def sent(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form that one of our own pages sent.

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
        found.setdefault(name, []).append(value.replace("\0", "\ufffd").strip())
    return found


def _from_us(request: Request) -> None:
    """Refuse what a page of another site sends in its reader's name (CSRF).

    There are no cookies, but whoever can reach this server is let in, and so is a page that they have open.
    Every browser of today says where a form comes from: by ``Sec-Fetch-Site``, which no page can set, and by
    ``Origin``. A name that another site points at this server fails before this, as an unknown host.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        raise HTTPException(403, "this form was sent by a page of another site: nothing was changed")
    origin = request.headers.get("origin")
    ours = request.headers.get("host", "").lower()
    # Only the host is compared: behind a proxy that speaks TLS this server sees another scheme.
    if origin is not None and urlsplit(origin).netloc.lower() != ours:
        raise HTTPException(403, f"this form was sent by a page of {origin[:100]}: nothing was changed")
    if site is None and origin is None:
        raise HTTPException(
            403,
            "this form does not say which page sent it: use a browser of today, or the API",
        )


def one(form: dict[str, list[str]], name: str) -> str:
    """Return the first value of a field, empty where there is none."""
    return form.get(name, [""])[0]
