"""Where the next page starts: the arrival and uid of the last request shown, as one opaque word."""

from __future__ import annotations

import base64
import binascii


def pack(arrival_ns: int, uid: str) -> str:
    """Return the cursor after a request."""
    return base64.urlsafe_b64encode(f"{arrival_ns}/{uid}".encode()).decode().rstrip("=")


def unpack(cursor: str) -> tuple[int, str]:
    """Return (arrival in ns, uid).

    Raises:
        ValueError: the cursor is not one of ours.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        arrival, separator, uid = raw.partition("/")
        value = int(arrival)
    except (binascii.Error, ValueError) as error:
        raise ValueError(_MESSAGE) from error
    if not separator or "\0" in uid or not -(2**63) <= value < 2**63:
        raise ValueError(_MESSAGE)
    return value, uid


_MESSAGE = "the cursor is not one that this server gave out; ask for the first page without one"
