"""Names of users, tokens and workspaces as they are typed."""

from __future__ import annotations

import re
from typing import Final

MAX_USER: Final = 64
_USER: Final = re.compile(rf"[a-z0-9][a-z0-9._@+-]{{0,{MAX_USER - 1}}}")


class BadName(ValueError):
    """It cannot be a name; the message says which and what may be."""


def user_name(text: str) -> str:
    """Return a user's name, in lower case whatever was typed.

    Raises:
        BadName: it is none.
    """
    name = text.strip().lower()
    if not _USER.fullmatch(name):
        raise BadName(
            f"{text[:70]!r} is no user's name: up to {MAX_USER} letters, digits and . _ @ + -, "
            "beginning with a letter or digit"
        )
    return name


def line(text: str, what: str, most: int = 128) -> str:
    """Return one printable line of text.

    Raises:
        BadName: it is something else.
    """
    found = text.strip()
    if len(found) > most or not (found.isprintable() or not found):
        raise BadName(f"{what} is one line of at most {most} printable characters")
    return found


def workspace_name(text: str) -> str:
    """Return the name of a workspace.

    Raises:
        BadName: it is none.
    """
    found = line(text, "a workspace")
    if not found:
        raise BadName("a workspace has a name")
    return found
