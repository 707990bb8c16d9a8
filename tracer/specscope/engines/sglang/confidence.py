"""How sure the draft was, and what the target thought of the draft it refused: reductions over logits.

Everything here stays on the logits' device and waits for nothing; :mod:`specscope.copies` brings the few
numbers to the host. Logits are those of the engine, before any temperature.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any


def of(logits: Any) -> Any:
    """Return top-1 probability and entropy (nats), float32 [2, rows, positions].

    ``logits`` are float32 [positions, rows, draft vocabulary].
    """
    torch: Any = importlib.import_module("torch")
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    # An impossible token (-inf, masked) has p = 0 and adds nothing; 0 * -inf would be NaN.
    entropy = -(p * log_p.clamp_(min=torch.finfo(log_p.dtype).min)).sum(dim=-1)
    return torch.stack((p.amax(dim=-1), entropy)).transpose(1, 2)


def view(
    target_logits: Any,
    tokens: Any,
    local: Any,
    first_child: Any,
    drafts: Sequence[Any],
    accepted: Any,
    to_draft: Any,
) -> Any:
    """Return the target's rank and probability of the refused drafts and the draft's of the target's choice.

    float32 [3, rows], NaN where there is none: every draft was accepted, or the draft's logits are not at
    hand. ``target_logits`` float32 [rows, vocabulary] at the last accepted node of each row, ``local`` [rows]
    the number of that node in its row; ``tokens`` [rows, nodes], the root first; ``first_child``
    [rows, nodes], ``None`` for a chain; ``drafts`` one tensor [rows, draft vocabulary] a position of a chain,
    the first position first (empty: not at hand); ``accepted`` [rows] drafts; ``to_draft`` [vocabulary] the
    draft's id of each target id, -1 for none, or ``None`` for the same ids.
    """
    torch: Any = importlib.import_module("torch")
    if first_child is None:
        child = torch.where(local + 1 < tokens.shape[1], local + 1, -1)
    else:
        child = first_child.gather(1, local[:, None]).squeeze(1).long()
    refused = child >= 0
    # Indices are bounded everywhere: one that is not ends the engine's device, not only this hook.
    token = tokens.gather(1, child.clamp(min=0)[:, None]).long().clamp(0, target_logits.shape[1] - 1)
    own = target_logits.gather(1, token)
    rank = (target_logits > own).sum(dim=-1).float()
    probability = (own.squeeze(1) - target_logits.logsumexp(dim=-1)).exp()
    nothing = torch.full_like(probability, torch.nan)
    doubt = nothing
    if drafts:
        chosen = target_logits.argmax(dim=-1)
        ids = chosen if to_draft is None else to_draft[chosen.clamp(max=to_draft.shape[0] - 1)]
        every = torch.stack(list(drafts))
        # A draft of its own (STANDALONE) may have fewer tokens than the target, and no map.
        last = every.shape[2] - 1
        each = every.gather(2, ids.clamp(0, last)[None, :, None].expand(len(drafts), -1, 1)).squeeze(2)
        each = (each - every.logsumexp(dim=-1)).exp()
        position = accepted.clamp(max=len(drafts) - 1)
        doubt = each.gather(0, position[None, :]).squeeze(0)
        doubt = torch.where((ids >= 0) & (ids <= last) & (accepted < len(drafts)), doubt, nothing)
    return torch.where(refused, torch.stack((rank, probability, doubt)), nothing)
