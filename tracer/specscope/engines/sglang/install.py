"""Puts the hooks on a scheduler that is about to serve, and notes which boundaries they can see."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specscope import convention as c
from specscope.engines.sglang import hooks
from specscope.engines.sglang.hooks import Guard
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.path import Path
from specscope.engines.sglang.requests import Requests

if TYPE_CHECKING:
    from specscope.recorder import Recorder

_logger = logging.getLogger("specscope")


@dataclass(frozen=True, slots=True)
class Hook:
    """One engine function, the parameters our callbacks rely on, and what depends on seeing it."""

    owner: Any
    attribute: str
    parameters: tuple[str, ...]
    boundaries: tuple[str, ...]
    before: Callable[..., Any] | None = None
    after: Callable[..., Any] | None = None


def request_hooks(loaded: Loaded, requests: Requests) -> list[Hook]:
    """Return the hooks on arrivals and ends, for every engine, with or without a draft."""
    scheduler = loaded.scheduler
    return [
        Hook(scheduler, "_create_generation_req", ("recv_req",), (), after=requests.created),
        Hook(
            type(scheduler.output_streamer),
            "stream_output",
            ("self", "reqs", "return_logprob"),
            (),
            after=requests.streamed,
        ),
        Hook(scheduler, "send_abort_output", ("abort_req", "req"), (), after=requests.aborted),
    ]


def path_hooks(loaded: Loaded, path: Path) -> list[Hook]:
    """Return the hooks on the speculative path (EAGLE-3), the upstream one first.

    They sit on the live objects, so that a plain target forward costs nothing; only what SGLang keeps in
    ``__slots__`` or makes anew (graph runners) is hooked on its class.
    """
    worker, draft = loaded.worker, loaded.draft_worker
    extend = (c.DRAFT_EXTEND, c.DRAFT_FORWARD, c.DRAFT_FC)
    logits: Any = importlib.import_module("sglang.srt.layers.logits_processor")
    found = [
        Hook(
            worker,
            "forward_batch_generation",
            ("batch",),
            c.BOUNDARIES,
            path.forward_begins,
            path.forward_ended,
        ),
        Hook(logits, "pack_aux_hidden_states", ("aux_hidden_states",), (c.AUX_CAPTURE,), after=path.packed),
        Hook(
            draft,
            "draft",
            ("batch",),
            (c.DRAFT_PROPOSE, c.DRAFT_MAP, c.DRAFT_FORWARD),
            path.propose_begins,
            path.propose_ended,
        ),
        Hook(loaded.draft_runner, "forward", ("forward_batch",), (c.DRAFT_FORWARD,), after=path.draft_ran),
        Hook(
            draft,
            "_draft_extend_for_prefill",
            ("batch", "target_hidden_states"),
            extend,
            path.extend_prefill_begins,
            path.extend_ended,
        ),
        Hook(
            draft,
            "_draft_extend_for_decode",
            ("batch", "batch_result"),
            extend,
            path.extend_decode_begins,
            path.extend_ended,
        ),
        Hook(worker, "verify", ("batch",), (c.TARGET_VERIFY,), path.verify_begins, path.verify_ended),
        Hook(
            type(loaded.scheduler.batch_result_processor),
            "process_batch_result_decode",
            ("self", "batch", "result"),
            (c.ENGINE_COMMIT,),
            path.commit_begins,
            path.commit_ended,
        ),
    ]
    for runner in ("cuda_graph_runner", "cuda_graph_runner_for_draft_extend"):
        graph = getattr(draft, runner, None)
        if graph is not None:
            found.append(
                Hook(
                    type(graph),
                    "execute",
                    ("self", "forward_batch"),
                    (c.DRAFT_FORWARD,),
                    after=path.graph_replayed,
                )
            )
    return found


def install(hooks_wanted: list[Hook], recorder: Recorder) -> tuple[dict[str, Guard], list[str]]:
    """Put the hooks whose functions are as we know them.

    Returns the guards of these by function name, and what could not be hooked, one text each.
    A boundary is armed when every hook it depends on is in place, else disarmed with the reason.
    """
    guards: dict[str, Guard] = {}
    refused: list[str] = []
    reasons: dict[str, str] = {}
    for hook in hooks_wanted:
        reason = hooks.mismatch(hook.owner, hook.attribute, hook.parameters)
        if not reason:
            guard = Guard(hook.attribute, hook.boundaries, recorder)
            hooks.wrap(hook.owner, hook.attribute, guard, hook.before, hook.after)
            if not getattr(getattr(hook.owner, hook.attribute), hooks.MARK, False):
                reason = f"{hook.attribute} could not be replaced"
            else:
                guards[hook.attribute] = guard
        for boundary in hook.boundaries:
            if reason:
                reasons.setdefault(boundary, reason)
        if reason:
            refused.append(reason)
    for boundary in {b for hook in hooks_wanted for b in hook.boundaries}:
        if boundary in reasons:
            recorder.ledger.disarm(boundary, reasons[boundary])
        else:
            recorder.ledger.arm(boundary)
    return guards, refused


def install_fc(loaded: Loaded, path: Path, recorder: Recorder) -> None:
    """Watch the fc module of the loaded draft by a forward hook, which torch calls on every run of it."""
    if loaded.fc is None:
        recorder.ledger.disarm(c.DRAFT_FC, f"the draft {type(loaded.draft_runner.model).__name__} has no fc")
        return
    if getattr(loaded.server_args, "enable_torch_compile", False):
        # A hook inside a compiled module could make its compilation fail; the widths tell enough.
        return
    path.fc = guard = Guard("fc", (c.DRAFT_FC,), recorder)

    def ran(*_args: Any) -> None:
        guard.run(path.fc_ran)

    loaded.fc.register_forward_hook(ran)


def start(loaded: Loaded, recorder: Recorder) -> Path | None:
    """Hook a scheduler. Returns the path's state, ``None`` where no speculative path is traced."""
    requests = Requests(recorder, dp=loaded.ranks.dp, emits=loaded.emits)
    _, refused = install(request_hooks(loaded, requests), recorder)
    path: Path | None = None
    if loaded.eagle3:
        path = Path(recorder, loaded, requests)
        guards, more = install(path_hooks(loaded, path), recorder)
        refused += more
        path.packing = guards.get("pack_aux_hidden_states")
        install_fc(loaded, path, recorder)
        if not loaded.needs_map:
            recorder.ledger.disarm(c.DRAFT_MAP, "the draft has the target's vocabulary and needs no map")
    else:
        reason = "speculation is off"
        if not loaded.scheduler.spec_algorithm.is_none():
            reason = f"the {loaded.algorithm} algorithm is not traced by this version, only EAGLE3 is"
        for boundary in c.BOUNDARIES:
            recorder.ledger.disarm(boundary, reason)
    for reason in refused:
        _logger.warning("specscope: not traced: %s", reason)
    return path
