"""Watches a model load its checkpoint: which name was written into which parameter, and which was dropped.

Loaders write with ``param.data.copy_`` through many forms of weight loader, silently skip names that they
do not know, and say nothing of parameters that no name reached. So the writes themselves are watched: torch
hands every operation of the loading thread to a dispatch mode, and each address it reads or writes is looked
up among the tensors that the checkpoint has yielded and among the model's parameters.

What the mode cannot see (another thread, a replaced ``param.data``) changes the contents all the same: a
parameter that was not seen written is compared with a sample taken before the load.

The engine's operations always run, once; an error of ours ends the watching and is told.
"""

from __future__ import annotations

import importlib
import weakref
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, cast

from specscope.weight_values import values

MAX_UNUSED: Final = 1000
"""Unused names kept of a load."""
PROBE: Final = 4096
"""Elements sampled of each parameter before a load."""


@dataclass(slots=True)
class Name:
    """One name of the checkpoint: the parameters it was written into, and whether anything read it."""

    shape: tuple[int, ...]
    dtype: str
    read: bool = False
    into: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Parameter:
    """One parameter before and after a load. ``filled`` counts elements that were seen written.

    ``changed``: its sampled contents differ from before, known only where nothing was seen written.
    """

    elements: int
    filled: int = 0
    sources: list[str] = field(default_factory=list[str])
    changed: bool | None = None


@dataclass(slots=True)
class Load:
    """One watched load. ``error`` says why the watching ended early: nothing is then known to be missing."""

    names: dict[str, Name] = field(default_factory=dict[str, Name])
    parameters: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    error: str = ""
    more_unused: int = 0
    """Names that nothing looked at beyond the first :data:`MAX_UNUSED`: counted, not kept."""


@dataclass(slots=True)
class _Yielded:
    start: int
    end: int
    name: str
    alive: Callable[[], Any]


class LoadWatch:
    """Watches one load of ``model``; the result is :attr:`load`."""

    def __init__(self, model: Any, *, probe: bool = True) -> None:
        """Note where each parameter lies and, with ``probe``, what it holds."""
        self._probe = probe
        self.load = Load()
        self._ranges: list[tuple[int, int, str]] = []
        self._views: dict[str, set[tuple[Any, ...]]] = {}
        self._before: dict[str, str] = {}
        self._yielded: list[_Yielded] = []
        self._current: _Yielded | None = None
        self._model: Any = model
        self._guarded(self._note_parameters)

    def run(self, load_weights: Callable[..., Any], weights: Any, *args: Any, **kwargs: Any) -> Any:
        """Return ``load_weights(weights, ...)``, watched; what it raises passes through."""
        mode = None
        if not self.load.error:
            mode = self._guarded(lambda: _mode_class()(self._note).__enter__())
        if mode is None:
            return load_weights(weights, *args, **kwargs)
        try:
            result = load_weights(self._watched(weights), *args, **kwargs)
        except BaseException as error:
            self.load.error = self.load.error or f"the load failed: {type(error).__name__}: {error}"[:300]
            raise
        finally:
            mode.__exit__(None, None, None)
        self._guarded(self._compare)
        return result

    def _watched(self, weights: Iterable[Any]) -> Iterator[Any]:
        for item in weights:
            if not self.load.error:
                self._guarded(lambda item=item: self._begins(*item))
            yield item
        self._current = None

    def _guarded(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - watching must never break the engine's load
            self.load.error = self.load.error or f"{type(error).__name__}: {error}"[:300]
            return None

    def _note_parameters(self) -> None:
        for name, parameter in self._model.named_parameters():
            size = parameter.numel() * parameter.element_size()
            self.load.parameters[name] = Parameter(int(parameter.numel()))
            if parameter.device.type == "meta":
                raise ValueError(f"{name} is on the meta device")
            if size:
                start = int(parameter.data_ptr())
                self._ranges.append((start, start + size, name))
                if self._probe:
                    self._before[name] = values(parameter.data, PROBE).hash
        self._ranges.sort()

    def _begins(self, name: Any, tensor: Any) -> None:
        """Note a tensor that the checkpoint yields: its address is its name from now on."""
        name = str(name)
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.load.names[name] = Name(tuple(int(n) for n in tensor.shape), dtype)
        start = int(tensor.data_ptr())
        entry = _Yielded(
            start, start + max(1, tensor.numel() * tensor.element_size()), name, weakref.ref(tensor)
        )
        self._yielded = [o for o in self._yielded if o.alive() is not None and not _overlap(o, entry)]
        insort(self._yielded, entry, key=lambda one: one.start)
        self._current = entry

    def _note(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """After an operation: who was read, and what was written."""
        if self.load.error:
            return
        self._guarded(lambda: self._attribute(function, args, kwargs))

    def _attribute(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        written: list[Any] = []
        sources: list[str] = []
        for argument, writes in _tensors(function, args, kwargs):
            if writes:
                written.append(argument)
                continue
            name = self._source(int(argument.data_ptr()))
            if name is not None:
                self.load.names[name].read = True
                if name not in sources:
                    sources.append(name)
        for tensor in written:
            parameter = self._parameter(int(tensor.data_ptr()))
            if parameter is not None:
                self._wrote(parameter, tensor, sources)

    def _wrote(self, parameter: str, tensor: Any, sources: list[str]) -> None:
        fate = self.load.parameters[parameter]
        views = self._views.setdefault(parameter, set())
        view = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        if view not in views:
            views.add(view)
            fate.filled = min(fate.elements, fate.filled + int(tensor.numel()))
        if not sources and self._current is not None:
            # What was made of the tensor in hand (transposed, cast) has another address.
            current = self._current.name
            sources = [current] if self.load.names[current].read else []
        for name in sources:
            if parameter not in self.load.names[name].into:
                self.load.names[name].into.append(parameter)
            if name not in fate.sources:
                fate.sources.append(name)

    def _source(self, address: int) -> str | None:
        at = bisect_right(self._yielded, address, key=lambda one: one.start) - 1
        if at < 0:
            return None
        entry = self._yielded[at]
        if address >= entry.end or (entry is not self._current and entry.alive() is None):
            return None
        return entry.name

    def _parameter(self, address: int) -> str | None:
        at = bisect_right(self._ranges, address, key=lambda one: one[0]) - 1
        return self._ranges[at][2] if at >= 0 and address < self._ranges[at][1] else None

    def _compare(self) -> None:
        """After the load: look again at what was not seen written."""
        for name, parameter in self._model.named_parameters():
            fate = self.load.parameters.get(name)
            if fate is not None and not fate.filled and name in self._before:
                fate.changed = values(parameter.data, PROBE).hash != self._before[name]
        unused = [name for name, fate in self.load.names.items() if not (fate.read or fate.into)]
        for name in unused[MAX_UNUSED:]:
            del self.load.names[name]
        self.load.more_unused = max(0, len(unused) - MAX_UNUSED)
        self._yielded, self._current, self._model = [], None, None


def _overlap(one: _Yielded, other: _Yielded) -> bool:
    return one.start < other.end and other.start < one.end


def _tensors(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """Yield each tensor argument of an operation, and whether the operation writes it."""
    torch: Any = importlib.import_module("torch")
    writes = _writes(function)
    for key, value in (*enumerate(args), *kwargs.items()):
        several = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
        for one in several:
            if isinstance(one, torch.Tensor) and one.device.type != "meta":
                yield one, key in writes


@cache
def _writes(function: Any) -> frozenset[int | str]:
    """Return which arguments an operation writes, by position and by name, as its schema says."""
    found: set[int | str] = set()
    for position, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found |= {position, argument.name}
    return frozenset(found)


@cache
def _mode_class() -> Any:
    """Return the dispatch mode's class; made when torch is there."""
    base: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    def dispatch(
        mode: Any, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        mode.note(function, args, kwargs or {})
        return result

    def start(mode: Any, note: Callable[..., None]) -> None:
        base.__init__(mode)
        mode.note = note

    return type("LoadWatchMode", (base,), {"__init__": start, "__torch_dispatch__": dispatch})
