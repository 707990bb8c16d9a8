"""Signatures of webhooks, as https://www.standardwebhooks.com has them, so that receivers find libraries."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

PREFIX: Final = "whsec_"
"""Begins a secret that is written in base64; any other text is taken as it is."""
MIN_BYTES: Final = 24
"""As the standard asks; fewer can be guessed from one message and its signature."""


class SecretError(ValueError):
    """A secret that must not be signed with; the message does not repeat it."""


def parse_secret(text: str) -> bytes:
    """Return the bytes of a secret.

    Raises:
        SecretError: it is too short, or not base64 after ``whsec_``.
    """
    text = text.strip()
    secret = text.encode()
    if text.startswith(PREFIX):
        try:
            secret = base64.b64decode(text[len(PREFIX) :], validate=True)
        except (binascii.Error, ValueError):
            # Not chained: the text of the cause may repeat it.
            raise SecretError(f"a secret that begins with {PREFIX} goes on in base64") from None
    if len(secret) < MIN_BYTES:
        raise SecretError(f"a secret to sign with has at least {MIN_BYTES} bytes, this one has {len(secret)}")
    return secret


def headers(secret: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign ``body``: HMAC-SHA256 over id, unix seconds and body, joined by dots."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    digest = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
    }
