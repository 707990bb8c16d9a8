"""An SGLang plugin of the chaos tests: it breaks the tracer, the engine under it, or the disk.

``CHAOS`` in the environment says what, in words with commas:

- ``every_hook``: every callback of the tracer raises from the start, as does watching the load of weights;
- ``at_random``: each function of the adapter raises in one of 30 calls once the engine serves, and no hook
  gives up;
- ``no_disk``: the scheduler may not write a single byte to any file, nor may what it starts;
- ``other_version``: functions and attributes of SGLang are renamed, in the engine and in who calls them, as
  another version might have them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import random
import resource
import sys
from collections.abc import Callable, Iterable
from typing import Any

ADAPTER = "specscope.engines.sglang."
ONE_IN = 30
serving = False


def register() -> None:
    chaos = os.environ.get("CHAOS", "").split(",")
    if "sglang.srt.managers.scheduler" not in sys.modules:
        return  # neither the main process nor the detokenizer is traced
    if "every_hook" in chaos:
        every_hook()
    if "at_random" in chaos:
        at_random()
    if "other_version" in chaos:
        other_version()
    if "no_disk" in chaos:
        before_serving(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))


def before_serving(do: Callable[[], object]) -> None:
    plugin: Any = importlib.import_module(ADAPTER + "plugin")
    start = plugin._start

    def started(scheduler: Any) -> Any:
        do()
        return start(scheduler)

    plugin._start = started


def broken(*_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError("planted")


def every_hook() -> None:
    hooks: Any = importlib.import_module(ADAPTER + "hooks")
    watch: Any = importlib.import_module("specscope.load_watch").LoadWatch
    wrap = hooks.wrap

    def wrapped(owner: Any, attribute: str, guard: Any, before: Any = None, after: Any = None) -> None:
        wrap(owner, attribute, guard, before and broken, after and broken)

    def run(self: Any, _callback: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, broken, *args, **kwargs)

    original, hooks.Guard.run = hooks.Guard.run, run
    hooks.wrap = wrapped
    for step in ("_note_parameters", "_begins", "_attribute", "_compare"):
        assert hasattr(watch, step)
        setattr(watch, step, broken)


def at_random() -> None:
    recorder: Any = importlib.import_module("specscope.recorder")
    recorder.HOOK_ERRORS = 10**9
    names = (
        "commit conclude confidence looks passes path requests sampling sanity telling verify_input"
        " weight_events"
    )
    shared = ("specscope.copies", "specscope.tensorstats", "specscope.tensorstats_host")
    for path in (*shared, *(ADAPTER + name for name in names.split())):
        module: Any = importlib.import_module(path)
        for owner, attribute, function in functions_of(module):
            setattr(owner, attribute, sometimes(function))
    plugin: Any = importlib.import_module(ADAPTER + "plugin")
    start = plugin._start

    def started(scheduler: Any) -> Any:
        global serving
        stop = start(scheduler)
        serving = True
        return stop

    plugin._start = started


def members(owner: object) -> dict[str, Any]:
    return dict(owner.__dict__)


def functions_of(module: Any) -> Iterable[tuple[Any, str, Any]]:
    for name, value in members(module).items():
        if getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(value):
            yield module, name, value
        elif inspect.isclass(value):
            for attribute, function in members(value).items():
                # Not what dataclasses make: only our own code can be wrong.
                if inspect.isfunction(function) and not attribute.startswith("__"):
                    yield value, attribute, function


def sometimes(function: Any) -> Any:
    chance = random.Random(7)

    @functools.wraps(function)
    def maybe(*args: Any, **kwargs: Any) -> Any:
        if serving and chance.randrange(ONE_IN) == 0:
            raise RuntimeError("planted")
        return function(*args, **kwargs)

    return maybe


def other_version() -> None:
    eagle: Any = importlib.import_module("sglang.srt.speculative.eagle_worker_v2")
    logits: Any = importlib.import_module("sglang.srt.layers.logits_processor")
    results: Any = importlib.import_module("sglang.srt.managers.scheduler_components.batch_result_processor")
    # A method with another name, and whoever calls it.
    worker, draft = eagle.EAGLEWorkerV2, eagle.EagleDraftWorker
    old, new = "_draft_extend_for_decode", "_extend_draft_after_verify"
    setattr(draft, new, draft.__dict__[old])
    delattr(draft, old)
    renamed_in(worker, old, new)
    # A parameter with another name.
    pack = logits.pack_aux_hidden_states

    def pack_aux_hidden_states(states: Any) -> Any:
        return pack(states)

    logits.pack_aux_hidden_states = pack_aux_hidden_states
    # A result that keeps its counts under another name.
    old, new = "num_correct_drafts_per_req_cpu", "correct_drafts"
    renamed_in(results.SchedulerBatchResultProcessor, old, new)


def renamed_in(owner: Any, old: str, new: str) -> None:
    found = 0
    for function in members(owner).values():
        code = getattr(function, "__code__", None)
        if code is not None and old in code.co_names:
            names = tuple(new if name == old else name for name in code.co_names)
            function.__code__ = code.replace(co_names=names)
            found += 1
    if not found:
        raise LookupError(f"{owner.__name__} names no {old}")
