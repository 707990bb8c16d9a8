"""An SGLang plugin of the tests: it gives a serving engine a faulty draft, and takes the fault away again.

The faults are those of ``models/tiny/fault-table.md``, under its letters. Which one is in force stands in
the file that :data:`CONTROL` names; it is read at the start of each forward, and what is in force is written
beside it. A fault is laid on live objects where a checkpoint, a configuration or another part of the engine
would have brought it in, and before the place where the tracer looks; taking it away puts the very same
objects back.
"""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

CONTROL = "FAULTY_DRAFT_CONTROL"
HEALTHY = "healthy"
SEED = 1

Remedy = Generator[None]


class Engine:
    """The live objects of one scheduler, from its ``EAGLEWorkerV2``."""

    def __init__(self, worker: Any) -> None:
        self.drafter: Any = worker.draft_worker
        self.target: Any = worker.target_worker.model_runner.model
        self.draft: Any = self.drafter.draft_runner.model
        self.hot: Any = self.drafter.hot_token_id
        """Target id of each draft id: i + d2t[i]."""


FAULTS: dict[str, Callable[[Engine], AbstractContextManager[None]]] = {}


def fault(name: str) -> Callable[[Callable[[Engine], Remedy]], None]:
    """Enter a fault in :data:`FAULTS`: a generator that lays it on, yields, and takes it away."""

    def enter(function: Callable[[Engine], Remedy]) -> None:
        FAULTS[name] = contextmanager(function)

    return enter


def torch() -> Any:
    return importlib.import_module("torch")


def noise(like: Any) -> Any:
    """Standard normal values, the same ones in every run."""
    generator = torch().Generator().manual_seed(SEED)
    return torch().randn(like.shape, generator=generator, dtype=like.dtype)


@contextmanager
def having(owner: Any, name: str, value: Any) -> Remedy:
    """``owner.name`` is ``value`` meanwhile."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def weighing(module: Any, value: Any) -> AbstractContextManager[None]:
    """``module`` has the weight ``value`` meanwhile; one that it shares stays as it is."""
    return having(module, "weight", torch().nn.Parameter(value.clone(), requires_grad=False))


@contextmanager
def hooked(module: Any, hook: Callable[..., Any]) -> Remedy:
    """``hook(module, inputs, output)`` changes what ``module`` returns meanwhile."""
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


# --- a: the draft gets one state of the target's hidden size, so fc is bypassed -------------------------


@fault("a1")
def last_state_after_norm(engine: Engine) -> Remedy:
    """What ``use_aux_hidden_state: false`` in the draft's configuration does (``model_runner.py``)."""
    with (
        having(engine.target, "capture_aux_hidden_states", False),
        having(engine.target.model, "layers_to_capture", []),
    ):
        yield


@fault("a2")
def last_state_before_norm(engine: Engine) -> Remedy:
    with packing(engine, lambda states, last: [last]):
        yield


@contextmanager
def packing(engine: Engine, change: Callable[[list[Any], Any], list[Any]]) -> Remedy:
    """The target hands on ``change(its aux states, its last state before the final norm)``."""
    last: list[Any] = []

    def normed(_norm: Any, _inputs: Any, output: Any) -> None:
        last[:] = [output[1].clone()]

    def packs(_model: Any, _inputs: Any, output: Any) -> Any:
        hidden, states = output
        return hidden, change(list(states), last[0])

    with hooked(engine.target.model.norm, normed), hooked(engine.target.model, packs):
        yield


# --- b: the map from draft ids to target ids ------------------------------------------------------------


def mapped(name: str, change: Callable[[Any, Any], Any]) -> None:
    """Enter a fault whose map is ``change(target id of each draft id, draft ids)``."""

    def wrong_map(engine: Engine) -> Remedy:
        ids = torch().arange(len(engine.hot))
        with having(engine.drafter, "hot_token_id", change(engine.hot, ids)):
            yield

    fault(name)(wrong_map)


mapped("b1", lambda hot, ids: hot - ids)
mapped("b2", lambda hot, ids: (hot + ids) % 1024)
mapped("b3", lambda hot, ids: None)
mapped("b4", lambda hot, ids: hot.roll(1))


# --- c: the target's head in place of the draft's own ---------------------------------------------------


@fault("c1")
def first_rows_of_the_targets_head(engine: Engine) -> Remedy:
    with weighing(engine.draft.lm_head, engine.target.lm_head.weight[: len(engine.hot)]):
        yield


@fault("c2")
def whole_head_of_the_target(engine: Engine) -> Remedy:
    """As SGLang takes it for a draft without a vocabulary of its own (``load_lm_head_from_target``)."""
    with (
        having(engine.draft, "lm_head", engine.target.lm_head),
        having(engine.draft.logits_processor, "vocab_size", engine.target.logits_processor.vocab_size),
        having(engine.drafter, "hot_token_id", None),
    ):
        yield


@fault("c3")
def mapped_rows_of_the_targets_head(engine: Engine) -> Remedy:
    with weighing(engine.draft.lm_head, engine.target.lm_head.weight[engine.hot]):
        yield


# --- d: the draft's embedding; it shares the target's, which must stay ----------------------------------


def embedded(name: str, change: Callable[[Any], Any]) -> None:
    def wrong_embedding(engine: Engine) -> Remedy:
        module = engine.draft.model.embed_tokens
        with weighing(module, change(module.weight)):
            yield

    fault(name)(wrong_embedding)


embedded("d1", lambda weight: 0.02 * noise(weight))
embedded("d2", lambda weight: weight.std() * noise(weight))
embedded("d3", lambda weight: 0 * weight)


# --- e, f, q: which states the target hands on, in which order, how large -------------------------------


def capturing(name: str, shift: int) -> None:
    def other_layers(engine: Engine) -> Remedy:
        model = engine.target.model
        with having(model, "layers_to_capture", [layer + shift for layer in model.layers_to_capture]):
            yield

    fault(name)(other_layers)


capturing("e1", 1)
capturing("e2", -1)


@fault("e3")
def last_three_layers(engine: Engine) -> Remedy:
    model = engine.target.model
    layers = len(model.layers)
    with (
        having(model, "layers_to_capture", [layers - 2, layers - 1]),
        packing(engine, lambda states, last: [*states, last]),
    ):
        yield


def packed(name: str, change: Callable[[list[Any]], list[Any]]) -> None:
    def other_states(engine: Engine) -> Remedy:
        with packing(engine, lambda states, last: change(states)):
            yield

    fault(name)(other_states)


packed("f1", lambda states: [states[2], states[1], states[0]])
packed("f2", lambda states: [states[1], states[2], states[0]])
packed("f3", lambda states: [states[1], states[0], states[2]])
packed("f4", lambda states: [states[1], states[1], states[1]])
packed("q", lambda states: [0.1 * state for state in states])


# --- i: fc ----------------------------------------------------------------------------------------------


@fault("i")
def fc_as_it_was_made(engine: Engine) -> Remedy:
    weight = engine.draft.model.fc.weight
    with weighing(engine.draft.model.fc, weight.shape[1] ** -0.5 * noise(weight)):
        yield


@fault("i2")
def fc_of_zeros(engine: Engine) -> Remedy:
    with weighing(engine.draft.model.fc, 0 * engine.draft.model.fc.weight):
        yield


# --- k1, r: between the target and the draft ------------------------------------------------------------

Change = Callable[[Any, Sequence[Any], Sequence[int], Sequence[int]], Any]
"""(states, requests, rows of each request, rows of each that are kept) -> states."""


@contextmanager
def feeding(engine: Engine, change: Change) -> Remedy:
    """The draft extend is fed ``change(...)`` of what the target handed on."""
    drafter = engine.drafter
    prefill, decode = drafter._draft_extend_for_prefill, drafter._draft_extend_for_decode

    def after_prefill(batch: Any, states: Any, *work: Any, **more: Any) -> Any:
        fed = change(states, batch.reqs, batch.extend_lens, batch.extend_lens)
        return prefill(batch, fed, *work, **more)

    def after_verify(batch: Any, result: Any, *work: Any, **more: Any) -> Any:
        output, kept = result.logits_output, result.accept_lens.tolist()
        block = [result.speculative_num_draft_tokens] * len(kept)
        output.hidden_states = change(output.hidden_states, batch.reqs, block, kept)
        return decode(batch, result, *work, **more)

    with (
        having(drafter, "_draft_extend_for_prefill", after_prefill),
        having(drafter, "_draft_extend_for_decode", after_verify),
    ):
        yield


@fault("k1")
def states_of_the_token_before(engine: Engine) -> Remedy:
    """The first row of a request has none before it, and gets its last one."""
    newest: dict[str, Any] = {}

    def late(states: Any, requests: Sequence[Any], rows: Sequence[int], kept: Sequence[int]) -> Any:
        parts: list[Any] = []
        for request, own, count in zip(requests, states.split(list(rows)), kept, strict=True):
            last = own[count - 1 : count]
            parts += [newest.get(request.rid, last), own[:-1]]
            newest[request.rid] = last
        return torch().cat(parts)

    with feeding(engine, late):
        yield


@fault("r")
def noisy_states(engine: Engine) -> Remedy:
    generator = torch().Generator().manual_seed(SEED)

    def noisy(states: Any, *_: Any) -> Any:
        added = torch().randn(states.shape, generator=generator, dtype=states.dtype)
        return states + 0.3 * states.std() * added

    with feeding(engine, noisy):
        yield


# --- k2, k3, k4: what the draft hands to its own next step ----------------------------------------------


@fault("k2")
def its_input_again(engine: Engine) -> Remedy:
    """What fc made of the target's states goes from step to step, and never what the draft made of it."""
    model = engine.draft.model
    projected: list[Any] = []

    def ran(_fc: Any, _inputs: Any, output: Any) -> None:
        projected[:] = [output]

    def hands_on(_model: Any, inputs: Any, output: Any) -> Any:
        forward_batch = inputs[2]
        states = projected.pop() if projected else forward_batch.spec_info.hidden_states
        return output[0], [states]

    with hooked(model.fc, ran), hooked(model, hands_on):
        yield


@fault("k3")
def after_the_norm(engine: Engine) -> Remedy:
    """What ``norm_output`` in the draft's configuration does (``llama_eagle3.py``)."""
    with having(engine.draft.model, "norm_output", True):
        yield


@fault("k4")
def zeros(engine: Engine) -> Remedy:
    def hands_on(_model: Any, _inputs: Any, output: Any) -> Any:
        hidden, (state,) = output
        return hidden, [0 * state]

    with hooked(engine.draft.model, hands_on):
        yield


# --- the plugin -----------------------------------------------------------------------------------------


def register() -> None:
    """Called by SGLang in each of its processes."""
    hooks: Any = importlib.import_module("sglang.srt.plugins.hook_registry")
    control = Path(os.environ[CONTROL])
    now = HEALTHY
    remedy = ExitStack()

    def forward(original: Any, worker: Any, *work: Any, **more: Any) -> Any:
        nonlocal now
        wanted = control.read_text("utf-8")
        if wanted != now:
            remedy.close()
            now, state = wanted, wanted
            try:
                if wanted != HEALTHY:
                    remedy.enter_context(FAULTS[wanted](Engine(worker)))
            except Exception:
                state = traceback.format_exc()
            in_force(control).write_text(state, "utf-8")
        return original(worker, *work, **more)

    name = "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.forward_batch_generation"
    hooks.HookRegistry.register(name, forward, hooks.HookType.AROUND)


def in_force(control: Path) -> Path:
    """The file that says what is in force, or why it could not be."""
    return control.with_suffix(".in-force")
