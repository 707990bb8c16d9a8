"""Who may send, and to which workspace: everyone, or who shows the server's token or one of a workspace."""

from __future__ import annotations

from typing import Final

from specscope_server.auth.door import Door, bearer_token, same_text
from specscope_server.ingest.refusal import Refusal
from specscope_server.store.port import StoreError

ANY_WORKSPACE: Final = ""
"""An export goes where it says itself."""


async def workspace_of(authorization: str | None, token: str, door: Door) -> str:
    """Return the workspace that an export with this ``Authorization`` goes to.

    ``token`` is the server's own, which sends to any workspace; empty: there is none.

    Raises:
        Refusal: 401, a token is missing or not known; 403, it is not for sending; 503, nobody can be looked
            up.
    """
    given = bearer_token(authorization or "")
    if token and given is not None and same_text(given, token):
        return ANY_WORKSPACE
    try:
        if not token and not await door.closed():
            return ANY_WORKSPACE
        caller = None if given is None else await door.bearer(f"Bearer {given}")
    except StoreError as error:
        raise Refusal(503, f"not stored: who may send cannot be looked up: {error}") from error
    if caller is None:
        raise Refusal(
            401,
            "this server takes exports with a token alone: send 'authorization: Bearer TOKEN' with its "
            "ingest token, or with one of `specscope token add --scope ingest` "
            "(the tracer: SPECSCOPE_HEADERS=authorization=Bearer TOKEN)",
            headers={"WWW-Authenticate": "Bearer"},
        )
    if not caller.ingest:
        raise Refusal(403, "this token is not for sending: use one of `specscope token add --scope ingest`")
    return caller.workspace
