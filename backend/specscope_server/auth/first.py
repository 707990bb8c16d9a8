"""The first admin of a server that nobody can type at: a container's, with a password from a file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from specscope_server.auth import passwords, tokens
from specscope_server.auth.model import ALL_WORKSPACES, Act, Role, User
from specscope_server.settings import ADMIN_PASSWORD_FILE, SettingsError
from specscope_server.store.accounts import Accounts

NAME: Final = "admin"


def read_password(file: str) -> str:
    """Return the hash of the password in a file, without the line's end; no file: empty.

    Raises:
        SettingsError: the file cannot be read, or it holds no password.
    """
    if not file:
        return ""
    try:
        password = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        return passwords.hashed(password, NAME)
    except (OSError, UnicodeDecodeError, passwords.PasswordError) as error:
        raise SettingsError(
            f"the password of the first admin cannot be used: {error}. Give --admin-password-file "
            f"({ADMIN_PASSWORD_FILE}) a file with one line"
        ) from error


def make_first(accounts: Accounts, kept: str) -> bool:
    """Add the user ``admin`` with a password's hash where there is no user yet; say whether it was added."""
    now = datetime.now(UTC)
    made = User(NAME, Role.ADMIN, ALL_WORKSPACES, now, now, None, kept, tokens.new_session_key())
    if not accounts.add_user(made, first=True):
        return False
    accounts.note(Act(now, ALL_WORKSPACES, "start of the server", "user added", f"{NAME}, admin"))
    return True
