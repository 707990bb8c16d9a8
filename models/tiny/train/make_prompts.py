"""Writes prompts of all three domains with the answers an engine must give.

Each entry of the JSON list:

    id         name, unique in the file
    domain     licence | docstring | copy
    text       the prompt as a person would type it (licence: raw text; the others: the user's turn)
    prompt     its token ids as the engine gets them
    reference  the target's own greedy continuation [48 ids], end of sequence ignored
    accepted   draft tokens accepted in each verify step of an EAGLE-3 chain, 4 deep, greedy, float32

References come from the pure-torch loop in spec.py. Docstring signatures are ones the
training held out. Deterministic for the same pair, licences and Python.
"""

import argparse
import json
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer

from copydata import Copying
from corpus import ASSISTANT, BOS, LICENCES, USER, docstrings, held_out, licence_paragraphs, stdlib_folder
from spec import Spec, load, plain

PAIR = Path(__file__).resolve().parent.parent
PER_DOMAIN = 20
NEW_TOKENS = 48
LICENCE_IDS = 24
SEED = 11


def make(pair, licences, stdlib, per_domain):
    """The list of entries, without references: domains in turn, so that any head of the list has all three."""
    tokenizer = Tokenizer.from_file(str(pair / "target" / "tokenizer.json"))
    rng, copying = random.Random(SEED), Copying(tokenizer)

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    parts = [part for _, texts in licence_paragraphs(licences) for part in texts]
    parts = sorted({part for part in parts if len(encode(part)) > LICENCE_IDS + NEW_TOKENS})
    unseen = sorted({signature for signature, _ in docstrings(stdlib) if held_out(signature)})
    if len(parts) < per_domain or len(unseen) < per_domain:
        raise SystemExit(f"make_prompts: too little text in {licences} or {stdlib} for {per_domain} prompts a domain")
    openings = [tokenizer.decode(encode(part)[:LICENCE_IDS]) for part in rng.sample(parts, per_domain)]
    made = []
    for n, (opening, signature) in enumerate(zip(openings, rng.sample(unseen, per_domain), strict=True)):
        repeat = copying.prompt(rng)
        made += [
            ("licence", n, opening, [BOS, *encode(opening)]),
            ("docstring", n, signature, [BOS, USER, *encode(signature), ASSISTANT]),
            ("copy", n, tokenizer.decode(repeat), repeat),
        ]
    return [{"id": f"{d}-{n:02d}", "domain": d, "text": text, "prompt": ids} for d, n, text, ids in made]


def answer(pair, entries):
    """Add `reference` and `accepted` to each entry."""
    torch.set_num_threads(1)
    config, target, draft = load(str(pair / "target"), str(pair / "draft"))
    loop = Spec(config, target, draft, 4)
    for entry in entries:
        _, accepted, _ = loop.generate(entry["prompt"], NEW_TOKENS, eos=-1)
        entry.update(reference=plain(target, entry["prompt"], NEW_TOKENS, eos=-1), accepted=accepted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", type=Path, default=PAIR, help="folder with target/ and draft/ (default: the shipped pair)")
    parser.add_argument("--out", type=Path, help="file to write (default: prompts.json beside the pair)")
    parser.add_argument("--per-domain", type=int, default=PER_DOMAIN, help="prompts of each domain")
    parser.add_argument("--licences", type=Path, default=LICENCES, help="folder of licence texts")
    parser.add_argument("--stdlib", type=Path, default=stdlib_folder(), help="folder of Python sources")
    options = parser.parse_args()
    entries = make(options.pair, options.licences, options.stdlib, options.per_domain)
    answer(options.pair, entries)
    out = options.out or options.pair / "prompts.json"
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    steps = [a for entry in entries for a in entry["accepted"]]
    print(f"{len(entries)} prompts, acceptance length {1 + sum(steps) / len(steps):.4f} over {len(steps)} verify steps")
    for domain in ("licence", "docstring", "copy"):
        own = [a for entry in entries if entry["domain"] == domain for a in entry["accepted"]]
        print(f"  {domain}: {1 + sum(own) / len(own):.4f}")


if __name__ == "__main__":
    main()
