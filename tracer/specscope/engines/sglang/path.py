"""The hooks on the speculative path of one scheduler, from the target's hidden states to the commit."""

from __future__ import annotations

import time
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from specscope import convention as c
from specscope.engines.sglang import commit, conclude, hidden, hooks, passes
from specscope.engines.sglang.hooks import Guard
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.passes import Drafted, Extend, Pass
from specscope.engines.sglang.requests import Requests, uids_of, visible
from specscope.ledger import PREFILL, VERIFY
from specscope.records import DraftExtend, PrefillPass, VerifyStep

if TYPE_CHECKING:
    from specscope.recorder import Recorder

PASS: Final = "specscope_pass"
"""Attribute of SGLang's ``GenerationBatchResult`` that carries a pass to its commit.

Under the overlap schedule a result is processed one iteration later than its forward; the result object
is the same one throughout, the batch is a copy (design note 4.3).
"""

UNCOMMITTED: Final = 3
"""Verify passes that may wait for their commit: one with the overlap schedule, and room to spare."""


class Path:
    """State between the hooks. All callbacks run on the scheduler's only thread."""

    def __init__(self, recorder: Recorder, loaded: Loaded, requests: Requests) -> None:
        """Trace ``loaded``, whose draft is an EAGLE-3 one."""
        self._recorder = recorder
        self._loaded = loaded
        self._requests = requests
        self._now: Pass | None = None
        self._waiting: deque[Pass] = deque()
        self._has_fc = loaded.fc is not None
        self._has_map = loaded.needs_map
        self._trees = Guard("draft_tree", (), recorder)
        self._statistics = Guard("hidden_statistics", (), recorder)
        self._statistics.armed = recorder.settings.at_least(c.DETAIL_STEPS) and loaded.emits
        self.packing: Guard | None = None
        """The hook on the packing of aux hidden states, once it is in place."""
        self.fc: Guard | None = None
        """The hook on the draft's fc, once it is in place."""

    # --- the forward: opens and closes a pass -----------------------------------------------------

    def forward_begins(self, batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """Before ``EAGLEWorkerV2.forward_batch_generation``."""
        self._now = None
        mode = batch.forward_mode
        if mode.is_idle() or not batch.reqs:
            return
        prefill = mode.is_extend() or batch.is_extend_in_batch
        self._now = Pass(
            kind=PREFILL if prefill else VERIFY,
            step=batch.forward_iter,
            t_ns=time.monotonic_ns(),
            uids=uids_of(batch.reqs),
            cached=tuple(req.cached_tokens for req in batch.reqs) if prefill else (),
        )

    def forward_ended(self, _token: Any, result: Any, _batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """After it: conclude what could not be seen from shapes, then tell of the pass."""
        one, self._now = self._now, None
        if one is None:
            return
        agreed = passes.contract(self._loaded.worker.speculative_num_steps, self._has_fc, self._has_map)
        one.expected = agreed.of(one.kind)
        packing_seen = _sound(self.packing) and not result.can_run_cuda_graph
        one.aux_states = conclude.capture(one, self._loaded, seen=packing_seen)
        one.fc_ran = conclude.fc_runs(one, self._loaded, seen=_sound(self.fc))
        if one.kind == PREFILL:
            expected, crossed = one.split(extend=False)
            self._tell(PrefillPass(one.t_ns, one.step, one.uids, one.cached, expected, crossed))
            self._tell_extend(one)
            return
        setattr(result, PASS, one)
        self._waiting.append(one)
        if len(self._waiting) > UNCOMMITTED:
            self._give_up(self._waiting.popleft())

    # --- target: aux hidden states ----------------------------------------------------------------

    def packed(self, _token: Any, _result: Any, aux_hidden_states: Any) -> None:
        """After ``pack_aux_hidden_states``: a list of states, or one tensor that holds them packed."""
        one = self._now
        if one is None or one.inside != passes.IN_TARGET:
            return  # the draft packs its own state too
        if isinstance(aux_hidden_states, list):
            one.packed = len(aux_hidden_states)  # pyright: ignore[reportUnknownArgumentType]
        elif self._loaded.target_hidden:
            one.packed = aux_hidden_states.shape[-1] // self._loaded.target_hidden
        one.cross(c.AUX_CAPTURE, c.NO_SOURCE, c.EAGER)

    # --- draft: proposal, forwards, fc, map ---------------------------------------------------------

    def propose_begins(self, *_args: Any, **_kwargs: Any) -> str:
        """Before ``EagleDraftWorker.draft``."""
        return self._enter(passes.IN_PROPOSE)

    def propose_ended(self, token: str, _result: Any, *_args: Any, **_kwargs: Any) -> None:
        """After it."""
        one = self._now
        if one is None:
            return
        one.inside = token
        if one.kind == VERIFY:
            one.cross(c.DRAFT_PROPOSE, c.NO_SOURCE, c.EAGER)
            if self._loaded.map_present:
                one.cross(c.DRAFT_MAP, c.NO_SOURCE, c.DERIVED)

    def draft_ran(self, _token: Any, _result: Any, *_args: Any, **_kwargs: Any) -> None:
        """After ``forward`` of the draft's model runner."""
        one = self._now
        if one is not None:
            source = c.TARGET_FED if one.inside == passes.IN_EXTEND else c.SELF_FED
            one.cross(c.DRAFT_FORWARD, source, c.EAGER)

    def fc_ran(self, *_args: Any) -> None:
        """In a forward hook of the draft's fc module."""
        one = self._now
        if one is None:
            return
        if one.inside == passes.IN_EXTEND and one.extend is not None:
            one.extend.fc_ran += 1
            one.cross(c.DRAFT_FC, c.TARGET_FED, c.EAGER)
        else:
            one.cross(c.DRAFT_FC, c.SELF_FED, c.EAGER)

    def graph_replayed(self, _token: Any, _result: Any, runner: Any, *_args: Any, **_kwargs: Any) -> None:
        """After ``execute`` of one of the draft's CUDA graph runners."""
        one = self._now
        if one is None:
            return
        if one.inside == passes.IN_EXTEND and one.extend is not None:
            one.extend.graph = True
            states = getattr(getattr(runner, "buffers", None), "hidden_states", None)
            one.extend.buffer_width = None if states is None else int(states.shape[-1])
            one.cross(c.DRAFT_FORWARD, c.TARGET_FED, c.GRAPH)
        else:
            steps = self._loaded.worker.speculative_num_steps
            one.cross(c.DRAFT_FORWARD, c.SELF_FED, c.GRAPH, steps - 1)

    # --- draft extend -------------------------------------------------------------------------------

    def extend_prefill_begins(
        self, batch: Any, target_hidden_states: Any, *_args: Any, **_kwargs: Any
    ) -> str:
        """Before ``EagleDraftWorker._draft_extend_for_prefill``: states are [tokens, width]."""
        lengths: list[int] = list(batch.extend_lens)
        starts = list(accumulate(lengths, initial=0))[:-1]
        return self._extend_begins(batch, target_hidden_states, starts, lengths)

    def extend_decode_begins(self, batch: Any, batch_result: Any, *_args: Any, **_kwargs: Any) -> str:
        """Before ``EagleDraftWorker._draft_extend_for_decode``: states are [rows * nodes, width].

        Each request has one block of ``nodes`` rows with the kept ones in front (accepted drafts and the
        root): only these are looked at, the rest is overwritten later.
        """
        lengths: list[int] = []
        if hidden.on_host(batch_result.accept_lens):
            lengths = batch_result.accept_lens.tolist()
        nodes = batch_result.speculative_num_draft_tokens
        starts = [row * nodes for row in range(len(lengths))]
        return self._extend_begins(batch, batch_result.logits_output.hidden_states, starts, lengths)

    def _extend_begins(self, batch: Any, states: Any, starts: list[int], lengths: list[int]) -> str:
        outer = self._enter(passes.IN_EXTEND)
        one = self._now
        if one is None or states is None:
            return outer
        uids = uids_of(batch.reqs)
        statistics: Any = hooks.FAILED
        if len(lengths) == len(uids) and hidden.on_host(states):
            # Guarded apart: should they fail, what was fed and whether fc ran is still told.
            statistics = self._statistics.run(hidden.statistics, states, starts, lengths)
        if statistics is hooks.FAILED:
            statistics = (None,) * len(uids)
        one.extend = Extend(
            t_ns=time.monotonic_ns(),
            fed_width=int(states.shape[-1]),
            dtype=str(states.dtype).removeprefix("torch."),
            uids=uids,
            hidden=statistics,
        )
        return outer

    def extend_ended(self, token: str, _result: Any, *_args: Any, **_kwargs: Any) -> None:
        """After either of them."""
        one = self._now
        if one is None:
            return
        one.inside = token
        if one.extend is not None:
            one.extend.done = True
            mode = c.GRAPH if one.extend.graph else c.EAGER
            one.cross(c.DRAFT_EXTEND, c.TARGET_FED, mode)

    # --- verify and commit --------------------------------------------------------------------------

    def verify_begins(self, batch: Any, *_args: Any, **_kwargs: Any) -> Drafted | None:
        """Before ``EAGLEWorkerV2.verify``: read the tree before the engine works on it."""
        verify_input = batch.spec_info
        if self._now is None:
            return None
        nodes = verify_input.draft_token_num
        drafted = Drafted(nodes=nodes, steps=verify_input.spec_steps, chain=verify_input.topk == 1)
        if self._loaded.emits and hidden.on_host(verify_input.draft_token):
            drafted.tokens = verify_input.draft_token.view(-1, nodes)[:, 1:].tolist()
            if not drafted.chain:
                drafted.first_child = verify_input.retrieve_next_token.tolist()
                drafted.next_sibling = verify_input.retrieve_next_sibling.tolist()
        return drafted

    def verify_ended(self, token: Drafted | None, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """After it."""
        one = self._now
        if one is None or token is None:
            return
        token.graph = bool(result.can_run_cuda_graph)
        if token.tokens is not None and hidden.on_host(result.accept_index):
            token.accept_index = result.accept_index.tolist()
        one.drafted = token
        one.cross(c.TARGET_VERIFY, c.NO_SOURCE, c.GRAPH if token.graph else c.EAGER)

    def commit_begins(self, _processor: Any, batch: Any, result: Any) -> list[tuple[int, bool]] | None:
        """Before ``process_batch_result_decode``: (output tokens, already over) of each request."""
        if getattr(result, PASS, None) is None:
            return None
        before = [(visible(req), req.finished_reason is not None or req.is_retracted) for req in batch.reqs]
        self._requests.hold()
        return before

    def commit_ended(
        self, token: list[tuple[int, bool]] | None, _result: Any, _processor: Any, batch: Any, result: Any
    ) -> None:
        """After it: the step is complete; only now is told what the request really got."""
        if token is None:
            return
        one: Pass = getattr(result, PASS)
        delattr(result, PASS)
        try:
            if one in self._waiting:
                self._waiting.remove(one)
                if result.num_correct_drafts_per_req_cpu is None:
                    self._give_up(one)
                else:
                    one.cross(c.ENGINE_COMMIT, c.NO_SOURCE, c.EAGER)
                    self._committed(one, token, batch, result)
        finally:
            self._requests.release()

    def _committed(self, one: Pass, before: list[tuple[int, bool]], batch: Any, result: Any) -> None:
        # Guarded apart: an odd tree must not cost the acceptance counts.
        parents = self._trees.run(commit.parents_of, one.drafted or commit.NO_DRAFTS, len(batch.reqs))
        try:
            record = commit.verify_step(
                one, before, None if parents is hooks.FAILED else parents, batch, result
            )
        except Exception:
            self._give_up(one)
            raise
        self._tell(record)
        self._tell_extend(one)

    def close(self) -> None:
        """Count what still waits for a commit that will not come."""
        while self._waiting:
            self._give_up(self._waiting.popleft())

    # --- records ------------------------------------------------------------------------------------

    def _enter(self, inside: str) -> str:
        one = self._now
        if one is None:
            return passes.IN_TARGET
        outer, one.inside = one.inside, inside
        return outer

    def _give_up(self, one: Pass) -> None:
        self._tell(passes.given_up(one))
        self._tell_extend(one)

    def _tell_extend(self, one: Pass) -> None:
        if one.extend is not None:
            self._tell(passes.extend_record(one, one.extend, self._loaded.fc_in))

    def _tell(self, record: PrefillPass | VerifyStep | DraftExtend) -> None:
        self._recorder.ledger.add(record.expected, record.crossed)
        if self._loaded.emits:
            self._recorder.emit(record)


def _sound(guard: Guard | None) -> bool:
    return guard is not None and guard.armed and guard.sound
