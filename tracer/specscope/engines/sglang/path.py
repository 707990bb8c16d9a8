"""The hooks on the speculative path of one scheduler, from the target's hidden states to the commit."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from specscope import convention as c
from specscope.contracts import PREFILL, VERIFY, contract
from specscope.copies import LOOKS, Copies
from specscope.engines.sglang import commit, conclude, passes, sanity, verify_input
from specscope.engines.sglang.hooks import Guard
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.looks import Looks
from specscope.engines.sglang.passes import Drafted, Extend, Pass
from specscope.engines.sglang.requests import Requests, uids_of
from specscope.engines.sglang.sampling import Sampling
from specscope.engines.sglang.telling import Telling

if TYPE_CHECKING:
    from specscope.engines.sglang.graph_looks import Read
    from specscope.recorder import Recorder

PASS: Final = "specscope_pass"
"""Attribute of SGLang's ``GenerationBatchResult`` that carries a pass to its commit.

Under the overlap schedule a result is processed one iteration later than its forward; the result object
is the same one throughout, the batch is a copy (design note 4.3).
"""

UNCOMMITTED: Final = 3
"""Verify passes that may wait for their commit: one with the overlap schedule, and room to spare."""

PADDING: Final = {"NGRAM": 0}
"""Token of the placeholders with which an algorithm fills up its fixed number of drafts: children of the root
(``kernels/jit/csrc/ngram_corpus/result.cpp``, ``fillResult``)."""

CAPTURED: Final = (c.AUX_CAPTURE, c.NO_SOURCE, c.EAGER)
PROPOSED: Final = (c.DRAFT_PROPOSE, c.NO_SOURCE, c.EAGER)
PROPOSED_SEEN: Final = (c.DRAFT_PROPOSE, c.NO_SOURCE, c.DERIVED)
MAPPED: Final = (c.DRAFT_MAP, c.NO_SOURCE, c.DERIVED)
FC_TARGET_FED: Final = (c.DRAFT_FC, c.TARGET_FED, c.EAGER)
FC_SELF_FED: Final = (c.DRAFT_FC, c.SELF_FED, c.EAGER)
COMMITTED: Final = (c.ENGINE_COMMIT, c.NO_SOURCE, c.EAGER)

Before = tuple[list[int], list[bool] | None]


class Path:
    """State between the hooks. All callbacks run on the scheduler's only thread."""

    def __init__(self, recorder: Recorder, loaded: Loaded, requests: Requests) -> None:
        """Trace the speculative path of ``loaded``."""
        self._recorder = recorder
        self._loaded = loaded
        self._requests = requests
        self._now: Pass | None = None
        self._waiting: deque[Pass] = deque()
        self._batch: tuple[list[Any], tuple[str, ...], tuple[int, ...]] = ([], (), ())
        self._padding = PADDING.get(loaded.algorithm)
        self._times = recorder.pass_times
        self._times.host_is_device = getattr(loaded.server_args, "device", None) == "cpu"
        self._takes_drafts = loaded.emits or recorder.ranks is not None
        self.copies = Copies(recorder.missed)
        self.sampling = Sampling(recorder, loaded, self.copies)
        self.looks = Looks(recorder, loaded, Copies(recorder.missed, LOOKS))
        self._look = self.looks.guard.run
        self._telling = Telling(recorder, loaded, self.looks)
        self.weight_version = 0
        """Raised by whoever sees the engine take new weights."""
        self.sees_propose = False
        """Whether a hook sees the proposal itself; else it is concluded from what is verified."""
        self.packing: Guard | None = None
        """The hook on the packing of aux hidden states, once it is in place."""
        self.fc: Guard | None = None
        """The hook on the draft's fc, once it is in place."""

    # --- the forward: opens and closes a pass -----------------------------------------------------

    def forward_begins(self, batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """Before ``forward_batch_generation`` of the scheduler's speculative worker."""
        self._now = None
        mode = batch.forward_mode
        reqs: list[Any] = batch.reqs
        if mode.is_idle() or not reqs:
            return
        prefill = mode.is_extend()
        known, uids, prompt = self._batch
        if known != reqs:  # the same requests as in the step before, mostly
            uids = uids_of(reqs)
            prompt = tuple([len(req.origin_input_ids) for req in reqs])
            known = reqs.copy()
            self._batch = (known, uids, prompt)
        step: int = batch.forward_iter
        self._now = Pass(
            kind=PREFILL if prefill else VERIFY,
            step=step,
            t_ns=self._times.begins("" if prefill else c.PASS_STEP, known, step),
            reqs=known,
            uids=uids,
            prompt=prompt,
            cached=tuple([req.cached_tokens for req in reqs]) if prefill else (),
            sampled=self.sampling.takes(step),
            weight_version=self.weight_version,
        )
        if prefill or self._now.sampled:
            self._look(self.looks.open, self._now)

    def forward_ended(self, _token: Any, result: Any, _batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """After it: conclude what could not be seen from shapes, then tell of the pass."""
        one, self._now = self._now, None
        if one is None:
            return
        if one.target_ns is not None:
            self._times.parts(len(one.uids), one.t_ns, one.target_ns)
        if self._loaded.eagle3:
            packing_seen = _sound(self.packing) and not result.can_run_cuda_graph
            one.aux_states = conclude.capture(one, self._loaded, seen=packing_seen)
        one.fc_ran = conclude.fc_runs(one, self._loaded, seen=_sound(self.fc))
        # Now, not at the commit: SGLang adapts its steps while it resolves the tokens of a result.
        one.agreed = self._telling.agreed()
        if one.kind == PREFILL:
            self._telling.prefill(one)
            return
        setattr(result, PASS, one)
        self._waiting.append(one)
        if len(self._waiting) > UNCOMMITTED:
            self._telling.give_up(self._waiting.popleft())

    # --- target: aux hidden states ----------------------------------------------------------------

    def packed(self, _token: Any, result: Any, aux_hidden_states: Any) -> None:
        """After ``pack_aux_hidden_states``: a list of states, or one tensor that holds them packed."""
        one = self._now
        if one is None or one.inside != passes.IN_TARGET:
            return  # the draft packs its own state too
        if isinstance(aux_hidden_states, list):
            one.packed = len(aux_hidden_states)  # pyright: ignore[reportUnknownArgumentType]
        elif self._loaded.target_hidden:
            one.packed = aux_hidden_states.shape[-1] // self._loaded.target_hidden
        one.cross(CAPTURED)
        if one.looking is not None:
            self._look(self.looks.packed, one, result)

    # --- draft: proposal, forwards, fc, map ---------------------------------------------------------

    def propose_begins(self, batch: Any, *_args: Any, **_kwargs: Any) -> str:
        """Before ``draft`` of the draft worker, or NGRAM's look-up."""
        one = self._now
        if one is not None and one.looking is not None:
            self._look(self.looks.started, one, getattr(batch.spec_info, "hidden_states", None))
        return self._enter(passes.IN_PROPOSE)

    def propose_ended(self, token: str, _result: Any, *_args: Any, **_kwargs: Any) -> None:
        """After it."""
        one = self._now
        if one is None:
            return
        one.inside = token
        if one.kind == VERIFY:
            one.cross(PROPOSED)
            if self._loaded.map_present:
                one.cross(MAPPED)
            self.sampling.proposed(one)

    def draft_ran(self, _token: Any, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """After ``forward`` of a draft's model runner."""
        one = self._now
        if one is None:
            return
        # Of a prefill the body of the model, fc included, is a replayed graph by default on CUDA devices
        # (``default_prefill_backend``, ``init_prefill_cuda_graph(force_for_draft_worker=True)``).
        graph = bool(getattr(result, "can_run_graph", False))
        mode = c.GRAPH if graph else c.EAGER
        if one.inside == passes.IN_EXTEND:
            one.cross((c.DRAFT_FORWARD, c.TARGET_FED, mode))
            if one.extend is not None:
                one.extend.forwards += 1
                one.extend.graph |= graph
                one.extend.logits = result.logits_output
        else:
            one.cross((c.DRAFT_FORWARD, c.SELF_FED, mode))
            if one.sampled:
                self.sampling.forwarded(one, result.logits_output.next_token_logits)
            if one.looking is not None:
                self._look(self.looks.carried, one, result.logits_output)

    def fc_begins(self, states: Any) -> None:
        """In a pre-forward hook of the draft's fc module: what it takes [rows, width]."""
        one = self._now
        if one is not None and one.looking is not None and one.inside == passes.IN_EXTEND:
            self._look(self.looks.entered_fc, one, states)

    def fc_ran(self, states: Any) -> None:
        """In a forward hook of a draft's fc module: what it made [rows, width]; ``None``: not the first."""
        one = self._now
        if one is None:
            return
        if one.inside == passes.IN_EXTEND and one.extend is not None:
            one.extend.fc_ran += 1
            one.cross(FC_TARGET_FED)
            if one.looking is not None and states is not None:
                self._look(self.looks.left_fc, one, states)
        else:
            one.cross(FC_SELF_FED)

    def embedded(self, states: Any) -> None:
        """In a forward hook of the draft's embedding module: [rows, width]."""
        one = self._now
        if one is None or one.looking is None or one.inside == passes.IN_TARGET:
            return
        self._look(self.looks.embedded, one, states, target_fed=one.inside == passes.IN_EXTEND)

    def graph_replayed(self, _token: Any, result: Any, runner: Any, *_args: Any, **_kwargs: Any) -> None:
        """After ``execute`` (of several layers: ``replay``) of one of the draft's CUDA graph runners."""
        one = self._now
        if one is None:
            return
        if one.inside == passes.IN_EXTEND and one.extend is not None:
            one.extend.graph = True
            one.extend.forwards += 1
            # That of several layers returns what was selected beside its logits.
            one.extend.logits = None if isinstance(result, tuple) else result
            states = getattr(getattr(runner, "buffers", None), "hidden_states", None)
            one.extend.buffer_width = None if states is None else int(states.shape[-1])
            one.cross((c.DRAFT_FORWARD, c.TARGET_FED, c.GRAPH))
        else:
            # What was captured is the whole loop over the draft's steps (``draft_forward``).
            agreed = contract(self._loaded.algorithm, self._loaded.shape())
            times = agreed.verify.get((c.DRAFT_FORWARD, c.SELF_FED), 0)
            one.cross((c.DRAFT_FORWARD, c.SELF_FED, c.GRAPH), times)
            fc = agreed.verify.get((c.DRAFT_FC, c.SELF_FED), 0)
            one.cross((c.DRAFT_FC, c.SELF_FED, c.GRAPH), fc)

    def graph_looked(self, read: Read) -> None:
        """After a replay, inside ``execute``: what was looked at in the graph can be read."""
        one = self._now
        if one is not None and one.looking is not None:
            target_fed = one.inside == passes.IN_EXTEND
            self._look(self.looks.replayed, one, read, target_fed=target_fed)

    # --- draft extend -------------------------------------------------------------------------------

    def extend_prefill_begins(
        self, batch: Any, target_hidden_states: Any, *_args: Any, **_kwargs: Any
    ) -> str:
        """Before ``_draft_extend_for_prefill``: states are [tokens, width], ``None`` for STANDALONE."""
        outer = self._extend_begins(target_hidden_states)
        one = self._now
        # An idle rank of data-parallel attention comes here too, and has no lengths at all.
        if one is not None and one.looking is not None:
            self._look(self.looks.fed_prefill, one, target_hidden_states, batch)
        return outer

    def extend_decode_begins(self, batch: Any, batch_result: Any, *_args: Any, **_kwargs: Any) -> str:
        """Before ``_draft_extend_for_decode``: states are [rows * nodes, width], ``None`` for STANDALONE.

        Each request has one block of ``nodes`` rows with the kept ones in front (accepted drafts and the
        root): only these are looked at, the rest is overwritten later.
        """
        states = batch_result.logits_output.hidden_states
        outer = self._extend_begins(states)
        one = self._now
        if one is not None and one.looking is not None:
            nodes: int = batch_result.speculative_num_draft_tokens
            self._look(self.looks.fed_verify, one, states, nodes)
        return outer

    def _extend_begins(self, states: Any) -> str:
        outer = self._enter(passes.IN_EXTEND)
        one = self._now
        if one is not None:
            one.extend = Extend(
                t_ns=time.monotonic_ns(),
                fed_width=0 if states is None else int(states.shape[-1]),
                dtype="" if states is None else str(states.dtype).removeprefix("torch."),
                uids=one.uids,
            )
        return outer

    def extend_prefill_ended(self, token: str, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """After it: what the first draft step starts from."""
        self._extend_ended(token, result)

    def extend_decode_ended(
        self, token: str, _result: Any, _batch: Any, batch_result: Any, *_args: Any, **_kwargs: Any
    ) -> None:
        """After it: likewise."""
        self._extend_ended(token, batch_result)

    def _extend_ended(self, token: str, left: Any) -> None:
        one = self._now
        if one is None:
            return
        one.inside = token
        extend = one.extend
        if extend is not None:
            extend.done = True
            one.cross((c.DRAFT_EXTEND, c.TARGET_FED, c.GRAPH if extend.graph else c.EAGER))
            self.sampling.extended(one, extend)
        if one.looking is not None:
            self._look(self.looks.extended, one, left)

    # --- verify and commit --------------------------------------------------------------------------

    def target_begins(
        self,
        batch: Any,
        forward_batch: Any = None,
        pp_proxy_tensors: Any = None,
        is_verify: bool = False,
        *_args: Any,
        **_kwargs: Any,
    ) -> Drafted | None:
        """Before ``forward_batch_generation`` of the target's worker, which verifies for every algorithm.

        The drafts are read before the engine works on them.
        """
        one = self._now
        if not is_verify or one is None:
            return None
        source = batch if forward_batch is None else forward_batch
        if verify_input.drafts_itself(source):
            if PROPOSED not in one.crossed:
                one.cross(PROPOSED)
            return None
        drafted, blocks = verify_input.read(source, len(one.uids))
        if self._takes_drafts and blocks:
            drafted.blocks = self.copies.start(blocks, [drafted.nodes] * len(blocks))
        drafted.began_ns = self._times.part_begins()
        if drafted.nodes > 1 and not self.sees_propose and one.kind == VERIFY and PROPOSED not in one.crossed:
            one.cross(PROPOSED_SEEN)
        return drafted

    def target_ended(self, token: Drafted | None, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """After it."""
        one = self._now
        if one is None or token is None:
            return
        if token.began_ns is not None:
            one.target_ns = time.monotonic_ns() - token.began_ns
        token.graph = bool(result.can_run_cuda_graph)
        one.drafted = token
        one.cross((c.TARGET_VERIFY, c.NO_SOURCE, c.GRAPH if token.graph else c.EAGER))

    def accept_begins(
        self, _verify_input: Any, batch: Any, logits_output: Any, *_args: Any, **_kwargs: Any
    ) -> None:
        """Before ``eagle_sample``: the target's logits are not edited yet."""
        if self._now is not None:
            self.sampling.before_grammar(self._now, batch, logits_output)

    def accept_ended(
        self,
        _token: Any,
        result: Any,
        verify_input: Any,
        _batch: Any,
        logits_output: Any,
        *_args: Any,
        **_kwargs: Any,
    ) -> None:
        """After it: (predicted tokens, accept lengths, accepted nodes)."""
        one = self._now
        if one is not None and one.sampled:
            self.sampling.accepted(one, verify_input, logits_output, result)
        if one is not None and one.looking is not None:
            self._look(self.looks.accepted, one, result)

    def commit_begins(self, _processor: Any, batch: Any, result: Any) -> Before | None:
        """Before ``process_batch_result_decode``: output tokens and whether over, of each request."""
        if getattr(result, PASS, None) is None:
            return None
        reqs: list[Any] = batch.reqs
        before = (commit.visible(reqs), commit.over(reqs))
        self._requests.hold()
        return before

    def commit_ended(
        self, token: Before | None, _result: Any, _processor: Any, batch: Any, result: Any
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
                    # Set for every result of a speculating engine (``_resolve_spec_v2_tokens``): a version
                    # that keeps the counts elsewhere must not look like one that does not commit.
                    self._telling.give_up(one)
                    raise LookupError("num_correct_drafts_per_req_cpu of the result is None")
                one.cross(COMMITTED)
                self._committed(one, token, batch, result)
        finally:
            self._requests.release()

    def _committed(self, one: Pass, token: Before, batch: Any, result: Any) -> None:
        counts = self._telling.counts(one)
        try:
            if one.drafted is None:
                one.drafted = commit.unseen(result, self._telling.steps())
            record = commit.verify_batch(one, counts, *token, batch, result, self._padding)
            sanity.check(record)
        except Exception:
            self._telling.give_up(one)
            raise
        ranks = self._recorder.ranks
        if ranks is not None and record.committed is not None:
            drafts = None if record.drafts is None else record.drafts[0]
            accepts = bytes(record.accepted) + record.committed[0]
            ranks.add(one.step, drafts, accepts, *self.looks.compare(one))
        self._telling.committed(one, record, counts)

    def close(self) -> None:
        """Count what still waits for a commit that will not come."""
        while self._waiting:
            self._telling.give_up(self._waiting.popleft())
        self._look(self.looks.flush)

    def _enter(self, inside: str) -> str:
        one = self._now
        if one is None:
            return passes.IN_TARGET
        outer, one.inside = one.inside, inside
        return outer


def _sound(guard: Guard | None) -> bool:
    return guard is not None and guard.armed and guard.sound
