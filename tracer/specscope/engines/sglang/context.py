"""The caller's trace context, carried to the scheduler where SGLang would leave it behind.

With ``--enable-trace`` SGLang hands the context of each request to its scheduler itself. Without, the header
``traceparent`` ends in the process that answers HTTP. There we note it at the request's time stats, which go
to the scheduler anyway: one more text in what is pickled of them, which nothing of SGLang reads.

In processes that answer HTTP besides the main one (``--tokenizer-worker-num`` above 1) SGLang loads no
plugins, and from its Rust server no header comes: those requests get a trace id of ours.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

CARRIED: Final = "specscope_traceparent"
"""Attribute of a request's objects in SGLang, and key in the state of its time stats: a ``traceparent``."""

RECEIVED: Final = "sglang.srt.managers.tokenizer_manager.TokenizerManager._init_req_state"
"""``(self, obj, request=None)``: makes the states of a request, one for each prompt of a batch."""
STATS: Final = "sglang.srt.observability.req_time_stats.ReqTimeStatsBase"
CONTROLLER_MODULE: Final = "sglang.srt.managers.data_parallel_controller"

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
"""W3C Trace Context, version 00; a later version may go on after a dash."""


def register(registry: Any, *, main: bool) -> None:
    """Register the hooks of this process: the main one, a data-parallel controller or a scheduler.

    The latter two pass requests on, a scheduler to its other ranks. ``registry`` is SGLang's module
    ``hook_registry``.
    """
    register_hook, kinds = registry.HookRegistry.register, registry.HookType
    register_hook(f"{STATS}.__getstate__", state, kinds.AROUND)
    if main:
        register_hook(RECEIVED, received, kinds.AFTER)
    elif CONTROLLER_MODULE in sys.modules:
        register_hook(f"{STATS}.new_from_obj", copied, kinds.AROUND)


def parse(header: object) -> tuple[int, int] | None:
    """Return (trace id, parent span id) of a ``traceparent``, ``None`` where it is none."""
    if not isinstance(header, str):
        return None
    found = _TRACEPARENT.match(header.strip().lower())
    if found is None:
        return None
    trace, span = int(found[1], 16), int(found[2], 16)
    return (trace, span) if trace and span else None


def received(_result: Any, manager: Any, obj: Any, request: Any = None) -> None:
    """After ``_init_req_state``: note the header at each prompt of the request. Never raises."""
    try:
        header = _header(obj, request)
        if parse(header) is None:
            return
        for rid, one in _prompts(obj):
            # Of n > 1 samples SGLang copies the object and comes here again, without the HTTP request.
            setattr(one, CARRIED, header)
            setattr(manager.rid_to_state[rid].time_stats, CARRIED, header)
    except Exception:  # noqa: BLE001 - a request without its context is still served
        return


def state(original: Callable[[Any], Any], stats: Any) -> Any:
    """Around ``__getstate__`` of time stats: add what :func:`received` noted."""
    made = original(stats)
    try:
        header = stats.__dict__.get(CARRIED)
        if header is not None and isinstance(made, dict):
            made[CARRIED] = header
    except Exception:  # noqa: BLE001 - likewise
        return made  # pyright: ignore[reportUnknownVariableType]
    return made  # pyright: ignore[reportUnknownVariableType]


def copied(original: Callable[..., Any], cls: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``new_from_obj``, by which a controller takes over the stats: keep what they carry."""
    made = original(cls, obj, *args, **kwargs)
    try:
        header = getattr(obj, "__dict__", {}).get(CARRIED)
        if header is not None:
            setattr(made, CARRIED, header)
    except Exception:  # noqa: BLE001 - likewise
        return made
    return made


def carried(recv_req: Any) -> tuple[int, int] | None:
    """Return (trace id, parent span id) of a request as the scheduler received it, if it carries them."""
    stats = getattr(recv_req, "time_stats", None)
    return parse(getattr(stats, "__dict__", {}).get(CARRIED))


def _header(obj: Any, request: Any) -> object:
    given = getattr(obj, "external_trace_header", None)
    if isinstance(given, Mapping):  # of Engine.generate(external_trace_header=...)
        return cast("Mapping[str, object]", given).get("traceparent")
    if request is not None:
        return request.headers.get("traceparent")
    return getattr(obj, CARRIED, None)


def _prompts(obj: Any) -> list[tuple[Any, Any]]:
    """Return (rid, object) of each prompt, as ``_init_req_state`` tells them apart."""
    if getattr(obj, "is_single", True):
        return [(obj.rid, obj)]
    return [(rid, obj[index]) for index, rid in enumerate(obj.rid)]
