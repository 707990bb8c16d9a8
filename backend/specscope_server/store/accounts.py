"""Users, API tokens and the audit trail in the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, case, delete, exists, func, insert, or_, select, update

from specscope_server.auth.model import ROLES, Act, Failures, Scope, Token, User
from specscope_server.store import schema
from specscope_server.store import upsert as upserts
from specscope_server.store.database import Database
from specscope_server.store.port import Refused
from specscope_server.store.values import clean, from_ns, key, optional_from_ns, to_ns

MAX_USERS: Final = 1000
MAX_TOKENS: Final = 1000
SIGN_IN_FAILED: Final = "sign-in failed"
"""Action of the audit trail that is counted against whoever tries again."""
_U = schema.user.c
_T = schema.api_token.c
_A = schema.audit.c


class LastOne(Refused):
    """It is the last user or token: without it nobody would have to sign in."""


class Accounts:
    """Users, tokens and what was done. Each method raises ``StoreError`` where the database cannot serve."""

    def __init__(self, database: Database) -> None:
        """Serve a database whose schema is up to date."""
        self._database = database

    def exist(self) -> bool:
        """Say whether there is any user or token."""
        with self._database.read() as connection:
            return _any(connection)

    def users(self) -> list[User]:
        """Return every user by name."""
        with self._database.read() as connection:
            return [_user(row) for row in connection.execute(select(schema.user).order_by(_U.name))]

    def user(self, name: str) -> User | None:
        """Return a user; ``None``: there is none of that name."""
        with self._database.read() as connection:
            row = connection.execute(select(schema.user).where(_U.name == name)).one_or_none()
        return None if row is None else _user(row)

    def add_user(self, user: User, *, first: bool = False) -> bool:
        """Add a user; ``first``: only where there is none yet. Say whether it was added.

        Raises:
            Refused: there is one of that name, or as many as may be.
        """

        def job(connection: Connection) -> bool:
            # Lets one server at a time add to them (SQLite has one writer anyway).
            connection.execute(select(schema.workspace.c.name).with_for_update())
            count = connection.execute(select(func.count()).select_from(schema.user)).scalar_one()
            if first and count:
                return False
            if count >= MAX_USERS:
                raise Refused(f"there are {count} users, as many as may be: remove some")
            if connection.execute(select(_U.name).where(_U.name == user.name)).first() is not None:
                raise Refused(f"there is a user {user.name!r} already")
            row = {
                "name": key(user.name),
                "workspace": key(user.workspace),
                "role": user.role.word,
                "password": user.password,
                "session_key": user.session_key,
                "created_ns": to_ns(user.created),
                "changed_ns": to_ns(user.changed),
            }
            connection.execute(insert(schema.user), row)
            return True

        return self._done(job)

    def change_user(self, name: str, at: datetime, **changed: str) -> bool:
        """Set columns of a user (``role``, ``password``, ``session_key``); say whether there is one."""
        values: dict[str, Any] = {**changed, "changed_ns": to_ns(at)}
        found = update(schema.user).where(_U.name == name).values(values)
        return self._done(lambda connection: connection.execute(found).rowcount > 0)

    def signed_in(self, name: str, at: datetime, rehashed: str | None = None) -> None:
        """Note that a user signed in, with the password kept anew where it was ``rehashed``."""
        values: dict[str, Any] = {"signed_in_ns": to_ns(at)}
        if rehashed is not None:
            values["password"] = rehashed
        found = update(schema.user).where(_U.name == name).values(values)
        self._database.write(lambda connection: _run(connection, found))

    def remove_user(self, name: str, *, open_to_all: bool = False) -> bool:
        """Remove a user; say whether there was one.

        Raises:
            LastOne: it is the last of users and tokens, and that was not said to be meant.
        """
        return self._removed(delete(schema.user).where(_U.name == name), open_to_all)

    def tokens(self) -> list[Token]:
        """Return every token, the newest first."""
        query = select(schema.api_token).order_by(_T.created_ns.desc(), _T.token_uid)
        with self._database.read() as connection:
            return [_token(row) for row in connection.execute(query)]

    def token(self, uid: str) -> Token | None:
        """Return a token by its uid; ``None``: there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(schema.api_token).where(_T.token_uid == uid)).one_or_none()
        return None if row is None else _token(row)

    def add_token(self, token: Token) -> None:
        """Add a token; its workspace is made where it is not there yet.

        Raises:
            Refused: there are as many as may be.
        """

        def job(connection: Connection) -> bool:
            owner = {"name": key(token.workspace), "created_ns": to_ns(token.created)}
            upserts.Upsert(schema.workspace).run(connection, [owner])
            count = connection.execute(select(func.count()).select_from(schema.api_token)).scalar_one()
            if count >= MAX_TOKENS:
                raise Refused(f"there are {count} tokens, as many as may be: revoke some")
            row = {
                "token_uid": key(token.token_uid),
                "workspace": owner["name"],
                "scopes": " ".join(sorted(token.scopes)),
                "name": clean(token.name),
                "secret": token.secret,
                "created_by": clean(token.created_by),
                "created_ns": to_ns(token.created),
            }
            connection.execute(insert(schema.api_token), row)
            return True

        self._done(job)

    def used(self, uid: str, at: datetime) -> None:
        """Note that a token was used."""
        found = update(schema.api_token).where(_T.token_uid == uid).values(used_ns=to_ns(at))
        self._database.write(lambda connection: _run(connection, found))

    def revoke(self, uid: str, *, open_to_all: bool = False) -> bool:
        """Delete a token; say whether there was one.

        Raises:
            LastOne: it is the last of users and tokens, and that was not said to be meant.
        """
        return self._removed(delete(schema.api_token).where(_T.token_uid == uid), open_to_all)

    def note(self, act: Act) -> None:
        """Add a line to the audit trail."""
        row = {
            "at_ns": to_ns(act.at),
            "workspace": key(act.workspace),
            "who": clean(act.who),
            "action": clean(act.action),
            "what": clean(act.what),
            "address": clean(act.address),
        }
        self._database.write(lambda connection: _run(connection, insert(schema.audit).values(row)))

    def acts(self, limit: int, workspace: str = "") -> list[Act]:
        """Return the newest lines of the audit trail, of one workspace where it is given."""
        query = select(schema.audit).order_by(_A.at_ns.desc(), _A.id.desc()).limit(limit)
        if workspace:
            query = query.where(_A.workspace == workspace)
        with self._database.read() as connection:
            return [
                Act(from_ns(row.at_ns), row.workspace, row.who, row.action, row.what, row.address)
                for row in connection.execute(query)
            ]

    def failures(self, since: datetime, name: str, address: str) -> Failures:
        """Count failed attempts to sign in since a time, as this user and from this address."""
        by_name, by_address = _A.who == clean(name), _A.address == clean(address)
        query = select(
            func.count(case((and_(by_name, by_address), 1))),
            func.count(case((by_address, 1))),
            func.count(case((by_name, 1))),
        ).where(_A.at_ns >= to_ns(since), _A.action == SIGN_IN_FAILED, or_(by_name, by_address))
        with self._database.read() as connection:
            found = connection.execute(query).one()
        return Failures(*found)

    def _removed(self, statement: Any, open_to_all: bool) -> bool:
        def job(connection: Connection) -> bool:
            connection.execute(select(schema.workspace.c.name).with_for_update())
            removed = connection.execute(statement).rowcount > 0
            if removed and not open_to_all and not _any(connection):
                raise LastOne("it is the last of users and tokens: without it nobody has to sign in any more")
            return removed

        return self._done(job)

    def _done(self, change: Callable[[Connection], bool]) -> bool:
        """Write, and return what the change says of itself."""
        done = False

        def job(connection: Connection) -> None:
            nonlocal done
            done = change(connection)

        self._database.write(job)
        return done


def _any(connection: Connection) -> bool:
    found = select(or_(exists(select(_U.name)), exists(select(_T.token_uid))))
    return bool(connection.execute(found).scalar_one())


def _run(connection: Connection, statement: Any) -> None:
    connection.execute(statement)


def _user(row: Row[Any]) -> User:
    return User(
        name=row.name,
        role=ROLES[row.role],
        workspace=row.workspace,
        created=from_ns(row.created_ns),
        changed=from_ns(row.changed_ns),
        signed_in=optional_from_ns(row.signed_in_ns),
        password=row.password,
        session_key=row.session_key,
    )


def _token(row: Row[Any]) -> Token:
    return Token(
        token_uid=row.token_uid,
        workspace=row.workspace,
        scopes=frozenset(map(Scope, row.scopes.split())),
        name=row.name,
        created=from_ns(row.created_ns),
        created_by=row.created_by,
        used=optional_from_ns(row.used_ns),
        secret=row.secret,
    )
