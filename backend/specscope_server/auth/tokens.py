"""API tokens: made, read, compared. Of a token only a hash is kept; it is shown once."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

PREFIX: Final = "specscope"
"""Begins every token, so that scanners for leaked secrets know it."""
_FORM: Final = re.compile(rf"{PREFIX}_([0-9a-f]{{16}})_([A-Za-z0-9_-]{{43}})")


def new_token() -> tuple[str, str, str]:
    """Return a new token, its uid, and the hash to keep of its secret (256 random bits)."""
    uid, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return f"{PREFIX}_{uid}_{secret}", uid, _hash(secret)


def parts(token: str) -> tuple[str, str] | None:
    """Return a token's uid and secret; ``None``: it is none of ours."""
    found = _FORM.fullmatch(token)
    return None if found is None else (found[1], found[2])


def same(secret: str, kept: str) -> bool:
    """Say whether a secret is the one whose hash was kept, in a time that does not tell how far it is."""
    return hmac.compare_digest(_hash(secret), kept)


def new_session_key() -> str:
    """Return a new key for a user's cookies."""
    return secrets.token_urlsafe(32)


def _hash(secret: str) -> str:
    # Nobody guesses 256 bits: a slow hash as for passwords would only slow down each export.
    return hashlib.sha256(secret.encode()).hexdigest()
