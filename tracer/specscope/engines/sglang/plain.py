"""Plain decode passes of a scheduler without a draft: timed, so that speculation can be held against them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specscope import convention as c
from specscope.engines.sglang.hooks import Hook

if TYPE_CHECKING:
    from specscope.engines.sglang.loaded import Loaded
    from specscope.recorder import Recorder


class Plain:
    """Sees the begin of each forward; runs on the scheduler's only thread."""

    def __init__(self, recorder: Recorder) -> None:
        """Add to the recorder's times."""
        self._times = recorder.pass_times
        self._reqs: list[Any] = []

    def begins(self, batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """Before ``forward_batch_generation`` of the target's worker."""
        if batch is None or not batch.forward_mode.is_decode():
            self._times.pause()
            return
        if self._reqs != batch.reqs:
            self._reqs = batch.reqs.copy()
        self._times.begins(c.PASS_DECODE, self._reqs, batch.forward_iter)


def plain_hooks(loaded: Loaded, recorder: Recorder) -> list[Hook]:
    """Return the hook on plain forwards; no boundary depends on it."""
    worker = loaded.scheduler.tp_worker
    return [Hook(worker, "forward_batch_generation", ("batch",), (), before=Plain(recorder).begins)]
