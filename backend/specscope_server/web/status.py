"""View model of the status page: is anything arriving, is it stored, and what was not taken, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from specscope.version import __version__

from specscope_server.ingest import reasons
from specscope_server.ingest.notes import Note
from specscope_server.ingest.scrape import Ingest, Times
from specscope_server.ingest.stats import SIGNALS
from specscope_server.store.model import Held
from specscope_server.store.port import Reads
from specscope_server.web import format as f
from specscope_server.web.stats import Stat

QUIET_AFTER: Final = timedelta(seconds=60)
"""Every process of an engine sends a heartbeat every few seconds."""
RECENT: Final = timedelta(minutes=5)
"""A refusal this young makes the headline."""
ITEMS: Final[Mapping[str, str]] = {"traces": "spans", "metrics": "points", "logs": "records"}
REFUSALS: Final[Mapping[str, str]] = {
    "400": "cannot be read, or nothing in it is acceptable",
    "401": "without the token that this server asks for",
    "403": "its token is not for sending, or of another workspace",
    "404": "sent to no signal that this server takes",
    "405": "not a POST",
    "408": "its body did not arrive in time",
    "413": "too large, as sent or after decompression",
    "415": "of a content type or encoding that is not taken",
    "429": "too much was waiting to be stored; clients try again",
    "500": "the server failed; its log says how",
    "503": "the database could not be written; clients try again",
    "INVALID_ARGUMENT": "cannot be read, or nothing in it is acceptable",
    "RESOURCE_EXHAUSTED": "too large, as sent or after decompression",
    "UNAUTHENTICATED": "without the token that this server asks for",
    "PERMISSION_DENIED": "its token is not for sending, or of another workspace",
    "UNAVAILABLE": "too much was waiting, or the database could not be written; clients try again",
    "UNIMPLEMENTED": "a service or compression that this server does not have",
    "INTERNAL": "the server failed; its log says how",
    "DEADLINE_EXCEEDED": "it did not arrive in time",
}


@dataclass(frozen=True, slots=True)
class SignalLine:
    """One signal. ``heard`` false: no export of it was taken, so that nothing can be counted."""

    name: str
    items: str
    heard: bool
    exports: int
    size: str
    accepted: int
    foreign: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """Items of a signal rejected for reasons of one class."""

    signal: str
    reason: str
    meaning: str
    count: int


@dataclass(frozen=True, slots=True)
class RefusalLine:
    """Exports refused whole with one status."""

    protocol: str
    status: str
    meaning: str
    count: int


@dataclass(frozen=True, slots=True)
class KeptLine:
    """What is stored of one kind; ``held`` is ``None`` where nothing is."""

    what: str
    held: Held | None


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The whole page. ``tone`` is one of the verdicts' tones."""

    tone: str
    headline: str
    sentence: str
    version: str
    started: datetime
    numbers: tuple[Stat, ...]
    signals: tuple[SignalLine, ...]
    rejections: tuple[Rejection, ...]
    refusals: tuple[RefusalLine, ...]
    notes: tuple[Note, ...]
    engines: int
    kept: tuple[KeptLine, ...]


def build(store: Reads, ingest: Ingest, workspace: str, now: datetime) -> StatusPage:
    """Read the store and return the page."""
    held = store.holdings(workspace)
    tone, headline, sentence = _headline(ingest, now)
    return StatusPage(
        tone=tone,
        headline=headline,
        sentence=sentence,
        version=__version__,
        started=ingest.started,
        numbers=_numbers(ingest, store.used_bytes(), now),
        signals=tuple(_signal(ingest, name) for name in SIGNALS),
        rejections=tuple(
            Rejection(signal, reason, reasons.MEANINGS.get(reason, ""), count)
            for (signal, reason), count in sorted(ingest.rejected.items())
        ),
        refusals=tuple(
            RefusalLine(protocol, status, REFUSALS.get(status, ""), count)
            for (protocol, status), count in sorted(ingest.refused.items())
        ),
        notes=ingest.notes,
        engines=held.engines,
        kept=(
            KeptLine("Requests, by arrival", held.requests),
            KeptLine("Steps and hidden states", held.steps),
            KeptLine("Sums of 10 seconds", held.sums),
            KeptLine("Sums of a minute", held.minutes),
        ),
    )


def _headline(ingest: Ingest, now: datetime) -> tuple[str, str, str]:
    """Return tone, headline and what follows from it."""
    last = ingest.last_export
    refused = ingest.notes[0] if ingest.notes and ingest.notes[0].reason.startswith("refused") else None
    if refused is not None and now - refused.last < RECENT and (last is None or last < refused.last):
        return "bad", "Exports are being refused", f"The last one was {refused.reason}."
    if last is None:
        return (
            "lost",
            "No export has arrived since the server started",
            "What is stored from before is still shown. Engines send a heartbeat every few seconds: "
            "start one with SPECSCOPE_ENDPOINT set to this server.",
        )
    if now - last > QUIET_AFTER:
        return (
            "warn",
            f"Nothing has arrived for {f.seconds((now - last).total_seconds())}",
            "Engines send a heartbeat every few seconds, also when idle: none is running, or none gets here.",
        )
    note = ingest.notes[0] if ingest.notes else None
    if note is not None and now - note.last < RECENT:
        return "warn", "Exports are stored, but not all of them", f"The last that was not: {note.reason}."
    return "ok", "Exports arrive and are stored", "Each was acknowledged after its commit."


def _numbers(ingest: Ingest, used_bytes: int, now: datetime) -> tuple[Stat, ...]:
    last = ingest.last_export
    ago = None if last is None else (now - last).total_seconds()
    exports, sent = sum(ingest.exports.values()), size(sum(ingest.bytes.values()))
    none = "none since the start"
    return (
        Stat(
            "Exports", f.count(exports) if exports else f.DASH, f"stored, {sent}", why="" if exports else none
        ),
        Stat("Last export", f.seconds(ago), "ago", why="" if last else none),
        Stat("Waiting for their commit", f.count(ingest.waiting), f"exports, {size(ingest.waiting_bytes)}"),
        _median("Commit", ingest.commit, "from a decoded export to its commit"),
        _median("Lag", ingest.lag, "from an export's newest event to its commit"),
        Stat("Database", size(used_bytes), "in use, of all workspaces"),
    )


def _median(label: str, times: Times, what: str) -> Stat:
    """Return a histogram as one number: half of them took at most so long."""
    half, most = times.quantile(0.5), times.quantile(0.99)
    if half is None or most is None:
        return Stat(label, f.DASH, why=f"none counted: {what}")
    return Stat(label, _at_most(half), f"for half of {f.count(times.count)}; 99 % {_at_most(most)}")


def _at_most(seconds: float) -> str:
    return "beyond all buckets" if math.isinf(seconds) else f"≤ {f.seconds(seconds)}"


def _signal(ingest: Ingest, name: str) -> SignalLine:
    rejected = sum(ingest.rejected_of(name).values())
    exports = ingest.exports.get(name, 0)
    return SignalLine(
        name=name,
        items=ITEMS[name],
        heard=bool(exports or rejected),
        exports=exports,
        size=size(ingest.bytes.get(name, 0)),
        accepted=ingest.accepted.get(name, 0),
        foreign=ingest.foreign.get(name, 0),
        rejected=rejected,
    )


def size(count: int) -> str:
    """Return bytes with their unit."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
