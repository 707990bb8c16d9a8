"""Confidence and the target's view, taken in some steps: what is costly is not taken in each.

Steps are chosen by the engine's step number, so that all ranks and all requests of a batch are in the same
ones. Position 1 of a proposal comes from the draft extend of the step before, so that is looked at one step
earlier. Memory on the device is bounded: of a large batch every n-th row is taken, others in other steps.
"""

from __future__ import annotations

import importlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from specscope import convention as c
from specscope.contracts import PREFILL, VERIFY
from specscope.copies import Copies, Copy
from specscope.engines.sglang import confidence
from specscope.engines.sglang.hooks import Guard
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.passes import Extend, Pass

if TYPE_CHECKING:
    from specscope.recorder import Recorder

ELEMENTS: Final = 1 << 22
"""Logits taken at once at most: 16 MiB in float32, 32 rows of a vocabulary of 128,000."""

PREFILLS: Final = 8
"""Prefill passes between two verify steps whose draft logits are kept for the next one."""

Logits = tuple[list[Any], Any]
"""(requests, draft logits float32 [requests, draft vocabulary] of their draft extend)."""


class Sampling:
    """Takes what is sampled. Each part is guarded apart: should one fail, the others go on."""

    def __init__(self, recorder: Recorder, loaded: Loaded, copies: Copies) -> None:
        """Look at the logits of ``loaded``."""
        self._loaded = loaded
        self._copies = copies
        self._every = recorder.settings.sample_every
        self._rows = max(1, ELEMENTS // int(loaded.target_runner.model_config.vocab_size))
        self._layered = len(loaded.draft_runners) > 1
        self._to_draft: Any = None
        self._verified: Logits | None = None
        self._prefilled: deque[Logits] = deque(maxlen=PREFILLS)
        self._confidence = Guard("draft_confidence", (), recorder, within=True)
        self._view = Guard("target_view", (), recorder, within=True)
        self._grammar = Guard("before_grammar", (), recorder, within=True)
        on = recorder.settings.at_least(c.DETAIL_STEPS) and loaded.emits
        for guard in (self._confidence, self._view, self._grammar):
            guard.armed = on

    def takes(self, step: int) -> bool:
        """Say whether this engine step is sampled."""
        return step % self._every == 0

    def rows(self, step: int, count: int) -> slice:
        """Return which of ``count`` rows are taken in (or for) a sampled step."""
        apart = -(-count // self._rows)
        return slice((step // self._every) % apart, None, apart)

    def forwarded(self, one: Pass, logits: Any) -> None:
        """After a self-fed forward of the draft in a sampled step: [rows * topk, draft vocabulary]."""
        self._confidence.run(self._keep, one, logits)

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

    def _keep(self, one: Pass, logits: Any) -> None:
        # Of a tree the first of the topk rows of a request, its best branch. A copy: the engine's own
        # memory must not be kept from it.
        picked = logits[:: self._topk()][self.rows(one.step, len(one.uids))]
        one.drafts.append(picked.to(_float32(), copy=True))

    def _of_proposal(self, one: Pass) -> None:
        # One position after the other: the reductions take several times the logits' memory.
        found = _torch().cat([confidence.of(logits[None]) for logits in one.drafts], dim=2)
        one.confidence = self._spread(found, one, (2, len(one.uids), len(one.drafts)))

    def _of_extend(self, one: Pass, extend: Extend, logits_output: Any) -> None:
        logits = logits_output.next_token_logits
        rows = len(one.uids)
        # A prefill is told at once: what a device has to bring for it would always be late.
        tells = one.kind == VERIFY or logits.device.type == "cpu"
        # Where the other positions run in a graph, theirs are never at hand, and one alone is of no use.
        keeps = getattr(self._loaded.draft_worker, "cuda_graph_runner", None) is None
        if logits.shape[0] != rows or not (tells or keeps):
            return
        taken = self.rows(one.step + 1, rows)
        picked = logits[taken].to(_float32(), copy=True)
        if tells:
            found = confidence.of(picked[None]).squeeze(2)
            extend.confidence = self._spread(found, one, (2, rows), taken)
        if not keeps:
            return
        kept = (one.reqs[taken], picked)
        if one.kind == VERIFY:
            self._verified = kept
        else:
            self._prefilled.append(kept)

    def _favourites(self, one: Pass, logits_output: Any) -> None:
        best = logits_output.next_token_logits.argmax(dim=-1)
        one.free = self._copies.start([best], [best.numel() // len(one.uids)])

    def _of_target(self, one: Pass, verify_input: Any, logits_output: Any, result: Any) -> None:
        _, accept_lens, accept_index = result
        rows = len(one.uids)
        tokens = verify_input.draft_token.view(rows, -1)
        nodes = tokens.shape[1]
        chain = verify_input.tree_topk == 1
        taken = self.rows(one.step, rows)
        accepted = accept_lens[taken].long() - 1
        at = accept_index[taken].gather(1, accepted[:, None]).squeeze(1).long()  # last accepted node
        base = _torch().arange(rows, device=tokens.device)[taken] * nodes
        found = confidence.view(
            logits_output.next_token_logits[at].float(),
            tokens[taken],
            at - base,
            None if chain else verify_input.retrieve_next_token[taken],
            self._draft_logits(one, nodes - 1, one.reqs[taken]) if chain else (),
            accepted,
            self._map(),
        )
        one.view = self._spread(found, one, (3, rows))

    def _draft_logits(self, one: Pass, positions: int, reqs: list[Any]) -> list[Any]:
        """Return the draft's logits a position, the first from the draft extend before; empty: not all."""
        kept = [*self._prefilled, *([] if self._verified is None else [self._verified])]
        if len(one.drafts) != positions - 1 or not kept:
            return []
        if len(kept) == 1 and kept[0][0] == reqs:
            return [kept[0][1], *one.drafts]
        rows = {id(req): logits[row] for owners, logits in kept for row, req in enumerate(owners)}
        if not all(id(req) in rows for req in reqs):
            return []
        return [_torch().stack([rows[id(req)] for req in reqs]), *one.drafts]

    def _spread(
        self, found: Any, one: Pass, shape: tuple[int, ...], taken: slice | None = None
    ) -> Copy | None:
        """Put the rows that were taken where they belong, NaN for the others, and send them to the host."""
        rows = self.rows(one.step, shape[1]) if taken is None else taken
        if rows.step != 1:
            full = _torch().full(shape, float("nan"), device=found.device)
            full[:, rows] = found
            found = full
        return self._copies.start([found.contiguous()], [shape[-1]])

    def _topk(self) -> int:
        return int(getattr(self._loaded.worker, "topk", None) or 1)

    def _map(self) -> Any:
        """The draft's id of each target id; made once, on the map's own device."""
        hot = getattr(self._loaded.draft_worker, "hot_token_id", None)
        if hot is not None and self._to_draft is None:
            torch = _torch()
            vocab = self._loaded.target_runner.model_config.vocab_size
            # A damaged map may name any id; those that are none go to a place of their own.
            ids = torch.where((hot >= 0) & (hot < vocab), hot, vocab).long()
            made = torch.full((vocab + 1,), -1, dtype=torch.long, device=hot.device)
            made[ids] = torch.arange(hot.numel(), device=hot.device)
            self._to_draft = made[:vocab]
        return self._to_draft


def _torch() -> Any:
    return importlib.import_module("torch")


def _float32() -> Any:
    return _torch().float32
