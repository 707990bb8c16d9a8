"""Sending a test, to see whether an address is told anything at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from specscope_server.alerts.payload import trial_payload
from specscope_server.alerts.send import send
from specscope_server.alerts.targets import Target


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a test: ``error`` is empty where the address took it."""

    target: str
    error: str


async def try_out(targets: Sequence[Target], workspace: str, base_url: str) -> list[Tried]:
    """Send a test to every address at once, and say what came of each. Nothing is retried."""
    body = trial_payload(workspace, base_url.rstrip("/"), datetime.now(UTC))
    with ThreadPoolExecutor(max(1, len(targets)), thread_name_prefix="test") as threads:
        errors = await asyncio.gather(*(send(target, body, threads) for target in targets))
    return [Tried(target.label, error) for target, error in zip(targets, errors, strict=True)]
