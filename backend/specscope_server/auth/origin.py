"""Which site sent a request that changes something: a page of another one must not act for its reader."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers


def from_elsewhere(headers: Headers) -> str | None:
    """Return why a request may be a page's of another site (CSRF); ``None``: one of our pages sent it.

    Every browser of today says where a request comes from: by ``Sec-Fetch-Site``, which no page can set, and
    by ``Origin``. A name that another site points at this server fails before this, as an unknown host.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return "this form was sent by a page of another site: nothing was changed"
    origin = headers.get("origin")
    ours = headers.get("host", "").lower()
    # Only the host is compared: behind a proxy that speaks TLS this server sees another scheme.
    if origin is not None and urlsplit(origin).netloc.lower() != ours:
        return f"this form was sent by a page of {origin[:100]}: nothing was changed"
    if site is None and origin is None:
        return "this form does not say which page sent it: use a browser of today, or the API with a token"
    return None
