"""Hooks that cannot harm the engine: the wrapped function always runs once, with what it was given.

A hook is a pair of callbacks around one engine function. Whatever they raise is caught and counted; after
a few errors (:meth:`specscope.recorder.Recorder.hook_failed` says when) the hook disarms itself and the
ledger says why.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from specscope import convention as c
from specscope.ledger import Arming

if TYPE_CHECKING:
    from specscope.recorder import Recorder

FAILED: Final = object()
"""What :meth:`Guard.run` returns when the callback did not run to its end."""

MARK: Final = "__specscope__"
"""Attribute of a wrapper, so that an object is never wrapped twice."""

REASON_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Hook:
    """One engine function, the parameters our callbacks rely on, and what depends on seeing it."""

    owner: Any
    attribute: str
    parameters: tuple[str, ...]
    boundaries: tuple[str, ...]
    before: Callable[..., Any] | None = None
    after: Callable[..., Any] | None = None
    prefix: str = ""
    """Tells functions of the same name apart."""

    @property
    def name(self) -> str:
        """Return the hook's name in counts and reasons."""
        return self.prefix + self.attribute


class Guard:
    """Runs the callbacks of one hook, and stops running them when they keep failing."""

    def __init__(
        self, name: str, boundaries: tuple[str, ...], recorder: Recorder, *, within: bool = False
    ) -> None:
        """Guard the hook ``name``, on which the observation of ``boundaries`` depends.

        ``within``: it runs inside the callback of another hook, which counts its time.
        """
        self.name = name
        self._counts_time = not within
        self.boundaries = boundaries
        self.armed = True
        self.sound = True
        """Whether no callback failed so far: only then does no call mean that there was none."""
        self.recorder = recorder

    def run(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what ``callback`` returns, or :data:`FAILED`. Never raises."""
        if not self.armed:
            return FAILED
        began = time.perf_counter_ns()
        try:
            return callback(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - an error of ours must not reach the engine
            self.failed(error)
            return FAILED
        finally:
            if self._counts_time:
                self.recorder.add_engine_time(time.perf_counter_ns() - began)

    def disarm(self, reason: str) -> None:
        """Stop this hook and note in the ledger that its boundaries cannot be seen any more."""
        self.armed = False
        for boundary in self.boundaries:
            self.recorder.ledger.disarm(boundary, reason[:REASON_CHARS], c.ARMING_FAILED)

    def failed(self, error: Exception) -> None:
        """Count an error of a callback; never raises."""
        self.sound = False
        try:
            if self.recorder.hook_failed(self.name, error):
                self.disarm(f"hook {self.name} disarmed itself: {type(error).__name__}: {error}")
        except Exception:  # noqa: BLE001 - nor may counting the error
            self.armed = False


def wrap(
    owner: Any,
    attribute: str,
    guard: Guard,
    before: Callable[..., Any] | None = None,
    after: Callable[..., Any] | None = None,
) -> None:
    """Put callbacks around ``owner.attribute`` (owner: an instance, a class or a module).

    ``before(*args, **kwargs)`` gives a token, ``after(token, result, *args, **kwargs)`` gets it; ``after``
    is left out when ``before`` failed or the engine's function raised.
    """
    original = getattr(owner, attribute)
    if getattr(original, MARK, False):
        return
    recorder, clock, failed = guard.recorder, time.perf_counter_ns, guard.failed

    # Written out and not through Guard.run: this runs a dozen times an engine step.
    @functools.wraps(original)
    def traced(*args: Any, **kwargs: Any) -> Any:
        token = None
        if before is not None:
            token = FAILED
            if guard.armed:
                began = clock()
                try:
                    token = before(*args, **kwargs)
                except Exception as error:  # noqa: BLE001 - an error of ours must not reach the engine
                    failed(error)
                recorder.engine_thread_ns += clock() - began
        result = original(*args, **kwargs)
        if after is not None and token is not FAILED and guard.armed:
            began = clock()
            try:
                after(token, result, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - nor here
                failed(error)
            recorder.engine_thread_ns += clock() - began
        return result

    setattr(traced, MARK, True)
    setattr(owner, attribute, traced)


class Absent:
    """Stands for an object that this engine version does not have: hooks on it are refused by its name."""

    def __init__(self, where: str) -> None:
        """Remember which one: a dotted name."""
        self.where = where


def reach(root: Any, path: str) -> Any:
    """Return ``root.a.b`` for the path ``a.b``, or the :class:`Absent` that names where the path ends."""
    where = _name(root)
    for part in path.split("."):
        root = getattr(root, part, None)
        where = f"{where}.{part}"
        if root is None:
            return Absent(where)
    return root


def kind(root: Any, path: str) -> Any:
    """Return the class of ``root.a.b``, or the :class:`Absent`: for what SGLang keeps in ``__slots__``."""
    found: Any = reach(root, path)
    return found if isinstance(found, Absent) else type(found)  # pyright: ignore[reportUnknownVariableType]


def module(name: str) -> Any:
    """Return a module of the engine, or the :class:`Absent` that names it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return Absent(name)


def examine(owner: Any, attribute: str, parameters: tuple[str, ...]) -> Arming:
    """Say whether ``owner.attribute`` is the function we know: *armed*, *missing* or *changed* and why.

    ``parameters`` are the ones that the callbacks rely on. They get what the engine passes, by position or
    by name, so these must be its first parameters, in this order, or take names only; later ones do not
    matter. A parameter that moved would hand a callback another object under the old name.
    """
    where = f"{_name(owner)}.{attribute}"
    if isinstance(owner, Absent):
        return Arming(False, f"{owner.where} does not exist in this engine version", c.ARMING_MISSING)
    function = getattr(owner, attribute, None)
    if function is None:
        return Arming(False, f"{where} does not exist in this engine version", c.ARMING_MISSING)
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return Arming(False, f"{where} has no signature that can be checked", c.ARMING_CHANGED)
    if absent := [name for name in parameters if name not in known]:
        reason = f"{where} has no parameter {', '.join(absent)} in this engine version"
        return Arming(False, reason, c.ARMING_CHANGED)
    by_name = {name for name, one in known.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}
    first = [name for name in known if name not in by_name][: len(parameters)]
    moved = [name for at, name in enumerate(parameters) if name not in by_name and first[at] != name]
    if moved:
        reason = f"{where} takes {', '.join(moved)} at another place in this engine version"
        return Arming(False, reason, c.ARMING_CHANGED)
    return Arming(True, state=c.ARMING_ARMED)


def _name(owner: Any) -> str:
    return getattr(owner, "__name__", type(owner).__name__)
