"""Confidence and the target's view, taken in some steps: what is costly is not taken in each.

Steps are chosen by the engine's step number, so that all ranks and all requests of a batch are in the same
ones. Position 1 of a proposal comes from the draft extend of the step before, so that is looked at one step
earlier.
"""

from __future__ import annotations

import importlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from specscope import convention as c
from specscope.contracts import PREFILL, VERIFY
from specscope.engines.sglang import confidence
from specscope.engines.sglang.copies import Copies, Copy
from specscope.engines.sglang.hooks import Guard
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.passes import Extend, Pass

if TYPE_CHECKING:
    from specscope.recorder import Recorder

PREFILLS: Final = 8
"""Prefill passes between two verify steps whose draft logits are kept for the next one."""

Logits = tuple[list[Any], Any]
"""(requests of a batch, draft logits [rows, draft vocabulary] of its draft extend)."""


class Sampling:
    """Takes what is sampled. Each part is guarded apart: should one fail, the others go on."""

    def __init__(self, recorder: Recorder, loaded: Loaded, copies: Copies) -> None:
        """Look at the logits of ``loaded``."""
        self._loaded = loaded
        self._copies = copies
        self._every = recorder.settings.sample_every
        on = recorder.settings.at_least(c.DETAIL_STEPS) and loaded.emits
        self._layered = len(loaded.draft_runners) > 1
        self._to_draft: Any = None
        self._verified: Logits | None = None
        self._prefilled: deque[Logits] = deque(maxlen=PREFILLS)
        self._confidence = Guard("draft_confidence", (), recorder)
        self._view = Guard("target_view", (), recorder)
        self._grammar = Guard("before_grammar", (), recorder)
        for guard in (self._confidence, self._view, self._grammar):
            guard.armed = on

    def takes(self, step: int) -> bool:
        """Say whether this engine step is sampled."""
        return step % self._every == 0

    def proposed(self, one: Pass) -> None:
        """After a proposal: the confidence at the positions from 2 on."""
        if one.drafts:
            self._confidence.run(self._of_proposal, one)

    def extended(self, one: Pass, extend: Extend) -> None:
        """After a draft extend: the confidence at position 1 of the next proposal."""
        logits, extend.logits = extend.logits, None
        if one.kind == VERIFY:  # what was kept belongs to the step that has just run
            self._verified = None
            self._prefilled.clear()
        if logits is not None and not self._layered and (one.kind == PREFILL or self.takes(one.step + 1)):
            self._confidence.run(self._of_extend, one, extend, logits)

    def before_grammar(self, one: Pass, batch: Any, logits_output: Any) -> None:
        """Before the verifier: the target's favourites, where a grammar will forbid some."""
        if batch.has_grammar:
            self._grammar.run(self._favourites, one, logits_output)

    def accepted(self, one: Pass, verify_input: Any, logits_output: Any, result: Any) -> None:
        """After the verifier of a sampled step: what the target thought of the draft it refused."""
        self._view.run(self._of_target, one, verify_input, logits_output, result)
        one.drafts = []

    def _of_proposal(self, one: Pass) -> None:
        one.confidence = self._copy(confidence.of(one.drafts, self._topk()), len(one.drafts))

    def _of_extend(self, one: Pass, extend: Extend, logits_output: Any) -> None:
        logits = logits_output.next_token_logits
        rows = len(one.uids)
        if logits.shape[0] != rows:
            return
        extend.confidence = self._copy(confidence.of([logits], 1), rows)
        if one.kind == VERIFY:
            self._verified = (one.reqs, logits)
        else:
            self._prefilled.append((one.reqs, logits))

    def _favourites(self, one: Pass, logits_output: Any) -> None:
        best = logits_output.next_token_logits.argmax(dim=-1)
        one.free = self._copies.start([best], [best.numel() // len(one.uids)])

    def _of_target(self, one: Pass, verify_input: Any, logits_output: Any, result: Any) -> None:
        _, accept_lens, accept_index = result
        rows = len(one.uids)
        tokens = verify_input.draft_token.view(rows, -1)
        chain = verify_input.tree_topk == 1
        found = confidence.view(
            logits_output.next_token_logits,
            tokens,
            accept_index,
            accept_lens,
            None if chain else verify_input.retrieve_next_token,
            self._draft_logits(one, tokens.shape[1] - 1) if chain else (),
            self._map(),
        )
        one.view = self._copy(found, rows)

    def _draft_logits(self, one: Pass, positions: int) -> list[Any]:
        """Return the draft's logits a position, the first from the draft extend before; empty: not all."""
        kept = [*self._prefilled, *([] if self._verified is None else [self._verified])]
        if len(one.drafts) != positions - 1 or not kept:
            return []
        if len(kept) == 1 and kept[0][0] == one.reqs:
            return [kept[0][1], *one.drafts]
        rows = {id(req): logits[row] for reqs, logits in kept for row, req in enumerate(reqs)}
        if not all(id(req) in rows for req in one.reqs):
            return []
        torch: Any = importlib.import_module("torch")
        return [torch.stack([rows[id(req)] for req in one.reqs]), *one.drafts]

    def _copy(self, values: Any, width: int) -> Copy | None:
        return self._copies.start([values], [width])

    def _topk(self) -> int:
        return int(getattr(self._loaded.worker, "topk", None) or 1)

    def _map(self) -> Any:
        """The draft's id of each target id; made once, on the map's own device."""
        hot = getattr(self._loaded.draft_worker, "hot_token_id", None)
        if hot is not None and self._to_draft is None:
            torch: Any = importlib.import_module("torch")
            vocab = self._loaded.target_runner.model_config.vocab_size
            made = torch.full((vocab,), -1, dtype=torch.long, device=hot.device)
            made[hot.long()] = torch.arange(hot.numel(), device=hot.device)
            self._to_draft = made
        return self._to_draft
