"""What fires, told again to Alertmanagers, which otherwise take it for ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from specscope_server.alerts import alertmanager
from specscope_server.alerts.send import post
from specscope_server.alerts.targets import ALERTMANAGER, Target
from specscope_server.store.port import Store

log = logging.getLogger(__name__)


class Refresher:
    """Tells every Alertmanager what fires, without a queue: the next refresh makes up for a failed one."""

    def __init__(
        self, store: Store, targets: Sequence[Target], base_url: str, clock: Callable[[], datetime]
    ) -> None:
        """Tell those of ``targets`` that are Alertmanagers."""
        self.targets = tuple(target for target in targets if target.kind == ALERTMANAGER)
        self._store, self._base_url, self._clock = store, base_url.rstrip("/"), clock
        self._trouble: dict[str, str] = {}

    async def refresh(self) -> None:
        """Tell what fires now.

        Raises:
            StoreError: the database cannot serve.
        """
        firing = await asyncio.to_thread(self._firing)
        if firing:
            await asyncio.gather(*(self._tell(target, firing) for target in self.targets))

    def _firing(self) -> list[dict[str, Any]]:
        now = self._clock()
        workspaces = sorted({workspace for workspace, _ in self._store.engine_uids()})
        return [
            alert
            for workspace in workspaces
            for alert in alertmanager.of_states(self._store.alerts(workspace), workspace, self._base_url, now)
        ]

    async def _tell(self, target: Target, firing: list[dict[str, Any]]) -> None:
        error = await post(target, alertmanager.url_of(target.url), firing)
        if error and error != self._trouble.get(target.label):
            log.warning("%s was not told what still fires: %s", target.label, error)
        self._trouble[target.label] = error
