"""Tells each change of weights: updates, LoRA adapters, memory released and taken back.

SGLang's scheduler hands requests to functions by their type (``Scheduler._request_dispatcher``). The entries
for these requests are wrapped there, on the live object; between two forward passes, so that tensors may be
read. What the engine returns, and what it raises, is passed on as it was.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from specscope import convention as c
from specscope.engines.sglang import facts, weight_facts, weight_load
from specscope.engines.sglang.hooks import MARK, Guard
from specscope.engines.sglang.loaded import Loaded
from specscope.weights import changed

if TYPE_CHECKING:
    from specscope.recorder import Recorder

_logger = logging.getLogger("specscope")

EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    "UpdateWeightFromDiskReqInput": (c.EVENT_WEIGHT_UPDATE, "from disk"),
    "UpdateWeightsFromIPCReqInput": (c.EVENT_WEIGHT_UPDATE, "from another process"),
    "UpdateWeightsFromTensorReqInput": (c.EVENT_WEIGHT_UPDATE, "from tensors"),
    "UpdateWeightsFromDistributedReqInput": (c.EVENT_WEIGHT_UPDATE, "from a process group"),
    "EndWeightUpdateReqInput": (c.EVENT_WEIGHT_UPDATE, "end of a session"),
    "LoadLoRAAdapterReqInput": (c.EVENT_LORA_LOAD, "from disk"),
    "LoadLoRAAdapterFromTensorsReqInput": (c.EVENT_LORA_LOAD, "from tensors"),
    "UnloadLoRAAdapterReqInput": (c.EVENT_LORA_UNLOAD, ""),
    "ReleaseMemoryOccupationReqInput": (c.EVENT_MEMORY_RELEASE, ""),
    "ResumeMemoryOccupationReqInput": (c.EVENT_MEMORY_RESUME, ""),
}
"""Request of the scheduler to (event, how it came). Updates in a session come in many parts: they are told
once, with its end."""

_PARTS: Final = ("UpdateWeightsFromTensorReqInput", "UpdateWeightsFromDistributedReqInput")
_END: Final = "EndWeightUpdateReqInput"
_MAX_CHANGED: Final = 100
_MESSAGE: Final = 300


class Versioned(Protocol):
    """Whoever stamps steps with the version of the weights."""

    weight_version: int


class WeightEvents:
    """The weights of one scheduler over its life."""

    def __init__(self, loaded: Loaded, recorder: Recorder) -> None:
        """Watch nothing yet."""
        self.version = 0
        """Grows by one with each change: steps carry it."""
        self._steps: Versioned | None = None
        self._loaded, self._recorder = loaded, recorder
        self._hashes: dict[str, str] = {}
        self._loads = self._count_loads()
        self._parts = 0
        self._parts_failed = ""

    def config(self) -> dict[str, Any]:
        """Return what the record of the start says of weights; never raises."""
        return self._taken({}, readable=True)

    def install(self, steps: Versioned | None) -> list[str]:
        """Wrap the dispatcher's entries. Returns what could not be, one text each.

        ``steps`` is told each new version before a step runs on it; ``None`` where no steps are told.
        """
        self._steps = steps
        mapping: Any = getattr(getattr(self._loaded.scheduler, "_request_dispatcher", None), "_mapping", None)
        if not isinstance(mapping, dict):
            return ["Scheduler._request_dispatcher has no mapping in this engine version: no weight events"]
        entries = cast("dict[type, Callable[..., Any]]", mapping)
        found = {kind.__name__: kind for kind in entries}
        for name in EVENTS:
            kind = found.get(name)
            if kind is not None and not getattr(entries[kind], MARK, False):
                entries[kind] = self._wrapped(name, entries[kind])
        return [
            f"the scheduler takes no {name} in this engine version" for name in EVENTS if name not in found
        ]

    def _wrapped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        guard = Guard(f"weights:{name}", (), self._recorder)

        @functools.wraps(original)
        def handled(request: Any) -> Any:
            began = time.monotonic_ns()
            try:
                result = original(request)
            except BaseException as error:
                guard.run(self._happened, name, request, None, f"{type(error).__name__}: {error}", began)
                raise
            guard.run(self._happened, name, request, result, "", began)
            return result

        setattr(handled, MARK, True)
        return handled

    def _happened(self, name: str, request: Any, result: Any, error: str, began_ns: int) -> None:
        event, how = EVENTS[name]
        failure = error or _failure(result)
        if name in _PARTS:
            self._part(failure)
            return
        if name == _END:
            if not self._parts and not error and failure:
                return  # no session was open: nothing happened
            failure = failure or self._parts_failed
            parts, self._parts, self._parts_failed = self._parts, 0, ""
            if not parts:
                self._raise_version()
        else:
            parts = None
            if _touches(event, request, failure):
                self._raise_version()
        told: dict[str, Any] = {
            "how": how,
            "success": not failure,
            "message": failure[:_MESSAGE],
            "seconds": round((time.monotonic_ns() - began_ns) / 1e9, 3),
            "parts": parts,
            **_asked(request),
        }
        readable = "weights" not in getattr(self._loaded.scheduler.weight_updater, "offload_tags", ())
        self._tell(event, {key: value for key, value in told.items() if value not in (None, "")}, readable)

    def _part(self, failure: str) -> None:
        """Take note of one part of an update: from its first one on, steps run on other weights."""
        if not self._parts:
            self._raise_version()
        self._parts += 1
        self._parts_failed = self._parts_failed or failure

    def _raise_version(self) -> None:
        self.version += 1
        if self._steps is not None:
            self._steps.weight_version = self.version

    def _tell(self, event: str, told: Mapping[str, Any], readable: bool) -> None:
        more = self._taken(told, readable=readable)
        self._recorder.emit(facts.engine_facts(self._loaded, event=event, more=more))

    def _taken(self, told: Mapping[str, Any], *, readable: bool) -> dict[str, Any]:
        event = dict(told)
        try:
            event |= self._newest_loads()
            taken = weight_facts.take(self._loaded, readable=readable)
            if readable:
                if told:
                    names = changed(self._hashes, taken.hashes)
                    event |= {"changed": names[:_MAX_CHANGED], "changed_count": len(names)}
                self._hashes = taken.hashes
            found = weight_facts.merged({}, taken, self.version, event)
            return found | {"differences": weight_facts.differences(self._loaded)}
        except Exception as error:  # noqa: BLE001 - that it cannot be told is told, and the rest goes out
            text = f"{type(error).__name__}: {error}"[:_MESSAGE]
            _logger.warning("specscope: the weights cannot be read: %s", text)
            return {"weights": {"version": self.version, "event": event, "error": text}}

    def _count_loads(self) -> list[int]:
        found = [weight_load.of(runner.model) for runner in self._loaded.draft_runners]
        return [0 if one is None else one.loads for one in found]

    def _newest_loads(self) -> dict[str, Any]:
        """Return what the newest load brought to each draft that was loaded since the last event."""
        before, self._loads = self._loads, self._count_loads()
        found: list[dict[str, Any]] = []
        for number, (count, seen) in enumerate(zip(self._loads, before, strict=True)):
            watched = weight_load.of(self._loaded.draft_runners[number].model)
            if count == seen or watched is None or watched.newest is None:
                continue
            load = watched.newest
            one: dict[str, Any] = {"draft": number, "loads": count - seen, "error": load.error}
            one["names"] = len(load.names) + load.more_unused
            if not load.error:
                fates = load.names.items()
                unused = [n for n, f in fates if not (f.read or f.into or weight_load.ignores(n))]
                one["into"] = sorted({name for _, fate in fates for name in fate.into})[:_MAX_CHANGED]
                one |= {"unused": unused[:_MAX_CHANGED], "unused_count": len(unused) + load.more_unused}
            found.append(one)
        return {"draft_loads": found} if found else {}


def _touches(event: str, request: Any, failure: str) -> bool:
    """Say whether what is computed with may be another now: a failed update may have written half of it."""
    if event == c.EVENT_MEMORY_RESUME:
        tags = getattr(request, "tags", None)
        return not tags or "weights" in tags
    return event == c.EVENT_WEIGHT_UPDATE or (event != c.EVENT_MEMORY_RELEASE and not failure)


def _failure(result: Any) -> str:
    """Return why the engine says that it failed, empty when it does not."""
    if getattr(result, "success", True):
        return ""
    return str(getattr(result, "message", "") or getattr(result, "error_message", "") or "failed")


def _asked(request: Any) -> dict[str, Any]:
    """Return what was asked for, of what may be told: where from, which part, for whom."""
    found: dict[str, Any] = {}
    for name in ("model_path", "load_format", "weight_version", "selector", "lora_name", "lora_path"):
        value = getattr(request, name, None)
        if isinstance(value, str) and value:
            found[name] = facts.text(value)
    if hasattr(request, "tags"):
        found["tags"] = [str(tag) for tag in cast("list[object]", request.tags or ["all"])]
    return found
