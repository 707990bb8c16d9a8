"""Stages 2 and 3: the target, first on licence text and docstrings, then with the copy task mixed in.

Writes `target.pt` in the work folder. Stage *copy* goes on from the `target.pt` of stage *text*.
"""

import argparse
import random
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F

from tinylm import Cfg, Target
from training import Muon, Text, rate

STEPS = {"text": 1400, "copy": 450}
COPY_SHARE = {"text": 0.0, "copy": 0.4}
LICENCE_SHARE = 0.6
"""Of the windows that are no copy task."""
ROWS, LENGTH = 8, 256
ADAM_RATE, MUON_RATE = 4e-3, 0.02


def train(work, stage, steps=None, compiled=False):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    steps = STEPS[stage] if steps is None else steps
    config = Cfg(inter=256, draft_vocab=640)
    model = Target(config)
    if stage == "copy":
        model.load_state_dict(torch.load(work / "target.pt")["sd"])
    text = Text(work, random)

    def row():
        if random.random() < COPY_SHARE[stage]:
            return text.copy_window(LENGTH + 1)
        draw = text.licence_window if random.random() < LICENCE_SHARE else text.docstring_window
        return draw(LENGTH + 1)

    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "layers" in n]
    rest = [p for p in model.parameters() if not any(p is m for m in matrices)]
    muon = Muon(matrices)
    adam = torch.optim.AdamW(rest, ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    forward = torch.compile(model) if compiled else model
    started, smooth = time.process_time(), None
    for step in range(steps):
        share = rate(step, steps)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * share
        batch = torch.stack([row() for _ in range(ROWS)])
        # float32: on processors without bfloat16 instructions autocast makes a step seven times slower.
        logits = forward(batch[:, :-1])
        loss = F.cross_entropy(logits.view(-1, config.vocab), batch[:, 1:].reshape(-1))
        loss.backward()
        muon.step(MUON_RATE * share)
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        adam.step()
        adam.zero_grad()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if step % 50 == 0 or step == steps - 1:
            cpu = time.process_time() - started
            print(f"target {stage}: step {step}/{steps}, loss {smooth:.3f}, {cpu:.0f} CPU-s", flush=True)
    model.eval()
    _report(model, text)
    torch.save({"sd": model.state_dict(), "cfg": asdict(config)}, work / "target.pt")


@torch.no_grad()
def _report(model, text):
    """Print loss and greedy accuracy per domain; docstrings are the held-out ones."""
    width = LENGTH + 1
    unseen = torch.tensor([i for document in text.held_out for i in document])
    samples = {
        "licence": text.licence[: len(text.licence) // width * width].view(-1, width)[::8][:32],
        "held-out docstring": unseen[: len(unseen) // width * width].view(-1, width)[:32],
        "copy": torch.stack([text.copy_window(width) for _ in range(16)]),
    }
    for name, x in samples.items():
        logits = model(x[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), x[:, 1:].reshape(-1)).item()
        right = (logits.argmax(-1) == x[:, 1:]).float().mean().item()
        print(f"  {name}: loss {loss:.3f}, next token right {right:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=list(STEPS))
    parser.add_argument("--work", type=Path, required=True, help="folder that stage 1 wrote")
    parser.add_argument("--steps", type=int, help="fewer steps, to try the script out")
    parser.add_argument("--compile", action="store_true", help="use torch.compile (needs a C++ compiler)")
    options = parser.parse_args()
    train(options.work, options.stage, options.steps, options.compile)
