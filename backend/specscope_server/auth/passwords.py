"""Passwords: what is taken as one, and how they are kept (Argon2id, RFC 9106's choice for little memory)."""

from __future__ import annotations

from functools import cache
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MIN_CHARS: Final = 12
MAX_CHARS: Final = 1024
"""Hashing reads all of them."""

_hasher = PasswordHasher()


class PasswordError(ValueError):
    """It cannot be a password; the message says why and never what it was."""


def hashed(password: str, name: str = "") -> str:
    """Return what is kept of a password of the user ``name``. Takes some 50 ms and 64 MiB.

    Raises:
        PasswordError: it is too short, too long, or the user's name.
    """
    if len(password) < MIN_CHARS:
        raise PasswordError(f"a password has at least {MIN_CHARS} characters: several words make a good one")
    if len(password) > MAX_CHARS:
        raise PasswordError(f"a password has at most {MAX_CHARS} characters")
    if name and password.lower() == name.lower():
        raise PasswordError("a password is not the user's name")
    return _hasher.hash(password.encode("utf-8", "surrogatepass"))


def matches(kept: str | None, password: str) -> bool:
    """Say whether a password is the one that was kept; of an unknown user (``None``) it takes as long."""
    try:
        known = _hasher.verify(kept or _nobodys(), password[:MAX_CHARS].encode("utf-8", "surrogatepass"))
    except (VerificationError, InvalidHashError):
        return False
    return known and kept is not None


def outdated(kept: str) -> bool:
    """Say whether a password was kept with other parameters than are used now."""
    return _hasher.check_needs_rehash(kept)


@cache
def _nobodys() -> str:
    return _hasher.hash("nobody has this password")
