"""Entry point of the group ``sglang.srt.plugins``: decides whether to trace, and where.

SGLang calls :func:`register` in its main process, in each scheduler and in the detokenizer. Only a
scheduler that starts to serve is traced: one hook on ``Scheduler.run_event_loop`` waits for that, and the
rest is looked up on what the engine has built by then (all workers, models and CUDA graphs).
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from specscope import convention as c
from specscope import settings as settings_module
from specscope.identity import new_instance

if TYPE_CHECKING:
    from specscope.engines.sglang.path import Path
    from specscope.recorder import Recorder

T = TypeVar("T")

TARGET: Final = "sglang.srt.managers.scheduler.Scheduler.run_event_loop"
SCHEDULER_MODULE: Final = "sglang.srt.managers.scheduler"
MADE_INSTANCE: Final = "_SPECSCOPE_MADE_INSTANCE"
"""Set beside SPECSCOPE_INSTANCE when it was made here and not given, so that a scheduler can tell."""

_logger = logging.getLogger("specscope")


def register() -> None:
    """Prepare tracing in this process. Never raises: the engine starts whatever happens here."""
    try:
        _register()
    except Exception as error:  # noqa: BLE001 - nothing of ours may stop the engine
        announce(logging.WARNING, f"tracer off: {type(error).__name__}: {error}")


def _register() -> None:
    settings = settings_module.read()
    first = multiprocessing.parent_process() is None
    if first:  # once per launch: the children read the same environment
        for text in settings.ignored:
            announce(logging.WARNING, f"ignored: {text}")
        if settings.off:
            announce(logging.INFO, f"tracer off: {settings.off}")
    if settings.off:
        return
    # One made by another launch, whose environment this one inherited, is not ours.
    if first and os.environ.get(MADE_INSTANCE, "") == settings.instance:
        os.environ[settings_module.INSTANCE] = os.environ[MADE_INSTANCE] = new_instance()
    # A process that has not loaded the scheduler is none, and is spared the import.
    scheduler = SCHEDULER_MODULE in sys.modules
    registry: Any = importlib.import_module("sglang.srt.plugins.hook_registry")
    if first or scheduler:
        from specscope.engines.sglang import context

        context.register(registry, main=first)
    if scheduler:
        registry.HookRegistry.register(TARGET, serve, registry.HookType.AROUND)
        # Drafts are loaded long before that.
        from specscope.engines.sglang import weight_load

        reason = weight_load.register(registry)
        if reason:
            announce(logging.WARNING, f"loads of weights are not watched: {reason}")
        if settings.at_least(c.DETAIL_FULL) and importlib.import_module("torch").cuda.is_available():
            # Likewise the draft's graphs are captured before it serves.
            from specscope.engines.sglang import graph_looks

            graph_looks.register(registry)


def serve(original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``Scheduler.run_event_loop``, which returns when the scheduler shuts down."""
    stop = _start(scheduler)
    in_order = True
    try:
        return original(scheduler, *args, **kwargs)
    except Exception:
        in_order = False
        raise
    finally:
        if stop is not None:
            stop(in_order)


def _start(scheduler: Any) -> Callable[[bool], None] | None:
    """Start tracing a built scheduler; return how to end it (in order or not), ``None``: not started."""
    try:
        return _trace(scheduler)
    except Exception as error:  # noqa: BLE001 - an engine we cannot trace still serves
        say(logging.WARNING, f"tracer off: {type(error).__name__}: {error}")
        return None


def _trace(scheduler: Any) -> Callable[[bool], None]:
    # Imported here: the main process and the detokenizer pay for none of it.
    from specscope import recorder as recorder_module
    from specscope.engines.sglang import facts, group, install, loaded, weight_events

    settings = settings_module.read()
    try:
        engine = loaded.look(scheduler)
    except Exception as error:  # noqa: BLE001 - told as what it is: nothing of this engine can be seen
        return _blind(settings, f"this scheduler is not built as we know it: {type(error).__name__}: {error}")
    _check_instance(settings, engine.server_args)
    recorder = recorder_module.start(
        settings,
        role="scheduler",
        ranks=engine.ranks,
        engine_name=facts.ENGINE,
        engine_version=facts.version(),
    )
    # Each part by itself: what one engine version has lost must not cost the others.
    _part("comparing ranks", lambda: recorder.compare_ranks(group.size()))
    weights = _part("weights", lambda: weight_events.WeightEvents(engine, recorder))
    more = {} if weights is None else _part("weights", weights.config) or {}
    _part("configuration", lambda: recorder.emit(facts.engine_facts(engine, more=more)))
    path: Path | None = None
    try:
        path = install.start(engine, recorder)
    except Exception as error:  # noqa: BLE001 - likewise
        why = f"the hooks could not be put: {type(error).__name__}: {error}"
        _disarm_all(recorder, why, c.ARMING_CHANGED)
        say(logging.WARNING, f"not traced: {why}")
    if weights is not None:
        for reason in _part("weights", lambda: weights.install(path)) or ():
            say(logging.WARNING, f"not traced: {reason}")
    traced = engine.algorithm if path is not None else "requests only"
    endpoint = settings_module.without_userinfo(settings.endpoint)
    say(logging.INFO, f"tracing {traced} at detail {settings.detail} to {endpoint}")
    _warn_of_version()

    def stop(in_order: bool) -> None:
        try:
            if path is not None:
                path.close()
        finally:
            recorder.close(in_order=in_order)

    return _guarded(stop)


def _blind(settings: settings_module.Settings, why: str) -> Callable[[bool], None]:
    """Tell of an engine of which nothing can be seen: that it lives, and why there is no more."""
    from specscope import recorder as recorder_module
    from specscope.engines.sglang import facts
    from specscope.identity import Ranks

    recorder = recorder_module.start(
        settings,
        role="scheduler",
        ranks=Ranks(),
        engine_name=facts.ENGINE,
        engine_version=facts.version(),
    )
    _disarm_all(recorder, why, c.ARMING_CHANGED)
    say(logging.WARNING, f"only heartbeats are sent: {why}")
    _warn_of_version()
    return _guarded(lambda in_order: recorder.close(in_order=in_order))


def _disarm_all(recorder: Recorder, why: str, state: str) -> None:
    for boundary in c.BOUNDARIES:
        recorder.ledger.disarm(boundary, why, state)


def _part(what: str, start: Callable[[], T]) -> T | None:
    """Return what ``start`` does; ``None`` where it failed, which is said."""
    try:
        return start()
    except Exception as error:  # noqa: BLE001 - the engine serves, and the other parts are traced
        say(logging.WARNING, f"not traced: {what}: {type(error).__name__}: {error}")
        return None


def _warn_of_version() -> None:
    from specscope.engines.sglang import facts

    if facts.version() != facts.TESTED_VERSION:
        tested = facts.TESTED_VERSION
        say(logging.WARNING, f"SGLang {facts.version()} was not tested, {tested} was; each symbol is checked")


def _guarded(stop: Callable[[bool], None]) -> Callable[[bool], None]:
    def safely(in_order: bool) -> None:
        try:
            stop(in_order)
        except Exception as error:  # noqa: BLE001 - nor may stopping harm the engine
            say(logging.WARNING, f"stopping the tracer: {type(error).__name__}: {error}")

    return safely


def _check_instance(settings: settings_module.Settings, server_args: Any) -> None:
    made = os.environ.get(MADE_INSTANCE, "") == settings.instance
    if made and getattr(server_args, "nnodes", 1) > 1:
        say(
            logging.WARNING,
            f"this deployment has {server_args.nnodes} nodes: set {settings_module.INSTANCE} to one value on "
            "all of them, else each node shows as a deployment of its own",
        )


def say(level: int, text: str) -> None:
    """Write one line to the log: in a scheduler, whose log is set up."""
    _logger.log(level, "specscope: %s", text)


def announce(level: int, text: str) -> None:
    """Write one line that is seen although the engine has not set its log up yet."""
    if logging.getLogger().handlers and _logger.isEnabledFor(level):
        say(level, text)
    else:
        with contextlib.suppress(OSError, ValueError):  # its log's disk is full, or stderr is closed
            print(f"specscope: {text}", file=sys.stderr, flush=True)
