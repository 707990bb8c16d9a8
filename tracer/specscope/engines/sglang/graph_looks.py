"""Looks inside the draft's CUDA graphs: their kernels are captured with the graph, and each replay runs them.

A replay runs no Python, so what happens inside it is seen by what was captured there. While SGLang captures
one of the draft's graphs (``capture_one_shape``), the modules of the draft carry hooks that add our reduction
to the graph; they are gone before anything else runs the model. After a replay (``_replay_graph``) the
buffers hold that replay's numbers, and are cloned on the producing stream before the next one overwrites
them. Every replay pays for these kernels, so that they are captured at detail ``full`` alone.

Written from the sources of SGLang 0.5.23 and never run on a device: docs/engines.md.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from specscope import hidden
from specscope.engines.sglang import loaded
from specscope.static_stats import StaticStats

if TYPE_CHECKING:
    from specscope.recorder import Recorder

_logger = logging.getLogger("specscope")

RUNNERS: Final = (
    "sglang.srt.speculative.eagle_draft_cuda_graph_runner.EAGLEDraftCudaGraphRunner",
    "sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner.EAGLEDraftExtendCudaGraphRunner",
)
"""What captures and replays the loop over the draft's steps, and the draft extend after a verify step."""

Read = Callable[[int], list[tuple[str, int, Any]]]
"""Gives what the replay that has just begun leaves of so many rows: place, how often the graph had met it
(from 1), and float32 [rows, slots, columns]."""


class GraphLooks:
    """The captured looks of one process. Whatever fails here is logged once and costs the looks alone."""

    def __init__(self, static: StaticStats) -> None:
        """Capture into ``static``."""
        self.replayed: Callable[[Read], None] | None = None
        """Called after each replay; set once the engine serves."""
        self._static = static
        self._graph: object = None
        """The graph that is being captured or warmed up, ``None`` between them."""
        self._seen: Counter[str] = Counter()
        self._complained = False

    def capture(self, original: Callable[..., Any], runner: Any, *args: Any, **kwargs: Any) -> Any:
        """Around ``capture_one_shape`` of one of :data:`RUNNERS`."""
        remove = self._guarded(self._watch, runner)
        try:
            return original(runner, *args, **kwargs)
        finally:
            if remove is not None:
                self._guarded(remove)

    def replay(self, original: Callable[..., Any], runner: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
        """Around ``_replay_graph``."""
        result = original(runner, shape, *args, **kwargs)
        if self.replayed is not None:
            graph = (id(runner), shape)
            self._guarded(self.replayed, functools.partial(self._read, graph))
        return result

    def _read(self, graph: tuple[int, Any], rows: int) -> list[tuple[str, int, Any]]:
        found = self._static.read(graph, rows)
        return [(*cast("tuple[str, int]", one.place), one.found) for one in found]

    def serve(self, recorder: Recorder, replayed: Callable[[Read], None]) -> None:
        """From now on the engine serves: call ``replayed``, and count with ``recorder``."""
        recorder.missed.update(self._static.missed)
        self._static.missed = recorder.missed
        self.replayed = replayed

    def _watch(self, runner: Any) -> Callable[[], None]:
        """Hook the draft's modules and the capture of each graph; return how to take the hooks off."""
        model, backend = runner.model_runner.model, runner.backend
        original = backend.capture_one
        config = runner.model_runner.model_config.hf_config
        each = int(getattr(config, "target_hidden_size", None) or config.hidden_size)
        handles: list[Any] = []
        fc, embedding = loaded.find_fc(model), loaded.find_embedding(model)
        if fc is not None:
            handles.append(fc.register_forward_pre_hook(self._hook(hidden.FC_IN, each)))
            handles.append(fc.register_forward_hook(self._hook(hidden.FC_OUT)))
        if embedding is not None:
            handles.append(embedding.register_forward_hook(self._hook(hidden.EMBEDDING)))
        logits = getattr(model, "logits_processor", None)
        if logits is not None:  # its output holds the state for the next step
            handles.append(logits.register_forward_hook(self._hook(hidden.CARRY)))

        def capture_one(shape: Any, forward: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
            def counted() -> Any:
                self._seen.clear()
                return forward()

            graph = (id(runner), shape)
            self._guarded(self._static.begin, graph)
            with self._being(graph):
                return original(shape, counted, *args, **kwargs)

        backend.capture_one = capture_one

        def remove() -> None:
            del backend.capture_one
            for handle in handles:
                handle.remove()

        return remove

    @contextmanager
    def _being(self, graph: object) -> Generator[None]:
        self._graph = graph
        try:
            yield
        finally:
            self._graph = None

    def _hook(self, place: str, each: int | None = None) -> Callable[..., None]:
        """Return a hook that looks at [rows, width], of slots ``each`` wide; ``None``: one slot."""

        def saw(_module: Any, *seen: Any) -> None:
            if self._graph is not None:
                self._guarded(self._look, place, seen[-1], each)

        return saw

    def _look(self, place: str, seen: Any, each: int | None) -> None:
        states = cast("tuple[Any, ...]", seen)[0] if isinstance(seen, tuple) else seen
        states = getattr(states, "hidden_states", states)
        if states is None:
            return
        self._seen[place] += 1
        width = int(states.shape[-1])
        slots = width // each if each and width % each == 0 else 1
        self._static.record(self._graph, (place, self._seen[place]), states, slots, projections=True)

    def _guarded(self, action: Callable[..., Any], *args: Any) -> Any:
        try:
            return action(*args)
        except Exception as error:  # noqa: BLE001 - neither capture nor replay may fail for a look
            if not self._complained:
                self._complained = True
                _logger.warning("specscope: looks in graphs: %s: %s", type(error).__name__, error)
            return None


_process: GraphLooks | None = None
"""One a process: graphs are captured long before the path exists."""


def register(registry: Any) -> None:
    """Hook the capture and replay of the draft's graphs with SGLang's own hook registry (its module).

    A runner that this version does not have is logged and left out by the registry.
    """
    global _process
    _process = looks = GraphLooks(StaticStats(Counter()))
    for runner in RUNNERS:
        registry.HookRegistry.register(f"{runner}.capture_one_shape", looks.capture, registry.HookType.AROUND)
        registry.HookRegistry.register(f"{runner}._replay_graph", looks.replay, registry.HookType.AROUND)


def of_process() -> GraphLooks | None:
    """Return what was registered in this process."""
    return _process
