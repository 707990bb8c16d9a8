"""An SGLang plugin of the zoo: one launched engine becomes many engines, one after the other.

A launch costs a minute of a processor, so mechanisms that change a live engine share one. Nothing may leak
from one to the next: at each change the fault is taken away, the tracer is ended and every hook of it undone,
and a new tracer starts as it does when an engine starts, under another instance. For the server that is
another engine, with its own ledger, weight inventory, configuration, history and requests.

A change is asked for by a file and made when the scheduler is told to flush its cache, with no request left.
Planted with the modules of the mechanisms, it needs nothing but them, the engine and the tracer.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import traceback
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

CONTROL = "ZOO_CONTROL"
"""Names the file that says which mechanism comes next: JSON with ``module``, ``name``, ``early`` and settings
of the tracer."""

Stop = Callable[[bool], None]


def mechanism(module: str, name: str, worker: Any) -> AbstractContextManager[None]:
    """Return a fault for an ``EAGLEWorkerV2``. Raises KeyError: no such fault."""
    found = importlib.import_module(module)
    return (
        found.faults()[name].lay(worker) if module == "patching" else found.FAULTS[name](found.Engine(worker))
    )


@contextmanager
def undone_later() -> Generator[Callable[[], None]]:
    """What the tracer wraps and hooks meanwhile is undone when the given function is called."""
    hooks: Any = importlib.import_module("specscope.engines.sglang.hooks")
    module: Any = importlib.import_module("torch").nn.Module
    undo: list[Callable[[], object]] = []
    wrap = hooks.wrap

    def wraps(owner: Any, attribute: str, *more: Any) -> None:
        was = attribute in vars(owner)
        before: Any = owner.__dict__[attribute] if was else None
        wrap(owner, attribute, *more)
        if attribute in vars(owner) and vars(owner)[attribute] is not before:
            back = functools.partial(setattr, owner, attribute, before)
            undo.append(back if was else functools.partial(delattr, owner, attribute))

    def registers(name: str) -> Callable[..., Any]:
        original = getattr(module, name)

        def registered(*given: Any, **more: Any) -> Any:
            handle = original(*given, **more)
            undo.append(handle.remove)
            return handle

        return registered

    def undone() -> None:
        while undo:
            undo.pop()()

    names = ("register_forward_hook", "register_forward_pre_hook")
    originals = {name: getattr(module, name) for name in names}
    replaced = {name: registers(name) for name in names}
    hooks.wrap = wraps
    for name, function in replaced.items():
        setattr(module, name, function)
    try:
        yield undone
    finally:
        hooks.wrap = wrap
        for name, original in originals.items():
            setattr(module, name, original)


class Engines:
    """The engines that one scheduler is, one after the other."""

    def __init__(self, scheduler: Any, start: Callable[[Any], Stop | None]) -> None:
        """``start`` is the tracer's: it returns how to end it."""
        self._scheduler, self._start = scheduler, start
        self._control = Path(os.environ[CONTROL])
        self._entries: dict[type, Callable[..., Any]] = scheduler._request_dispatcher._mapping
        self._flush = next(kind for kind in self._entries if kind.__name__ == "FlushCacheReqInput")
        self._now = ""
        self._held = ExitStack()
        original = self._entries[self._flush]

        def flushes(request: Any) -> Any:
            wanted = self._control.read_text("utf-8")
            if wanted != self._now:
                self._change(wanted)
            return original(request)

        self._entries[self._flush] = flushes

    def end(self, _in_order: bool) -> None:
        """Take the fault away and end the tracer."""
        self._held.close()

    def _change(self, wanted: str) -> None:
        self._now = state = wanted
        try:
            self._held.close()
            self._begin(json.loads(wanted))
        except Exception:
            state = traceback.format_exc()
        in_force(self._control).write_text(state, "utf-8")

    def _begin(self, asked: dict[str, Any]) -> None:
        os.environ.update({name: asked[name] for name in asked if name.startswith("SPECSCOPE_")})
        fault = mechanism(asked["module"], asked["name"], self._scheduler.draft_worker)
        if asked["early"]:
            self._held.enter_context(fault)
        self._held.callback(self._entries.update, dict(self._entries))
        with undone_later() as undo:
            self._held.callback(undo)
            stop = self._start(self._scheduler)
        if stop is not None:
            self._held.callback(stop, True)
        if not asked["early"]:
            self._held.enter_context(fault)


def register() -> None:
    """Called by SGLang in each of its processes."""
    plugin: Any = importlib.import_module("specscope.engines.sglang.plugin")
    start = plugin._start

    def begins(scheduler: Any) -> Stop:
        return Engines(scheduler, start).end

    plugin._start = begins


def in_force(control: Path) -> Path:
    """The file that says what is in force, or why it could not be."""
    return control.with_suffix(".in-force")
