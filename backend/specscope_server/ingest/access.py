"""Who may send: everyone, or who knows the ingest token."""

from __future__ import annotations

import hmac

from specscope_server.ingest.refusal import Refusal


def require_token(authorization: str | None, token: str) -> None:
    """Let an export in whose ``Authorization`` is ``Bearer`` and the token; an empty token lets all in.

    Raises:
        Refusal: 401, it is missing or another one.
    """
    if not token:
        return
    scheme, _, given = (authorization or "").partition(" ")
    # Compared in full whatever differs, so that the time it takes tells nothing of the token.
    same = hmac.compare_digest(given.strip().encode(), token.encode())
    if scheme.lower() != "bearer" or not same:
        raise Refusal(
            401,
            "this server takes exports with its ingest token alone: send 'authorization: Bearer TOKEN' "
            "(the tracer: SPECSCOPE_HEADERS=authorization=Bearer TOKEN)",
            headers={"WWW-Authenticate": "Bearer"},
        )
