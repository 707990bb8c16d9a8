"""The SGLang plugin that lays a patch on a live worker and takes it away again.

Which one is in force stands in the file that :data:`CONTROL` names, read at the start of each forward;
what is in force is written beside it. A patch is a generator that is given the engine's ``EAGLEWorkerV2``,
and ends by putting the very same objects back. The modules of :data:`MODULES` are planted in the engine's
environment: they need nothing but one another, the engine and the standard library.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import traceback
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTROL = "DRAFT_PATCH_CONTROL"
HEALTHY = "healthy"
MODULES = ("patching", "draft_patches", "state_patches", "informed_patches")

Laid = Generator[None]


@dataclass(frozen=True)
class Patch:
    """A fault and its class; ``needs`` says what else must be so for it to show."""

    fault_class: str
    lay: Callable[[Any], AbstractContextManager[None]]
    needs: str = ""


FAULTS: dict[str, Patch] = {}


def patch(fault_class: str, needs: str = "") -> Callable[[Callable[[Any], Laid]], None]:
    """Enter a generator, which is given the engine's ``EAGLEWorkerV2``, under its own name."""

    def enter(function: Callable[[Any], Laid]) -> None:
        FAULTS[function.__name__] = Patch(fault_class, contextmanager(function), needs)

    return enter


def faults() -> dict[str, Patch]:
    """All that the modules of faults enter in :data:`FAULTS`."""
    for module in MODULES[1:]:
        importlib.import_module(module)
    return FAULTS


def torch() -> Any:
    return importlib.import_module("torch")


@contextmanager
def put(owner: Any, **values: Any) -> Laid:
    """The attributes of ``owner`` are ``values`` meanwhile."""
    before = {name: getattr(owner, name) for name in values}
    own = {name for name in values if name in vars(owner)}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if name in own:
                setattr(owner, name, value)
            else:
                delattr(owner, name)


@contextmanager
def hooks(*handles: Any) -> Laid:
    """PyTorch hooks that are removed in the end."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def put_parameter(module: Any, value: Any) -> Laid:
    """``module`` has this weight meanwhile, and not one that it shares."""
    before = module.weight
    module.weight = torch().nn.Parameter(value, requires_grad=False)
    try:
        yield
    finally:
        module.weight = before


def register() -> None:
    """Called by SGLang in each of its processes."""
    known = faults()
    registry: Any = importlib.import_module("sglang.srt.plugins.hook_registry")
    control = Path(os.environ[CONTROL])
    now = HEALTHY
    laid = ExitStack()

    def forward(original: Any, worker: Any, *given: Any, **more: Any) -> Any:
        nonlocal now
        wanted = control.read_text("utf-8")
        if wanted != now:
            laid.close()
            now = state = wanted
            try:
                if wanted != HEALTHY:
                    laid.enter_context(known[wanted].lay(worker))
            except Exception:
                state = traceback.format_exc()
            in_force(control).write_text(state, "utf-8")
        return original(worker, *given, **more)

    name = "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.forward_batch_generation"
    registry.HookRegistry.register(name, forward, registry.HookType.AROUND)


def in_force(control: Path) -> Path:
    """The file that says what is in force, or why it could not be."""
    return control.with_suffix(".in-force")


def plant(folder: Path) -> Path:
    """Make a new folder for the engine's ``PYTHONPATH`` in which it finds this plugin."""
    place = folder / "plugins"
    info = place / "patching-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: patching\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\npatching = patching:register\n")
    for module in sources():
        (place / module.name).write_text(module.read_text("utf-8"))
    return place


def sources() -> list[Path]:
    """The files of :data:`MODULES`."""
    found = [importlib.util.find_spec(module) for module in MODULES]
    return [Path(one.origin) for one in found if one is not None and one.origin is not None]
