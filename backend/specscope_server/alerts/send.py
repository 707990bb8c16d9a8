"""Sending one notification to one address. An empty text says it was taken, else why not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from specscope_server.alerts import alertmanager, signing
from specscope_server.alerts.payload import headline, text
from specscope_server.alerts.rules import FIRING, OK
from specscope_server.alerts.targets import ALERTMANAGER, WEBHOOK, Target, apprise

TIMEOUT_S: Final = 10.0
"""For a whole attempt at a webhook; apprise has its own limits, 4 s to connect and 4 s to read."""
APPRISE_S: Final = 60.0
"""For a whole attempt by apprise: a server that sends a byte now and then keeps within its limits."""
ERROR_CHARS: Final = 300


async def send(target: Target, body: Mapping[str, Any], threads: Executor) -> str:
    """Send ``body`` to ``target``; never raises for what the other side does.

    apprise blocks, so it runs in ``threads``: not in those that the store's calls wait for.
    """
    if target.kind == WEBHOOK:
        error = await post(target, target.url, body, _identity(target, body))
    elif target.kind == ALERTMANAGER:
        alerts = alertmanager.of_notification(body, datetime.now(UTC))
        error = await post(target, alertmanager.url_of(target.url), alerts)
    else:
        error = await _in_thread(target, body, threads)
    return error[:ERROR_CHARS]


async def _in_thread(target: Target, body: Mapping[str, Any], threads: Executor) -> str:
    sending = asyncio.get_running_loop().run_in_executor(threads, _apprise, target, body)
    try:
        return await asyncio.wait_for(sending, APPRISE_S)
    except TimeoutError:
        return f"no answer within {APPRISE_S:g} s"


def _identity(target: Target, body: Mapping[str, Any]) -> Callable[[bytes], dict[str, str]]:
    """Return what makes the headers that say which message a body is and, with a secret, who sent it."""
    message = str(body["id"])

    def headers(sent: bytes) -> dict[str, str]:
        told = {"Idempotency-Key": message}
        if target.secret:
            told |= signing.headers(target.secret, message, int(time.time()), sent)
        return told

    return headers


async def post(
    target: Target, url: str, body: object, headers: Callable[[bytes], dict[str, str]] = lambda _: {}
) -> str:
    """Post JSON; an empty text says it was taken, else why not.

    A redirect is not followed: it could carry the message to another host.
    """
    sent = json.dumps(body).encode()
    told = {"Content-Type": "application/json", "User-Agent": "specscope", **headers(sent)}
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx.AsyncClient(timeout=TIMEOUT_S) as client,
            # Streamed, as nothing of the answer but its status is read.
            client.stream("POST", url, content=sent, headers=told) as answer,
        ):
            return "" if answer.is_success else f"HTTP {answer.status_code}"
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:g} s"
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return target.scrub(f"{type(error).__name__}: {error}")[:ERROR_CHARS]


def _apprise(target: Target, body: Mapping[str, Any]) -> str:
    library = apprise()
    kinds = {FIRING: library.NotifyType.FAILURE, OK: library.NotifyType.SUCCESS}
    kind = kinds.get(body["state"], library.NotifyType.WARNING)
    service = library.Apprise()
    service.add(target.url)
    told = dict(body)
    try:
        result = service.notify(
            body=text(told),
            title=headline(told),
            notify_type=kind,
            # So that a service which takes HTML or Markdown shows the lines and the signs as they are.
            body_format=library.NotifyFormat.TEXT,
        )
    except Exception as error:  # noqa: BLE001 - plugins of other authors; whatever they raise, we go on
        return target.scrub(f"{type(error).__name__}: {error}")
    if result:
        return ""
    said = " ".join(entry.message for entry in result.logs())
    return target.scrub(said) or "the service did not take the message"
