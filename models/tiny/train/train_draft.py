"""Stages 4 to 6: the EAGLE-3 draft, three rounds, each going on from the one before.

The draft learns from what the target really says: every round lets the target
continue more prompts of all three domains (half greedy, half at temperature 0.8) and
adds them to the pool. Loss: cross-entropy against the target's distribution over the
draft vocabulary, over four self-fed steps (EAGLE-3's training-time test), weighted
0.8 per step. Needs `target.pt`; writes `generated.pt` and `draft.pt` in the work folder.
"""

import argparse
import random
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F

from corpus import ASSISTANT
from tinylm import Cfg, Draft, Target, default_aux
from training import Muon, Text, rate

ROUNDS = (1, 2, 3)
STEPS = 600
GENERATED = 24
"""Batches of 64 continuations that a round adds."""
ROWS, LENGTH, DEPTH = 8, 160, 4
ADAM_RATE, MUON_RATE = 4e-3, 0.02


def train(work, round_, steps=STEPS, generated=GENERATED):
    torch.set_num_threads(1)
    torch.manual_seed(round_)
    random.seed(round_)
    checkpoint = torch.load(work / "target.pt")
    config = Cfg(**checkpoint["cfg"])
    target = Target(config)
    target.load_state_dict(checkpoint["sd"])
    target.eval()
    for p in target.parameters():  # the exported weights are bfloat16: learn from those
        p.data = p.data.bfloat16().float()
        p.requires_grad_(False)
    text = Text(work, random)
    old = torch.load(work / "draft.pt")["sd"] if round_ > 1 else None
    pool = _pool(work, round_, target, text, generated)
    hot = _draft_vocabulary(config, text, pool) if old is None else old["d2t"] + torch.arange(config.draft_vocab)
    draft = Draft(config)
    if old is not None:
        draft.load_state_dict(old)
    draft.d2t.copy_(hot - torch.arange(len(hot)))
    draft.t2d[hot] = True
    draft.embed_tokens.weight.data.copy_(target.model.embed_tokens.weight)  # shared with the target, frozen
    draft.embed_tokens.weight.requires_grad_(False)
    _fit(draft, target, hot, _batches(pool, text), steps, f"draft round {round_}")
    torch.save({"sd": draft.state_dict(), "cfg": asdict(config)}, work / "draft.pt")


def _pool(work, round_, target, text, generated):
    parts = [torch.load(work / "generated.pt")] if round_ > 1 else []
    docs = _by_length(document[: document.index(ASSISTANT) + 1] for document in text.docstrings)
    copies = _by_length(text.copying.prompt(random) for _ in range(6000))
    for n in range(generated):
        if n % 3 == 0:
            length = random.choice([12, 20, 32])
            prompts = torch.stack([text.licence_window(length) for _ in range(64)])
        else:
            source = docs if n % 3 == 1 else copies
            length = random.choices(list(source), [len(v) for v in source.values()])[0]
            prompts = torch.tensor([random.choice(source[length]) for _ in range(64)])
        parts.append(_continue(target, prompts))
        print(f"draft round {round_}: target continued batch {n + 1}/{generated}", flush=True)
    pool = torch.cat(parts)
    torch.save(pool, work / "generated.pt")
    return pool


def _by_length(prompts):
    """Prompts of equal length can be continued as one batch; lengths with fewer than 32 are left out."""
    found = {}
    for ids in prompts:
        found.setdefault(len(ids), []).append(ids)
    return {length: group for length, group in found.items() if len(group) >= 32}


@torch.no_grad()
def _continue(target, prompts):
    greedy = (torch.arange(len(prompts)) < len(prompts) // 2)[:, None]
    cache, sequence, current = [[] for _ in range(target.c.layers)], [prompts], prompts
    for _ in range(LENGTH + 1 - prompts.shape[1]):
        logits = target(current, cache=cache)[:, -1]
        sampled = torch.multinomial(torch.softmax(logits / 0.8, -1), 1)
        current = torch.where(greedy, logits.argmax(-1, keepdim=True), sampled)
        sequence.append(current)
    return torch.cat(sequence, 1)


def _draft_vocabulary(config, text, pool):
    """The ids said most often in the pool and the text, ascending [draft_vocab]."""
    counts = Counter(pool.flatten().tolist())
    counts += Counter(text.copy_window(200_000).tolist())
    counts += Counter(i for document in text.licences + text.docstrings for i in document)
    hot = sorted(i for i, _ in counts.most_common(config.draft_vocab))
    covered = sum(counts[i] for i in hot) / sum(counts.values())
    print(f"draft vocabulary: {len(hot)} ids cover {covered:.4f} of the text", flush=True)
    return torch.tensor(hot)


def _batches(pool, text):
    """Endless batches: five rows of continuations, one of licences, one of docstrings, one of copying."""
    order = []
    while True:
        rows = []
        for _ in range(ROWS - 3):
            order = order or random.sample(range(len(pool)), len(pool))
            rows.append(pool[order.pop()])
        rows += [draw(LENGTH + 1) for draw in (text.licence_window, text.docstring_window, text.copy_window)]
        yield torch.stack(rows)


def _fit(draft, target, hot, batches, steps, name):
    trained = [(n, p) for n, p in draft.named_parameters() if p.requires_grad]
    matrices = [p for n, p in trained if p.dim() == 2 and "lm_head" not in n]
    rest = [p for _, p in trained if not any(p is m for m in matrices)]
    muon = Muon(matrices)
    adam = torch.optim.AdamW(rest, ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    layers = default_aux(target.c.layers)
    started, smooth = time.process_time(), None
    for step in range(steps):
        share = rate(step, steps)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * share
        loss, right = _loss(draft, target, hot, next(batches), layers)
        loss.backward()
        muon.step(MUON_RATE * share)
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        adam.step()
        adam.zero_grad()
        smooth = right if smooth is None else 0.95 * smooth + 0.05 * right
        if step % 50 == 0 or step == steps - 1:
            agreed = " ".join(f"{v:.2f}" for v in smooth.tolist())
            cpu = time.process_time() - started
            print(f"{name}: step {step}/{steps}, loss {loss.item():.3f}, agrees {agreed}, {cpu:.0f} CPU-s", flush=True)


def _loss(draft, target, hot, batch, layers):
    """The loss, and the share of positions where draft and target agree per self-fed step [DEPTH]."""
    with torch.no_grad():
        logits, aux, _ = target(batch, aux=layers)
        features = torch.cat([aux[i] for i in layers], -1)[:, :-1]
        known = draft.t2d[logits.argmax(-1)]
        wanted = torch.softmax(logits[..., hot], -1)
    outputs = draft.ttt(batch[:, 1:], draft.fc(features), DEPTH)
    loss, right = 0, []
    for j, out in enumerate(outputs):
        out = out[:, : batch.shape[1] - 1 - j]
        mask = known[:, 1 + j :].float()
        entropy = -(wanted[:, 1 + j :] * F.log_softmax(out, -1)).sum(-1)
        loss = loss + 0.8**j * (entropy * mask).sum() / mask.sum()
        right.append((hot[out.argmax(-1)] == logits[:, 1 + j :].argmax(-1)).float().mean().detach())
    return loss, torch.stack(right)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("round", type=int, choices=ROUNDS)
    parser.add_argument("--work", type=Path, required=True, help="folder that the stages before wrote")
    parser.add_argument("--steps", type=int, default=STEPS, help="fewer steps, to try the script out")
    parser.add_argument("--generated", type=int, default=GENERATED, help="batches of continuations to add")
    options = parser.parse_args()
    train(options.work, options.round, options.steps, options.generated)
