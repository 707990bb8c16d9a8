"""What OTLP/HTTP and OTLP/gRPC share: one admission, then decode, commit, acknowledge, in that order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from anyio import CapacityLimiter, to_thread
from google.protobuf.message import Message

from specscope_server.auth.door import Door
from specscope_server.ingest.access import ANY_WORKSPACE, workspace_of
from specscope_server.ingest.body import Admission, Arrived, Limits, Ticket
from specscope_server.ingest.bound import bind
from specscope_server.ingest.content import Format
from specscope_server.ingest.decode import decode
from specscope_server.ingest.refusal import Refusal, short
from specscope_server.ingest.signals import Signal
from specscope_server.ingest.stats import HTTP, IngestStats
from specscope_server.ingest.values import Tally
from specscope_server.store.port import Refused, Store, StoreError, Unavailable
from specscope_server.store.told import Told

DECODERS: Final = 1
"""Exports decoded at once. Hostile protobuf takes about 30 times its size in memory (measured: 8 MiB of
empty submessages become 257 MiB), and only one at a time may; Python decodes no faster on two threads."""
WRITERS: Final = 8
"""Exports written at once. The store groups their commits, so more than one shares a disk sync; each may
hold a database connection."""
MAX_ITEMS: Final = 100_000
"""Resources, scopes and spans (metrics and their points, log records) of one export; tracers send 512 at
most, collectors some thousands. A body may hold eight million empty ones, and reading those would stop all
others for minutes."""
MAX_ATTRIBUTES: Final = 1_000_000
"""Attributes of one export, each 33 bytes where an export is as large as may be; told ones have more. Reading
one takes 2 µs, and 2 KB of compressed body may hold sixteen million empty ones."""

_log = logging.getLogger(__name__)


class Receiver:
    """Takes exports for one store, whatever they come by. All of it belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        admission: Admission,
        *,
        token: str = "",
        door: Door | None = None,
    ) -> None:
        """Take exports within ``limits`` while ``admission`` lets them in, with ``token`` if there is one,
        or with a token that ``door`` knows, by default one of the store's.
        """
        self.stats = IngestStats()
        self.limits, self.admission = limits, admission
        admission.tell = self.stats.waiting
        self._store, self._token = store, token
        self._door = Door(store.accounts, session_s=0) if door is None else door
        self._decoders = CapacityLimiter(DECODERS)
        self._writers = CapacityLimiter(WRITERS)

    async def authorize(self, authorization: str | None) -> str:
        """Return where a sender may send to by its ``Authorization``, see :func:`workspace_of`."""
        return await workspace_of(authorization, self._token, self._door)

    async def inflate(self, feed: Callable[[bytes], None], data: bytes) -> None:
        """Inflate a step of a body where exports are decoded, away from the event loop."""
        await to_thread.run_sync(feed, data, limiter=self._decoders)

    async def take(
        self,
        arrived: Arrived,
        form: Format,
        signal: Signal,
        ticket: Ticket,
        protocol: str = HTTP,
        workspace: str = ANY_WORKSPACE,
    ) -> Message:
        """Decode and commit an export that ``ticket`` holds; return the answer.

        All of it goes to ``workspace`` where one is named, as :meth:`authorize` says.

        Raises:
            Refusal: nothing of it was stored.
        """
        try:
            batches, tally, size = await to_thread.run_sync(
                self._decode, arrived, form, signal, workspace, limiter=self._decoders
            )
        except Refusal:
            raise
        except Exception as error:  # a mistake of ours: it must not take another way out than a refusal
            _log.exception("could not decode an export of %s", signal.name)
            raise Refusal(500, "not stored: the server failed, see its log") from error
        # What waits for the database is the inflated content, which gzip can make a thousandfold.
        ticket.hold(max(0, size - ticket.size))
        tally.too_old(await self._write(batches))
        self.stats.add(signal.name, tally, protocol=protocol, size=arrived.wire)
        message = short(tally.explain())
        if tally.rejected and not tally.accepted and not tally.foreign:
            raise Refusal(400, message)
        return signal.respond(tally.rejected, message)

    def _decode(
        self, arrived: Arrived, form: Format, signal: Signal, workspace: str
    ) -> tuple[Sequence[Told], Tally, int]:
        raw = arrived.inflate()
        message = decode(raw, form, signal.request())
        if (found := signal.items(message)) > MAX_ITEMS:
            raise Refusal(
                413, f"one export holds {found} items, at most {MAX_ITEMS} are taken: send smaller ones"
            )
        if (found := signal.attributes(message)) > MAX_ATTRIBUTES:
            raise Refusal(
                413,
                f"one export holds {found} attributes, at most {MAX_ATTRIBUTES} are taken: send smaller ones",
            )
        if workspace != ANY_WORKSPACE:
            bind(message, signal, workspace)
        return *signal.read(message), len(raw)

    async def _write(self, batches: Sequence[Told]) -> int:
        """Commit; a client that goes away meanwhile does not stop it. Return what was left out as too old.

        Raises:
            Refusal: nothing was stored.
        """
        if not batches:
            return 0
        try:
            return await to_thread.run_sync(
                self.stats.commit, self._store, batches, datetime.now(UTC), limiter=self._writers
            )
        except Unavailable as error:
            raise Refusal(503, f"not stored: {error}") from error
        except Refused as error:
            raise Refusal(400, f"not stored: {error}") from error
        except StoreError as error:  # a database that is damaged may be restored: the client keeps its data
            _log.error("could not store %d batches: %s", len(batches), error)
            raise Refusal(503, "not stored: the database is broken, see the server's log") from error
        except Exception as error:
            _log.exception("could not store %d batches", len(batches))
            raise Refusal(500, "not stored: the server failed, see its log") from error
