"""Every setting of the tracer, read once per process from the environment.

A value that makes no sense never stops the engine: the default is used and one line says what was
ignored. ``docs/reference/settings.md`` lists each variable; a test fails when one is missing there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specscope import convention as c

ENDPOINT: Final = "SPECSCOPE_ENDPOINT"
"""Base URL of the OTLP/HTTP receiver, e.g. ``http://127.0.0.1:4318``. Unset: the tracer stays off."""
DETAIL: Final = "SPECSCOPE_DETAIL"
"""``summary``, ``steps`` (default), ``tokens`` or ``full``: see the table in docs/reference/settings.md."""
NAME: Final = "SPECSCOPE_NAME"
"""Human name of this deployment in the UI. Default: the served model's name."""
INSTANCE: Final = "SPECSCOPE_INSTANCE"
"""Id of one launch, shared by its processes. Default: made at launch; must be set on several nodes."""
WORKSPACE: Final = "SPECSCOPE_WORKSPACE"
"""Workspace that the data belongs to. Default ``default``."""
ENVIRONMENT: Final = "SPECSCOPE_ENVIRONMENT"
"""Environment within the workspace, e.g. ``production``. Default ``default``."""
HEADERS: Final = "SPECSCOPE_HEADERS"
"""Headers of each export, ``name=value,name=value`` (e.g. an ingest token)."""
QUEUE: Final = "SPECSCOPE_QUEUE"
"""Records kept between the engine and the exporter before the oldest are dropped. Default 20000."""
BUFFER_MB: Final = "SPECSCOPE_BUFFER_MB"
"""MiB of encoded spans kept while the receiver is away, before the oldest are dropped. Default 64."""
SAMPLE_EVERY: Final = "SPECSCOPE_SAMPLE_EVERY"
"""Confidence, the target's view and, after a verify step, statistics of hidden states are taken in every n-th
engine step. Default 1 at ``full``, else 32."""
OFF: Final = "SPECSCOPE_OFF"
"""``1``: the tracer does nothing at all."""
SDK_DISABLED: Final = "OTEL_SDK_DISABLED"
"""``true``: OpenTelemetry's own switch is honoured; the tracer is off and says so."""

ALL_VARIABLES: Final = (
    ENDPOINT, DETAIL, NAME, INSTANCE, WORKSPACE, ENVIRONMENT, HEADERS, QUEUE, BUFFER_MB, SAMPLE_EVERY,
    OFF,
)  # fmt: skip
SERVERS: Final = ("DB", "HOST", "PORT", "SERVER", "SERVICE", "ALLOW", "NOTIFY", "TRUSTED")
"""What the names of the server's variables go on with, and of those that compose and Kubernetes (beside a
service named ``specscope``) set for it; the tracer says nothing of them."""

_USERINFO: Final = re.compile(r"(?<=://)[^/\s]+@")


@dataclass(frozen=True, slots=True)
class Settings:
    """The tracer's settings. ``off`` is the reason why it does nothing, or empty."""

    endpoint: str = ""
    detail: str = c.DETAIL_STEPS
    name: str = ""
    instance: str = ""
    workspace: str = "default"
    environment: str = "default"
    headers: tuple[tuple[str, str], ...] = ()
    queue: int = 20_000
    buffer_mb: int = 64
    sample_every: int = 32
    off: str = ""
    ignored: tuple[str, ...] = ()

    def at_least(self, detail: str) -> bool:
        """Say whether the configured detail level includes ``detail``."""
        return c.DETAIL_LEVELS.index(self.detail) >= c.DETAIL_LEVELS.index(detail)


def without_userinfo(text: str) -> str:
    """Return ``text`` with user and password taken out of its URLs: they are for no log and no wire."""
    return _USERINFO.sub("", text)


def _number(raw: str, variable: str, default: int, ignored: list[str]) -> int:
    if not raw:
        return default
    # More than eight digits are too many, and thousands of them no integer at all to Python.
    if raw.isascii() and raw.isdigit() and len(raw) <= 8 and 1 <= int(raw) <= 10_000_000:
        return int(raw)
    ignored.append(f"{variable}={raw!r} (wanted: a whole number from 1 to 10000000; using {default})")
    return default


def _headers(raw: str, ignored: list[str]) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for number, part in enumerate(filter(None, (p.strip() for p in raw.split(","))), start=1):
        name, separator, value = part.partition("=")
        if separator and name.strip() and name.isascii() and value.isascii() and value.isprintable():
            pairs.append((name.strip().lower(), value.strip()))
        else:
            # All of it may be a secret, e.g. a token without a name.
            ignored.append(f"{HEADERS} entry {number} (wanted: name=value, ASCII)")
    return tuple(pairs)


def read(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings; never raises. What was ignored is listed in ``ignored``, one text each."""
    env = os.environ if environ is None else environ
    ignored: list[str] = []

    def text(variable: str, default: str = "") -> str:
        return env.get(variable, "").strip() or default

    endpoint = text(ENDPOINT).rstrip("/")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        shown = endpoint.rpartition("@")[2]
        ignored.append(f"{ENDPOINT}={shown!r} (wanted: http://host:port or https://host:port)")
        endpoint = ""
    detail = text(DETAIL, c.DETAIL_STEPS).lower()
    if detail not in c.DETAIL_LEVELS:
        ignored.append(f"{DETAIL}={detail!r} (wanted: one of {', '.join(c.DETAIL_LEVELS)}; using steps)")
        detail = c.DETAIL_STEPS
    for variable in env:
        if variable.startswith("SPECSCOPE_") and variable not in ALL_VARIABLES:
            if variable.removeprefix("SPECSCOPE_").split("_")[0] in SERVERS:
                continue
            ignored.append(f"{variable} (unknown; known: {', '.join(ALL_VARIABLES)})")
    off = ""
    if text(OFF).lower() in ("1", "true", "yes"):
        off = f"{OFF} is set"
    elif text(SDK_DISABLED).lower() == "true":
        off = f"{SDK_DISABLED}=true"
    elif not endpoint:
        off = f"{ENDPOINT} is not set"
    return Settings(
        endpoint=endpoint,
        detail=detail,
        name=text(NAME),
        instance=text(INSTANCE),
        workspace=text(WORKSPACE, "default"),
        environment=text(ENVIRONMENT, "default"),
        headers=_headers(text(HEADERS), ignored),
        queue=_number(text(QUEUE), QUEUE, Settings().queue, ignored),
        buffer_mb=_number(text(BUFFER_MB), BUFFER_MB, Settings().buffer_mb, ignored),
        sample_every=_number(
            text(SAMPLE_EVERY),
            SAMPLE_EVERY,
            1 if detail == c.DETAIL_FULL else Settings().sample_every,
            ignored,
        ),
        off=off,
        ignored=tuple(ignored),
    )
