"""Who a request comes from: by token, by cookie, or anybody where nobody has to sign in.

What the database says is remembered for seconds, so that an export costs no query; what changes at one server
is noticed by the others, and by its other workers, when that time is over.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from anyio import CapacityLimiter, to_thread

from specscope_server.auth import sessions, tokens
from specscope_server.auth.model import ANYBODY, Caller, Scope, Token
from specscope_server.store.accounts import Accounts
from specscope_server.store.port import StoreError

REMEMBERED_S: Final = 5.0
"""Seconds for which what was looked up is taken to hold."""
MAX_REMEMBERED: Final = 4096
USED_EVERY: Final = timedelta(minutes=1)
"""How often the use of a token is noted."""
LOOK_UPS: Final = 4
"""Looked up at once: each may hold a database connection."""

_log = logging.getLogger(__name__)


class Door:
    """Tells callers apart. Belongs to one event loop; :meth:`forget` may be called from any thread."""

    def __init__(
        self,
        accounts: Accounts,
        *,
        required: bool = False,
        session_s: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Let in by ``accounts``; ``required``: also where there is no user and no token yet."""
        self.session_s = session_s
        self._accounts, self._required, self._clock = accounts, required, clock
        self._limiter = CapacityLimiter(LOOK_UPS)
        self._closed: tuple[bool, float] = (False, float("-inf"))
        self._known: dict[str, tuple[Caller, float]] = {}

    async def closed(self) -> bool:
        """Say whether people have to sign in.

        Raises:
            StoreError: the database cannot be read.
        """
        if self._required:
            return True
        known, until = self._closed
        if self._clock() >= until:
            known = await to_thread.run_sync(self._accounts.exist, limiter=self._limiter)
            self._closed = (known, self._clock() + REMEMBERED_S)
        return known

    async def caller(self, authorization: str | None, cookie: str | None) -> Caller | None:
        """Return who asks; ``None``: nobody that is known, or one whose token or session has ended.

        Raises:
            StoreError: the database cannot be read.
        """
        if not await self.closed():
            return ANYBODY
        if authorization is not None:
            return await self.bearer(authorization)
        if not cookie:
            return None
        return await self._looked_up(f"cookie {cookie}", self._session, cookie)

    async def bearer(self, authorization: str) -> Caller | None:
        """Return who shows a token; ``None``: nobody that is known.

        Raises:
            StoreError: the database cannot be read.
        """
        token = bearer_token(authorization)
        return None if token is None else await self._looked_up(f"token {token}", self._token, token)

    def forget(self) -> None:
        """Look everything up anew from now on: something was changed here."""
        self._known = {}
        self._closed = (False, float("-inf"))

    async def _looked_up(
        self, key: str, look_up: Callable[[str], Caller | None], shown: str
    ) -> Caller | None:
        known = self._known.get(key)
        if known is not None and self._clock() < known[1]:
            return known[0]
        kept = self._known
        found = await to_thread.run_sync(look_up, shown, limiter=self._limiter)
        if found is None:
            kept.pop(key, None)
            return None
        if len(kept) >= MAX_REMEMBERED:
            kept.clear()
        # Into the one of before: what was forgotten meanwhile stays so.
        kept[key] = (found, self._clock() + REMEMBERED_S)
        return found

    def _session(self, cookie: str) -> Caller | None:
        name = sessions.claimed(cookie)
        user = None if name is None else self._accounts.user(name)
        if user is None or not sessions.holds(cookie, user.session_key, self.session_s):
            return None
        return Caller(user.name, user.role, user.workspace, user=True)

    def _token(self, shown: str) -> Caller | None:
        split = tokens.parts(shown)
        token = None if split is None else self._accounts.token(split[0])
        if split is None or token is None or not tokens.same(split[1], token.secret):
            return None
        self._note_use(token)
        ingest = Scope.INGEST in token.scopes
        return Caller(f"token {token.token_uid}", token.role, token.workspace, ingest=ingest)

    def _note_use(self, token: Token) -> None:
        now = datetime.now(UTC)
        if token.used is not None and now - token.used < USED_EVERY:
            return
        try:
            self._accounts.used(token.token_uid, now)
        except StoreError as error:  # a disk that is full keeps nobody from reading
            _log.warning("the use of a token was not noted: %s", error)


def bearer_token(authorization: str) -> str | None:
    """Return the token of an ``Authorization`` header; ``None``: it is of another scheme."""
    scheme, _, given = authorization.partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def same_text(given: str, known: str) -> bool:
    """Compare in full whatever differs, so that the time it takes tells nothing of ``known``."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), known.encode())
