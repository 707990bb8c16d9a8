"""View models of signing in, one's account, users and tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from specscope_server.auth.model import ROLES, Act, Scope, Token, User
from specscope_server.auth.passwords import MIN_CHARS


@dataclass(frozen=True, slots=True)
class SignInPage:
    """Who are you. ``open_to_all``: nobody has to say; ``anybody`` false: there is no user to sign in as."""

    back: str
    open_to_all: bool = False
    anybody: bool = True
    name: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class AccountPage:
    """One's own account."""

    error: str = ""
    min_chars: int = MIN_CHARS


@dataclass(frozen=True, slots=True)
class RefusedPage:
    """Somebody may not do something; ``why`` is the rest of a sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class AccessPage:
    """Users, tokens and the newest of what was done. ``made`` is a token just made, shown this once."""

    users: tuple[User, ...] = ()
    tokens: tuple[Token, ...] = ()
    acts: tuple[Act, ...] = ()
    open_to_all: bool = False
    error: str = ""
    said: str = ""
    made: str = field(default="", repr=False)
    roles: tuple[str, ...] = tuple(ROLES)
    scopes: tuple[str, ...] = tuple(scope.value for scope in Scope)
    min_chars: int = MIN_CHARS
