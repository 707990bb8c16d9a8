"""Static files from the package: compressed once, cached by the browser for ever under their content hash."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import Request, Response
from specscope_frontend import STATIC

COMPRESS_FROM = 1024
"""Bytes below which compression saves nothing worth a header."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file in memory; all of them together are under 3 MiB."""

    body: bytes
    gzipped: bytes | None
    media_type: str
    digest: str


@cache
def _files() -> dict[str, Path]:
    return {p.relative_to(STATIC).as_posix(): p for p in STATIC.rglob("*") if p.is_file()}


@cache
def load(name: str) -> Asset | None:
    """Return the file of that name below ``static/``, ``None`` when there is none.

    Names are looked up in a list made from the package, never joined to a path.
    """
    path = _files().get(name)
    if path is None:
        return None
    body = path.read_bytes()
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    textual = media_type.startswith("text/") or media_type in ("application/json", "image/svg+xml")
    if textual:
        media_type += "; charset=utf-8"
    # mtime=0 keeps the bytes the same for the same file.
    small = len(body) < COMPRESS_FROM or not textual
    gzipped = None if small else gzip.compress(body, 9, mtime=0)
    return Asset(body, gzipped, media_type, hashlib.sha256(body).hexdigest()[:16])


def url(name: str) -> str:
    """Return the URL of a static file, with its content hash so that a new version is fetched.

    Raises:
        LookupError: the package has no such file.
    """
    asset = load(name)
    if asset is None:
        raise LookupError(f"no static file {name!r}")
    return f"/static/{name}?v={asset.digest}"


def respond(request: Request, name: str) -> Response | None:
    """Return the file as a response, ``None`` when there is none of that name."""
    asset = load(name)
    if asset is None:
        return None
    current = request.query_params.get("v") == asset.digest
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if current else "no-cache",
        "ETag": f'"{asset.digest}"',
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if asset.gzipped is not None and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.gzipped, media_type=asset.media_type, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)
