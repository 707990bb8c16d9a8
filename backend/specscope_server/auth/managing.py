"""What admins do with users and tokens, each within what they see; all of it in the audit trail."""

from __future__ import annotations

from datetime import UTC, datetime

from specscope_server.auth import names, passwords, tokens
from specscope_server.auth.model import ALL_WORKSPACES, ROLES, Act, Caller, Role, Scope, Token, User
from specscope_server.auth.names import BadName
from specscope_server.auth.passwords import PasswordError
from specscope_server.store.accounts import Accounts
from specscope_server.store.port import Refused


class NotDone(Exception):
    """It was not done; the message says why and what to do."""


class Managing:
    """Users and tokens as one admin sees and changes them."""

    def __init__(self, accounts: Accounts, admin: Caller, address: str) -> None:
        """Act for ``admin``, who asks from ``address``."""
        self._accounts, self._admin, self._address = accounts, admin, address

    def users(self) -> list[User]:
        """Return the users that the admin manages."""
        return [one for one in self._accounts.users() if self._mine(one.workspace)]

    def tokens(self) -> list[Token]:
        """Return the tokens that the admin manages."""
        return [one for one in self._accounts.tokens() if self._mine(one.workspace)]

    def add_user(self, name: str, password: str, role: str, workspace: str) -> str:
        """Add a user and return the name as it is kept.

        Raises:
            NotDone: something of it cannot be.
        """
        try:
            known = names.user_name(name)
            seen = names.workspace_name(workspace) if workspace.strip() else ALL_WORKSPACES
            self._allow(seen)
            kept, now = passwords.hashed(password, known), datetime.now(UTC)
            made = User(known, _role(role), seen, now, now, None, kept, tokens.new_session_key())
            self._accounts.add_user(made)
        except (BadName, PasswordError, Refused) as error:
            raise NotDone(str(error)) from error
        self._note("user added", f"{known}, {role}", seen)
        return known

    def set_role(self, name: str, role: str) -> None:
        """Give a user another role.

        Raises:
            NotDone: there is no such user, or it is the admin.
        """
        found = self._other(name)
        self._accounts.change_user(found.name, datetime.now(UTC), role=_role(role).word)
        self._note("role set", f"{found.name}, {role}", found.workspace)

    def set_password(self, name: str, password: str) -> None:
        """Give a user another password; their sessions end.

        Raises:
            NotDone: there is no such user, it is the admin, or it cannot be a password.
        """
        self._password(self._other(name), password)

    def set_own_password(self, current: str, password: str) -> None:
        """Give the admin, or whoever else it is, another password; all their sessions end.

        Raises:
            NotDone: the current one is wrong, or it cannot be a password.
        """
        me = self._accounts.user(self._admin.name) if self._admin.user else None
        if me is None or not passwords.matches(me.password, current):
            raise NotDone("the current password is wrong")
        self._password(me, password)

    def remove_user(self, name: str) -> None:
        """Remove a user; their sessions end.

        Raises:
            NotDone: there is no such user, or it is the admin.
        """
        found = self._other(name)
        self._accounts.remove_user(found.name)
        self._note("user removed", found.name, found.workspace)

    def add_token(self, scopes: list[str], workspace: str, name: str) -> str:
        """Make a token and return it, this once.

        Raises:
            NotDone: something of it cannot be.
        """
        known = {scope.value for scope in Scope}
        if not scopes or not set(scopes) <= known:
            raise NotDone("say what the token is for: ingest, read, edit or admin")
        try:
            seen = names.workspace_name(workspace)
            self._allow(seen)
            made, uid, kept = tokens.new_token()
            chosen = frozenset(map(Scope, scopes))
            told = names.line(name, "what it is for")
            row = Token(uid, seen, chosen, told, datetime.now(UTC), self._admin.name, None, kept)
            self._accounts.add_token(row)
        except (BadName, Refused) as error:
            raise NotDone(str(error)) from error
        self._note("token added", f"{uid}, {' '.join(sorted(chosen))}", seen)
        return made

    def revoke(self, uid: str) -> None:
        """Revoke a token.

        Raises:
            NotDone: there is no such token.
        """
        found = self._accounts.token(uid)
        if found is None or not self._mine(found.workspace):
            raise NotDone("there is no such token")
        try:
            self._accounts.revoke(uid)
        except Refused as error:
            raise NotDone(str(error)) from error
        self._note("token revoked", uid, found.workspace)

    def _password(self, user: User, password: str) -> None:
        try:
            kept = passwords.hashed(password, user.name)
        except PasswordError as error:
            raise NotDone(str(error)) from error
        key = tokens.new_session_key()
        self._accounts.change_user(user.name, datetime.now(UTC), password=kept, session_key=key)
        self._note("password set", user.name, user.workspace)

    def _other(self, name: str) -> User:
        found = self._accounts.user(name)
        if found is None or not self._mine(found.workspace):
            raise NotDone("there is no such user")
        if found.name == self._admin.name:
            raise NotDone("that is you: another admin can do this, or `specscope user` at the command line")
        return found

    def _mine(self, workspace: str) -> bool:
        return self._admin.workspace in (ALL_WORKSPACES, workspace)

    def _allow(self, workspace: str) -> None:
        if not self._mine(workspace):
            raise NotDone(f"you manage workspace {self._admin.workspace!r} alone")

    def _note(self, action: str, what: str, workspace: str) -> None:
        self._accounts.note(Act(datetime.now(UTC), workspace, self._admin.name, action, what, self._address))


def _role(word: str) -> Role:
    """Return a role by its name."""
    if word not in ROLES:
        raise NotDone(f"{word[:40]!r} is no role: {', '.join(ROLES)}")
    return ROLES[word]
