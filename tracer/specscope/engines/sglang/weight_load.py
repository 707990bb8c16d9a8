"""Watches SGLang load a draft model, at start and in each later update.

Every loader of SGLang makes its model through ``model_loader.loader._initialize_model``, long before the
scheduler serves, so that function is hooked when the plugin registers. A draft made there carries a
:class:`Watched`, and ``load_weights`` of its class, through which every load and every update of a
checkpoint goes, is watched for models that carry one. Loaders that fill parameters otherwise (``dummy``,
sharded or shared memory) are told as not observed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from dataclasses import dataclass, field
from typing import Any, Final

from specscope.load_watch import Load, LoadWatch
from specscope.weights import together

MODULE: Final = "sglang.srt.model_loader.loader"
FUNCTION: Final = "_initialize_model"
ATTRIBUTE: Final = "_specscope_loads"
"""Where a draft model keeps its :class:`Watched`."""
MARK: Final = "__specscope__"

_NEVER_NEEDED: Final = ("t2d", "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")


def ignores(name: str) -> bool:
    """Say whether SGLang skips a checkpoint's name on purpose: the inverse map, and tables it computes."""
    return any(part in name for part in _NEVER_NEEDED)


@dataclass
class Watched:
    """The loads of one draft model: its first one, all of them together, and the newest."""

    load_format: str = ""
    first: Load | None = None
    whole: Load | None = None
    newest: Load | None = None
    loads: int = 0
    error: str = ""
    busy: bool = field(default=False, repr=False)

    def add(self, load: Load) -> None:
        """Take note of a load that is done."""
        self.loads += 1
        self.newest = load
        if self.first is None:
            self.first = self.whole = load
        elif self.whole is not None and not load.error:
            self.whole = together([self.whole, load])

    @property
    def reason(self) -> str:
        """Say why nothing is known of the first load, empty when it is."""
        if self.error:
            return self.error
        if self.first is None:
            return f"load format {self.load_format} does not go through load_weights"
        return self.first.error


def register(registry: Any) -> str:
    """Hook the making of models with SGLang's own hook registry (its module).

    Returns why that cannot be done in this version, empty when it was done.
    """
    try:
        function = getattr(importlib.import_module(MODULE), FUNCTION, None)
    except ImportError as error:
        return f"{MODULE} cannot be imported in this engine version: {error}"
    if function is None:
        return f"{MODULE}.{FUNCTION} does not exist in this engine version"
    absent = [n for n in ("model_config", "load_config") if n not in inspect.signature(function).parameters]
    if absent:
        return f"{MODULE}.{FUNCTION} has no parameter {', '.join(absent)} in this engine version"
    registry.HookRegistry.register(f"{MODULE}.{FUNCTION}", made, registry.HookType.AFTER)
    return ""


def made(model: Any, model_config: Any = None, load_config: Any = None, *_args: Any, **_kwargs: Any) -> None:
    """After ``_initialize_model``: watch the loads of a model that is a draft."""
    try:
        if not getattr(model_config, "is_draft_model", False):
            return
        load_format = getattr(load_config, "load_format", "")
        watched = Watched(load_format=str(getattr(load_format, "value", load_format)))
        setattr(model, ATTRIBUTE, watched)
        watch_class(model.__class__)
    except Exception as error:  # noqa: BLE001 - the engine must load its model whatever happens here
        model.__dict__[ATTRIBUTE] = Watched(error=f"{type(error).__name__}: {error}")


def of(model: Any) -> Watched | None:
    """Return what was seen of a model's loads, ``None`` for one that was not made under the hook."""
    found = getattr(model, ATTRIBUTE, None)
    return found if isinstance(found, Watched) else None


def watch_class(kind: Any) -> None:
    """Watch ``load_weights`` of a class for those of its models that carry a :class:`Watched`.

    On the class and not on the model, so that a copied model still loads into itself.
    """
    original: Any = kind.load_weights
    if getattr(original, MARK, False):
        return

    @functools.wraps(original)
    def load_weights(self: Any, *args: Any, **kwargs: Any) -> Any:
        watched = of(self)
        if watched is None or watched.busy or (not args and "weights" not in kwargs):
            return original(self, *args, **kwargs)
        try:
            watch = LoadWatch(self, probe=watched.first is None)
        except Exception as error:  # noqa: BLE001 - the engine loads its weights whatever happens here
            watched.error = f"{type(error).__name__}: {error}"
            return original(self, *args, **kwargs)
        weights, rest = (args[0], args[1:]) if args else (kwargs.pop("weights"), ())
        watched.busy = True
        try:
            return watch.run(functools.partial(original, self), weights, *rest, **kwargs)
        finally:
            watched.busy = False
            watched.add(watch.load)

    setattr(load_weights, MARK, True)
    kind.load_weights = load_weights
