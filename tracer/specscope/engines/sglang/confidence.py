"""How sure the draft was, and what the target thought of the draft it refused: reductions over logits.

Everything here stays on the logits' device and waits for nothing; :mod:`.copies` brings the few numbers to
the host. Logits are those of the engine, before any temperature.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any


def of(logits: Sequence[Any], topk: int) -> Any:
    """Return top-1 probability and entropy (nats), float32 [2, rows, positions].

    ``logits`` has one tensor [rows * topk, draft vocabulary] a position. Of a tree the first of the ``topk``
    rows of a request is taken, its best branch.
    """
    torch: Any = importlib.import_module("torch")
    found: list[Any] = []
    for one in logits:
        log_p = torch.log_softmax(one[::topk].float(), dim=-1)
        p = log_p.exp()
        # An impossible token (-inf, masked) has p = 0 and adds nothing; 0 * -inf would be NaN.
        entropy = -(p * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(dim=-1)
        found.append(torch.stack((p.amax(dim=-1), entropy)))
    return torch.stack(found, dim=-1).contiguous()


def view(
    target_logits: Any,
    tokens: Any,
    accept_index: Any,
    accept_lens: Any,
    first_child: Any,
    drafts: Sequence[Any],
    to_draft: Any,
) -> Any:
    """Return the target's rank and probability of the refused drafts and the draft's of the target's choice.

    float32 [3, rows], NaN where there is none: every draft was accepted, or the draft's logits are not at
    hand. ``target_logits`` [rows * nodes, vocabulary]; ``tokens`` [rows, nodes], the root first;
    ``accept_index`` [rows, depth + 1] node numbers over the whole batch; ``accept_lens`` [rows] counts the
    root too; ``first_child`` [rows, nodes] or ``None`` for a chain; ``drafts`` one tensor
    [rows, draft vocabulary] a position of a chain, the first position first (empty: not at hand);
    ``to_draft`` [vocabulary] the draft's id of each target id, -1 for none, or ``None`` for the same ids.
    """
    torch: Any = importlib.import_module("torch")
    rows, nodes = tokens.shape
    span = torch.arange(rows, device=tokens.device)
    accepted = accept_lens.long() - 1
    at = accept_index.gather(1, accepted[:, None]).squeeze(1).long()  # last accepted node
    local = at - span * nodes
    if first_child is None:
        child = torch.where(local + 1 < nodes, local + 1, -1)
    else:
        child = first_child.gather(1, local[:, None]).squeeze(1).long()
    refused = child >= 0
    token = tokens.gather(1, child.clamp(min=0)[:, None]).long()
    logits = target_logits[at].float()
    own = logits.gather(1, token)
    rank = (logits > own).sum(dim=-1).float()
    probability = (own.squeeze(1) - logits.logsumexp(dim=-1)).exp()
    nothing = torch.full_like(probability, torch.nan)
    doubt = nothing
    if drafts:
        chosen = logits.argmax(dim=-1)
        ids = chosen if to_draft is None else to_draft[chosen]
        each = torch.stack(
            [
                one.float().gather(1, ids.clamp(min=0)[:, None]).squeeze(1) - one.float().logsumexp(dim=-1)
                for one in drafts
            ],
            dim=1,
        ).exp()
        position = accepted.clamp(max=len(drafts) - 1)
        doubt = each.gather(1, position[:, None]).squeeze(1)
        doubt = torch.where((ids >= 0) & (accepted < len(drafts)), doubt, nothing)
    return torch.stack(
        (
            torch.where(refused, rank, nothing),
            torch.where(refused, probability, nothing),
            torch.where(refused, doubt, nothing),
        )
    ).contiguous()
