"""The third domain: copying, which only the draft's own attention over the prompt can predict.

    <bos><user>Repeat: w1 w2 ...<assistant> w1 w2 ...<eos>
"""

import re

from corpus import ASSISTANT, BOS, EOS, USER


class Copying:
    """Makes copy tasks over the words that are one token each with a leading space."""

    def __init__(self, tokenizer):
        self._encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        self.words = sorted(t[1:] for t in tokenizer.get_vocab() if re.fullmatch("\u0120[a-z]{3,10}", t))

    def item(self, rng):
        """Token ids of one task of 4 to 20 words drawn with `rng`."""
        text = " " + " ".join(rng.choice(self.words) for _ in range(rng.randint(4, 20)))
        return [BOS, USER, *self._encode("Repeat:" + text), ASSISTANT, *self._encode(text), EOS]

    def prompt(self, rng):
        """The same without its answer."""
        ids = self.item(rng)
        return ids[: ids.index(ASSISTANT) + 1]

    def stream(self, rng):
        while True:
            yield from self.item(rng)
