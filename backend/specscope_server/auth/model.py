"""What is known of who may do what: roles, scopes, users, tokens, and who a request comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Final

ALL_WORKSPACES: Final = ""
"""Workspace of a user who is bound to none."""


class Role(IntEnum):
    """What somebody may do; each may do what those below it may."""

    VIEWER = 1
    """Reads."""
    EDITOR = 2
    """Changes what people say: rules, silences, acknowledgements, expectations, references."""
    ADMIN = 3
    """Manages users and tokens."""

    @property
    def word(self) -> str:
        """Return its name as people write it."""
        return self.name.lower()


ROLES: Final = {role.word: role for role in Role}


class Scope(StrEnum):
    """What a token is for."""

    INGEST = "ingest"
    READ = "read"
    EDIT = "edit"
    ADMIN = "admin"


SCOPE_ROLES: Final = {Scope.READ: Role.VIEWER, Scope.EDIT: Role.EDITOR, Scope.ADMIN: Role.ADMIN}
"""What each scope lets its bearer do at the API; ``ingest`` nothing there."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who signs in. ``workspace`` is empty for one of all workspaces."""

    name: str
    role: Role
    workspace: str
    created: datetime
    changed: datetime
    signed_in: datetime | None
    password: str = field(repr=False)
    """Its hash."""
    session_key: str = field(repr=False)
    """Signs the user's cookies."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a program shows; bound to one workspace."""

    token_uid: str
    workspace: str
    scopes: frozenset[Scope]
    name: str
    created: datetime
    created_by: str
    used: datetime | None
    secret: str = field(repr=False)
    """Its hash."""

    @property
    def role(self) -> Role | None:
        """Return what it may do at the API, ``None``: nothing."""
        return max((SCOPE_ROLES[scope] for scope in self.scopes if scope in SCOPE_ROLES), default=None)


@dataclass(frozen=True, slots=True)
class Act:
    """One line of the audit trail. ``who`` is empty where nobody had to sign in."""

    at: datetime
    workspace: str
    who: str
    action: str
    what: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class Failures:
    """How often signing in failed lately: of this name from this address, of either alone."""

    both: int
    address: int
    name: int


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request comes from, and what they may do."""

    name: str
    """Of a user, or ``token`` and its uid; empty: anybody, where nobody has to sign in."""
    role: Role | None
    workspace: str = ALL_WORKSPACES
    """The only one that they may see; empty: all."""
    user: bool = False
    """A person with a session."""
    ingest: bool = False
    """May send exports."""

    def may(self, role: Role) -> bool:
        """Say whether they may do what takes a role."""
        return self.role is not None and self.role >= role

    def sees(self, workspace: str) -> bool:
        """Say whether a workspace is theirs."""
        return self.workspace in (ALL_WORKSPACES, workspace)


ANYBODY: Final = Caller("", Role.EDITOR, ingest=True)
"""Whoever reaches a server that asks nobody to sign in. Users and tokens are made at its command line."""
