"""Session cookies: who signed in, and when, signed with a key of that user's.

Whoever changes the key ends every session of the user: a sign-out does, and so does another password. A
cookie is made at each sign-in, from nothing that was there before, so that nobody can hand somebody theirs.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from itsdangerous import BadSignature, TimestampSigner

COOKIE: Final = "specscope_session"
MAX_CHARS: Final = 512
_SEPARATOR: Final = ":"


def issue(name: str, session_key: str) -> str:
    """Return a cookie for a user who has just signed in."""
    return _signer(session_key).sign(f"{name}{_SEPARATOR}{secrets.token_urlsafe(9)}").decode()


def claimed(cookie: str) -> str | None:
    """Return whose cookie it claims to be; nothing says yet that it is. ``None``: it is none of ours."""
    if len(cookie) > MAX_CHARS or not cookie.isascii():
        return None
    name, found, _ = cookie.rpartition(_SEPARATOR)
    return name if found and name else None


def holds(cookie: str, session_key: str, max_age_s: int) -> bool:
    """Say whether a cookie was signed with a key, less than so many seconds ago."""
    try:
        _signer(session_key).unsign(cookie, max_age=max_age_s)
    except BadSignature:
        return False
    return True


def _signer(session_key: str) -> TimestampSigner:
    return TimestampSigner(
        session_key, salt="specscope.session", key_derivation="hmac", digest_method=hashlib.sha256
    )
