"""Statistics of hidden states inside CUDA graphs: captured kernels, and buffers that outlive a capture.

While a graph is captured, :meth:`StaticStats.record` launches the reduction of :mod:`.tensorstats` into a
buffer, so that it becomes part of the graph and every replay leaves fresh numbers there. After a replay
:meth:`StaticStats.read` takes them out of the buffers *on the stream of the replay*: the next replay may come
before a copy on another stream has begun. What it returns is for :class:`.copies.Copies`.

All buffers are cut from one piece of memory that was allocated outside of any capture and is never given
back. So no graph's pool holds them, and a graph that was replaced and is replayed all the same writes into
our numbers and never into the engine's memory.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from specscope import tensorstats
from specscope.copies import REFUSED

BYTES: Final = 32 << 20
"""Device memory of all buffers. Graphs for up to 256 requests of 4 nodes at SGLang's batch sizes take 3 MiB
for an aux hidden state's place with 3 slots and all columns, and 6 MiB for the rest of the draft path."""
ALIGNED: Final = 4
"""Numbers at whose multiples buffers begin: 16 bytes, so that one kernel serves them all."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one place left: ``found`` float32 [rows, slots, columns], on the device."""

    place: Hashable
    found: Any


@dataclass(slots=True)
class _Buffer:
    begin: int
    size: int
    found: Any


class StaticStats:
    """The buffers of one device, by graph and place. Keys are the caller's."""

    def __init__(
        self,
        missed: Counter[str],
        *,
        most: int = BYTES,
        capturing: Callable[[], bool] | None = None,
        loaded: Callable[[Any, int, int], bool] | None = None,
    ) -> None:
        """Count in ``missed`` what could not be recorded. Takes ``most`` bytes when the first rows come.

        ``capturing`` and ``loaded`` say whether the current stream is being captured, and whether the kernel
        for such rows, slots and columns was launched before: as torch and :mod:`.tensorstats_triton` know it.
        """
        self.missed = missed
        self._numbers = most // 4
        self._capturing = capturing or _capturing
        self._loaded = loaded or _loaded
        self._memory: Any = None
        self._holes: list[tuple[int, int]] = [(0, self._numbers)]
        self._graphs: dict[Hashable, dict[Hashable, _Buffer]] = {}

    @property
    def held(self) -> int:
        """Return the bytes that graphs hold."""
        return 4 * (self._numbers - sum([size for _, size in self._holes]))

    def begin(self, graph: Hashable) -> None:
        """Before ``graph`` is captured, also anew: what an earlier capture recorded is given up."""
        self.forget(graph)
        self._graphs[graph] = {}

    def forget(self, graph: Hashable) -> None:
        """Give up what was recorded for ``graph``, which is replayed no more."""
        for buffer in self._graphs.pop(graph, {}).values():
            self._give_back(buffer.begin, buffer.size)

    def record(self, graph: Hashable, place: Hashable, rows: Any, slots: int, *, projections: bool) -> bool:
        """Make the reduction of ``rows`` [n, slots x H] part of the graph that is captured; say whether.

        Outside of a capture, so in the forward passes that warm up for one, this loads what the capture
        needs: to load a kernel while capturing breaks the capture. A place recorded twice has the last rows.

        Raises:
            ValueError: as :func:`.tensorstats.reduce`.
        """
        if not self._capturing():
            self._warm(rows[:1], slots, projections)
            return False
        shape = (int(rows.shape[0]), slots, tensorstats.columns(projections))
        buffers = self._graphs.setdefault(graph, {})
        buffer = buffers.get(place)
        if buffer is None and self._memory is not None and self._loaded(rows, slots, shape[2]):
            buffer = self._take(shape)
        if buffer is None or tuple(buffer.found.shape) != shape:
            self.missed[REFUSED] += 1
            return False
        buffers[place] = buffer
        tensorstats.reduce(rows, slots, projections=projections, out=buffer.found)
        return True

    def read(self, graph: Hashable, wanted: int | Mapping[Hashable, int]) -> list[Recorded]:
        """Return what the replay of ``graph`` that was begun last on the current stream leaves there.

        ``wanted`` are the rows that count, of all places or of each; a replayed batch is padded. Places not
        named have all their rows. Nothing is waited for; a copy is begun, on the current stream.
        """
        buffers = self._graphs.get(graph)
        if not buffers or self._capturing():
            return []
        torch: Any = importlib.import_module("torch")
        views: list[Any] = []
        for place, buffer in buffers.items():
            count = wanted if isinstance(wanted, int) else wanted.get(place, len(buffer.found))
            views.append(buffer.found[:count])
        # One launch for all of them.
        copied = torch.cat([view.reshape(-1) for view in views]).split([view.numel() for view in views])
        return [
            Recorded(place, one.view(view.shape))
            for place, one, view in zip(buffers, copied, views, strict=True)
        ]

    def _warm(self, row: Any, slots: int, projections: bool) -> None:
        torch: Any = importlib.import_module("torch")
        if self._memory is None:
            self._memory = torch.empty(self._numbers, dtype=torch.float32, device=row.device)
        if len(row) and not self._loaded(row, slots, tensorstats.columns(projections)):
            tensorstats.reduce(row, slots, projections=projections)

    def _take(self, shape: tuple[int, int, int]) -> _Buffer | None:
        count = shape[0] * shape[1] * shape[2]
        size = -(-count // ALIGNED) * ALIGNED
        for at, (begin, free) in enumerate(self._holes):
            if free >= size:
                self._holes[at] = (begin + size, free - size)
                return _Buffer(begin, size, self._memory[begin : begin + count].view(shape))
        return None

    def _give_back(self, begin: int, size: int) -> None:
        holes: list[tuple[int, int]] = []
        for at, free in sorted([*self._holes, (begin, size)]):
            if holes and sum(holes[-1]) == at:
                holes[-1] = (holes[-1][0], holes[-1][1] + free)
            else:
                holes.append((at, free))
        self._holes = holes


def _capturing() -> bool:
    torch: Any = importlib.import_module("torch")
    return bool(torch.cuda.is_current_stream_capturing())


def _loaded(rows: Any, slots: int, columns: int) -> bool:
    if not tensorstats.captured(rows.dtype, rows.shape[1] // slots):
        return False
    kernels: Any = importlib.import_module("specscope.tensorstats_triton")
    return kernels.loaded(rows, slots, columns)
