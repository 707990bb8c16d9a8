"""Patterns by which rules and silences choose: ``*`` and ``?``, and every other character is itself."""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches(text: str, pattern: str) -> bool:
    """Say whether a pattern covers a whole text; an empty one covers every text.

    A bracket is no set of characters: names hold some, such as an IPv6 address.
    """
    return not pattern or fnmatchcase(text, pattern.replace("[", "[[]"))
