"""What both trainers share: the text they draw batches from, and the Muon step."""

import json

import torch
from tokenizers import Tokenizer

from copydata import Copying


class Text:
    """The corpus in `work` as endless streams; every draw comes from `rng`."""

    def __init__(self, work, rng):
        tokens = json.loads((work / "tokens.json").read_text(encoding="utf-8"))
        self.rng = rng
        self.licences, self.docstrings, self.held_out = (tokens[k] for k in ("licence", "docstring", "held_out"))
        self.licence = torch.tensor([i for document in self.licences for i in document])
        self.copying = Copying(Tokenizer.from_file(str(work / "tokenizer.json")))
        self._docstrings, self._copies = self._shuffled(), self.copying.stream(rng)

    def _shuffled(self):
        while True:
            order = list(range(len(self.docstrings)))
            self.rng.shuffle(order)
            for i in order:
                yield from self.docstrings[i]

    def licence_window(self, length):
        i = self.rng.randrange(len(self.licence) - length)
        return self.licence[i : i + length]

    def docstring_window(self, length):
        return torch.tensor([next(self._docstrings) for _ in range(length)])

    def copy_window(self, length):
        return torch.tensor([next(self._copies) for _ in range(length)])


def rate(step, steps):
    """Share of the full learning rate: 30 steps of warm-up, flat to the half, then falling to 2 %."""
    return min(1, (step + 1) / 30) * (1 if step < 0.5 * steps else max(0.02, (steps - step) / (0.5 * steps)))


class Muon:
    """Momentum orthogonalised by a quintic Newton-Schulz iteration, for matrices of equal shape at once.

    Method and coefficients: Keller Jordan, "Muon: an optimizer for hidden layers in
    neural networks" (2024).
    """

    def __init__(self, matrices, momentum=0.95, decay=0.02):
        self.momentum, self.decay = momentum, decay
        self.groups = {}
        for p in matrices:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.buffers = {shape: torch.zeros(len(group), *shape) for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, lr):
        for shape, group in self.groups.items():
            gradient, buffer = torch.stack([p.grad for p in group]), self.buffers[shape]
            buffer.mul_(self.momentum).add_(gradient)
            update = orthogonal(gradient.add(buffer, alpha=self.momentum)) * max(1, shape[0] / shape[1]) ** 0.5
            for p, u in zip(group, update, strict=True):
                p.mul_(1 - lr * self.decay).add_(u, alpha=-lr)
                p.grad = None


def orthogonal(x):
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * 1.01 + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.mT if tall else x
