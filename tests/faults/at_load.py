"""The SGLang plugin that lays a fault on a scheduler as soon as it is built, and leaves it there.

Faults of loading are there before the tracer takes its inventory of the weights. Planted in the engine's
environment beside the modules of the mechanisms: it needs nothing but them, the engine and the standard
library.
"""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

CONTROL = "ZOO_AT_LOAD"
"""Names the file that says what is laid: a module of mechanisms and the mechanism."""


def laid_on(worker: Any, module: str, name: str) -> AbstractContextManager[None]:
    """Return the mechanism for an ``EAGLEWorkerV2``. Raises KeyError: no such mechanism."""
    mechanisms = importlib.import_module(module)
    if module == "patching":
        return mechanisms.faults()[name].lay(worker)
    return mechanisms.FAULTS[name](mechanisms.Engine(worker))


def register() -> None:
    """Called by SGLang in each of its processes."""
    registry: Any = importlib.import_module("sglang.srt.plugins.hook_registry")
    control = Path(os.environ[CONTROL])
    held = ExitStack()

    def builds(original: Any, scheduler: Any, *given: Any, **more: Any) -> None:
        original(scheduler, *given, **more)
        module, name = control.read_text("utf-8").split()
        held.enter_context(laid_on(scheduler.draft_worker, module, name))
        in_force(control).write_text(name, "utf-8")

    registry.HookRegistry.register(
        "sglang.srt.managers.scheduler.Scheduler.__init__", builds, registry.HookType.AROUND
    )


def in_force(control: Path) -> Path:
    """The file that says what is in force."""
    return control.with_suffix(".in-force")
