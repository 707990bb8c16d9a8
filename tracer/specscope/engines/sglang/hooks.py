"""Hooks that cannot harm the engine: the wrapped function always runs once, with what it was given.

A hook is a pair of callbacks around one engine function. Whatever they raise is caught and counted; after
a few errors (:meth:`specscope.recorder.Recorder.hook_failed` says when) the hook disarms itself and the
ledger says why.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from specscope.recorder import Recorder

FAILED: Final = object()
"""What :meth:`Guard.run` returns when the callback did not run to its end."""

MARK: Final = "__specscope__"
"""Attribute of a wrapper, so that an object is never wrapped twice."""

REASON_CHARS: Final = 300


class Guard:
    """Runs the callbacks of one hook, and stops running them when they keep failing."""

    def __init__(self, name: str, boundaries: tuple[str, ...], recorder: Recorder) -> None:
        """Guard the hook ``name``, on which the observation of ``boundaries`` depends."""
        self.name = name
        self.boundaries = boundaries
        self.armed = True
        self.sound = True
        """Whether no callback failed so far: only then does no call mean that there was none."""
        self._recorder = recorder

    def run(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what ``callback`` returns, or :data:`FAILED`. Never raises."""
        if not self.armed:
            return FAILED
        began = time.perf_counter_ns()
        try:
            return callback(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - an error of ours must not reach the engine
            self._count(error)
            return FAILED
        finally:
            self._recorder.add_engine_time(time.perf_counter_ns() - began)

    def disarm(self, reason: str) -> None:
        """Stop this hook and note in the ledger that its boundaries cannot be seen any more."""
        self.armed = False
        for boundary in self.boundaries:
            self._recorder.ledger.disarm(boundary, reason[:REASON_CHARS])

    def _count(self, error: Exception) -> None:
        self.sound = False
        try:
            if self._recorder.hook_failed(self.name, error):
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

    @functools.wraps(original)
    def traced(*args: Any, **kwargs: Any) -> Any:
        token = guard.run(before, *args, **kwargs) if before is not None else None
        result = original(*args, **kwargs)
        if after is not None and token is not FAILED:
            guard.run(after, token, result, *args, **kwargs)
        return result

    setattr(traced, MARK, True)
    setattr(owner, attribute, traced)


def mismatch(owner: Any, attribute: str, parameters: tuple[str, ...]) -> str:
    """Say why ``owner.attribute`` is not the function we know, or return an empty text.

    ``parameters`` are the names that its callbacks rely on; further ones do not matter.
    """
    where = f"{getattr(owner, '__name__', type(owner).__name__)}.{attribute}"
    function = getattr(owner, attribute, None)
    if function is None:
        return f"{where} does not exist in this engine version"
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return f"{where} has no signature that can be checked"
    missing = [name for name in parameters if name not in known]
    return f"{where} has no parameter {', '.join(missing)} in this engine version" if missing else ""
