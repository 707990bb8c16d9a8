"""What each address takes: nothing, a role, a workspace."""

from __future__ import annotations

from typing import Final

from specscope_server.auth.model import Role

SAFE: Final = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""
SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
ACCOUNT: Final = "/account"
ACCESS: Final = "/access"
_PUBLIC: Final = ("/healthz", "/favicon.ico", SIGN_IN)
_PUBLIC_BELOW: Final = ("/static/", "/v1/")
"""Files of the package, and OTLP, which lets in by itself."""
_OF_NO_WORKSPACE: Final = ("/healthz", "/openapi.json", "/metrics", "/api/v1/status", "/api/v1/me")
"""What takes no parameter ``workspace``; the API's endpoints refuse one that they do not know."""


def public(path: str) -> bool:
    """Say whether a path is answered to anybody."""
    return path in _PUBLIC or path.startswith(_PUBLIC_BELOW)


def needed(method: str, path: str) -> Role:
    """Return the role that a request takes."""
    if path == ACCESS or path.startswith(f"{ACCESS}/"):
        return Role.ADMIN
    if method in SAFE or path in (SIGN_OUT, ACCOUNT):
        return Role.VIEWER
    return Role.EDITOR


def takes_workspace(path: str) -> bool:
    """Say whether a path takes a parameter ``workspace``."""
    return path not in _OF_NO_WORKSPACE


def notes_itself(path: str) -> bool:
    """Say whether what changes there adds its own lines to the audit trail."""
    return path in (SIGN_IN, SIGN_OUT, ACCOUNT) or path.startswith(f"{ACCESS}/")


def landing(path: str) -> str:
    """Return where to go after signing in: a path on this server, whatever was asked for."""
    sound = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if sound and len(path) <= 2048 and not path.startswith((SIGN_IN, SIGN_OUT)) else "/"
