"""Puts the hooks on a scheduler that is about to serve, and notes which boundaries they can see."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from specscope import convention as c
from specscope.engines.sglang import graph_looks, hooks
from specscope.engines.sglang.algorithms import path_hooks, unreachable
from specscope.engines.sglang.hooks import Guard, Hook
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.path import Path
from specscope.engines.sglang.plain import plain_hooks
from specscope.engines.sglang.requests import Requests
from specscope.ledger import Arming

if TYPE_CHECKING:
    from specscope.recorder import Recorder

_logger = logging.getLogger("specscope")


def request_hooks(loaded: Loaded, requests: Requests) -> list[Hook]:
    """Return the hooks on arrivals and ends, for every engine, with or without a draft."""
    scheduler = loaded.scheduler
    return [
        Hook(scheduler, "_create_generation_req", ("recv_req",), (), after=requests.created),
        # Up to 0.5.22 that is written out in handle_generate_request, and this sees them first.
        Hook(scheduler, "_add_request_to_queue", ("req",), (), before=requests.queued),
        Hook(
            hooks.kind(scheduler, "output_streamer"),
            "stream_output",
            ("self", "reqs", "return_logprob"),
            (),
            after=requests.streamed,
        ),
        Hook(scheduler, "send_abort_output", ("abort_req", "req"), (), after=requests.aborted),
    ]


def install(hooks_wanted: list[Hook], recorder: Recorder) -> tuple[dict[str, Guard], list[str]]:
    """Put the hooks whose functions are as we know them.

    Returns the guards of these by function name, and what could not be hooked, one text each.
    A boundary is armed when every hook it depends on is in place, else disarmed with the reason.
    """
    guards: dict[str, Guard] = {}
    refused: list[str] = []
    against: dict[str, Arming] = {}
    for hook in hooks_wanted:
        found = hooks.examine(hook.owner, hook.attribute, hook.parameters)
        if found.armed:
            guard = Guard(hook.name, hook.boundaries, recorder)
            hooks.wrap(hook.owner, hook.attribute, guard, hook.before, hook.after)
            if not getattr(getattr(hook.owner, hook.attribute), hooks.MARK, False):
                found = Arming(False, f"{hook.attribute} could not be replaced", c.ARMING_CHANGED)
            else:
                guards[hook.name] = guard
        if not found.armed:
            refused.append(found.reason)
            for boundary in hook.boundaries:
                against.setdefault(boundary, found)
    for boundary in {b for hook in hooks_wanted for b in hook.boundaries}:
        found = against.get(boundary)
        if found is None:
            recorder.ledger.arm(boundary)
        else:
            recorder.ledger.disarm(boundary, found.reason, found.state)
    return guards, refused


def install_fc(loaded: Loaded, path: Path, recorder: Recorder) -> None:
    """Watch the fc modules of the loaded drafts by a forward hook, which torch calls on every run of them."""
    if loaded.fc is None:
        return
    if getattr(loaded.server_args, "enable_torch_compile", False):
        # A hook inside a compiled module could make its compilation fail; the widths tell enough.
        return
    path.fc = guard = Guard("fc", (c.DRAFT_FC,), recorder)

    def begins(_module: Any, taken: tuple[Any, ...]) -> None:
        guard.run(path.fc_begins, *taken[:1])

    def ran(module: Any, _taken: Any, made: Any) -> None:
        # Of a draft of several layers all runs count, but the first layer's states alone are looked at.
        guard.run(path.fc_ran, _first(made) if module is loaded.fc else None)

    loaded.fc.register_forward_pre_hook(begins)
    for fc in loaded.fcs:
        fc.register_forward_hook(ran)


def install_embedding(loaded: Loaded, path: Path, recorder: Recorder) -> None:
    """Watch the embedding of the loaded (first) draft likewise."""
    if loaded.embedding is None or getattr(loaded.server_args, "enable_torch_compile", False):
        return
    guard = Guard("draft_embedding", (), recorder)

    def ran(_module: Any, _taken: Any, made: Any) -> None:
        guard.run(path.embedded, _first(made))

    loaded.embedding.register_forward_hook(ran)


def _first(made: Any) -> Any:
    """SGLang's parallel layers give (output, bias)."""
    return made[0] if isinstance(made, tuple) else made  # pyright: ignore[reportUnknownVariableType]


def start(loaded: Loaded, recorder: Recorder) -> Path | None:
    """Hook a scheduler. Returns the path's state, ``None`` where no speculative path is traced."""
    requests = Requests(recorder, dp=loaded.ranks.dp, emits=loaded.emits)
    _, refused = install(request_hooks(loaded, requests), recorder)
    path: Path | None = None
    if loaded.speculates:
        path = Path(recorder, loaded, requests)
        guards, more = install(path_hooks(loaded, path), recorder)
        refused += more
        path.packing = guards.get("pack_aux_hidden_states")
        install_fc(loaded, path, recorder)
        install_embedding(loaded, path, recorder)
        graphs = graph_looks.of_process()
        if graphs is not None:
            graphs.serve(recorder, path.graph_looked)
        for boundary, reason in unreachable(loaded).items():
            recorder.ledger.disarm(boundary, reason, c.ARMING_OFF)
    else:
        reason = "speculation is off"
        if not loaded.scheduler.spec_algorithm.is_none():
            reason = "this pipeline stage does not draft: the last one tells"
        for boundary in c.BOUNDARIES:
            recorder.ledger.disarm(boundary, reason, c.ARMING_OFF)
        if loaded.scheduler.spec_algorithm.is_none():
            _, more = install(plain_hooks(loaded, recorder), recorder)
            refused += more
    for reason in refused:
        _logger.warning("specscope: not traced: %s", reason)
    return path
