"""Signing in: a name and a password for a cookie, not too many tries, each of them in the audit trail."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from anyio import CapacityLimiter, to_thread

from specscope_server.auth import passwords, sessions
from specscope_server.auth.model import Act, User
from specscope_server.auth.names import BadName, user_name
from specscope_server.store.accounts import SIGN_IN_FAILED, Accounts

WINDOW: Final = timedelta(minutes=5)
"""Time in which failed tries are counted."""
MOST_BOTH: Final = 5
"""Failed tries as one user from one address, after which it is to wait."""
MOST_ADDRESS: Final = 30
MOST_NAME: Final = 60
"""The same as one user from wherever: many addresses must not keep that user out too easily."""
AT_ONCE: Final = 2
"""Passwords compared at once: each takes 64 MiB."""
SIGNED_IN: Final = "signed in"


class NotSignedIn(Exception):
    """The message says why, and nothing of what was wrong. ``wait``: too many tries were made."""

    def __init__(self, message: str, *, wait: bool = False) -> None:
        """Say why."""
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who signed in, and the cookie that says so from now on."""

    name: str
    cookie: str


class SigningIn:
    """Compares passwords. Belongs to one event loop."""

    def __init__(self, accounts: Accounts) -> None:
        """Know the users of ``accounts``."""
        self._accounts = accounts
        self._limiter = CapacityLimiter(AT_ONCE)

    async def sign_in(self, name: str, password: str, address: str) -> SignedIn:
        """Return the cookie of a user.

        Raises:
            NotSignedIn: the name or the password is wrong, or too many tries were.
            StoreError: the database cannot serve.
        """
        return await to_thread.run_sync(self._sign_in, name, password, address, limiter=self._limiter)

    def _sign_in(self, name: str, password: str, address: str) -> SignedIn:
        now = datetime.now(UTC)
        user = self._user(name)
        who = _unknown(name) if user is None else user.name
        failed = self._accounts.failures(now - WINDOW, who, address)
        if failed.both >= MOST_BOTH or failed.address >= MOST_ADDRESS or failed.name >= MOST_NAME:
            raise NotSignedIn("Too many tries failed. Wait five minutes and try again.", wait=True)
        if not passwords.matches(None if user is None else user.password, password) or user is None:
            self._accounts.note(Act(now, "", who, SIGN_IN_FAILED, "", address))
            raise NotSignedIn("The name or the password is wrong.")
        anew = passwords.hashed(password) if passwords.outdated(user.password) else None
        self._accounts.signed_in(user.name, now, anew)
        self._accounts.note(Act(now, user.workspace, user.name, SIGNED_IN, user.role.word, address))
        return SignedIn(user.name, sessions.issue(user.name, user.session_key))

    def _user(self, name: str) -> User | None:
        try:
            return self._accounts.user(user_name(name))
        except BadName:
            return None


_SALT: Final = secrets.token_bytes(16)


def _unknown(name: str) -> str:
    """Return what is noted of a name that is no user's: somebody may have typed a password there."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=2, key=_SALT).hexdigest()
    return f"no user ({digest})"
