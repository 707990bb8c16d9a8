"""Requests that tell their tokens: chains and trees, text of several scripts, hostile tokens, long ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from random import Random

from specscope.chunks import MAX_STEPS, StepRow
from specscope_server.store.model import TokenizerRow
from specscope_server.store.port import Store
from specscope_server.store.told import Chunk, RequestTotals
from specscope_server.tokens import tokenizer_file
from storekit import facts
from storekit.tokenizers import HOSTILE, byte_level, library

WORDS = (
    " the",
    " draft",
    " model",
    " says",
    " token",
    " target",
    " return",
    "def",
    "ing",
    " of",
    "\n",
    " 🗼",
)
FILE = byte_level(*WORDS, *HOSTILE)
TEXT = "def draft(the, target):\n\treturn the model 🗼 says 東京\n\n of the token drafting naïve\n"
DEPTH = 4
TREE = [-1, -1, -1, 0, 0, 1, 3, 3, 6, 6, -2]
"""Parents of a draft: three first ones, a path of four, and one that hangs on nothing."""


def ids(text: str) -> list[int]:
    """Return the ids of a text: words where one fits, else bytes."""
    tokenizer = library.Tokenizer.from_buffer(FILE)
    level = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found: list[int] = []
    while text:
        word = next((one for one in WORDS if text.startswith(one) and "🗼" not in one), text[0])
        pieces = "".join(piece for piece, _ in level.pre_tokenize_str(word))
        whole = tokenizer.token_to_id(pieces)
        found += [whole] if whole is not None else [tokenizer.token_to_id(piece) for piece in pieces]
        text = text[len(word) :]
    return found


def chain(index: int, at: int, output: Sequence[int], accepted: int, random: Random) -> StepRow:
    """Return a step whose draft of four agrees with the output as far as ``accepted``."""
    wrong = [random.randrange(97, 122) for _ in range(DEPTH - accepted)]
    sure = {} if index % 2 else {"draft_top1": [9500 - 900 * depth for depth in range(DEPTH)]}
    if sure and accepted < DEPTH:
        sure |= {"target_rank": 1 + index % 5, "target_prob": 0.0625, "draft_prob": 0.03125}
        sure |= {"outside_draft_vocab": int(index % 10 == 0)}
    return facts.step(
        index,
        t=at,
        drafted_depth=DEPTH,
        drafted_nodes=DEPTH,
        accepted=accepted,
        committed=accepted + 1,
        draft_tokens=[*output[:accepted], *wrong],
        parents=list(range(-1, DEPTH - 1)),
        accepted_path=list(range(accepted)),
        output_ids=list(output),
        root=output[0] if index == 0 else None,
        **sure,
    )


def request(store: Store, uid: str, steps: Sequence[StepRow], now: datetime, instance: str = "told") -> None:
    """Store a finished request of these steps, at detail level ``tokens``."""
    at = facts.to_ns(now) - 60 * facts.SECOND
    totals = RequestTotals(
        verify_steps=len(steps),
        drafted_depth=sum(step.drafted_depth for step in steps),
        drafted_nodes=sum(step.drafted_nodes for step in steps),
        accepted=sum(step.accepted for step in steps),
        bonus=len(steps),
        committed=sum(step.committed for step in steps),
        zero_accept_steps=sum(not step.accepted for step in steps),
        prefill_passes=1,
    )
    told: list[Chunk] = []
    for seq, first in enumerate(range(0, len(steps), MAX_STEPS)):
        part = steps[first : first + MAX_STEPS]
        told.append(facts.chunk(uid, seq, part, start_ns=part[0].t, end_ns=part[-1].t))
    config = {"tokenizers": {"target": {"hash": hash_of(instance)}}}
    start = at - 60 * facts.SECOND
    store.write(
        [
            facts.batch(
                replace(facts.REPORT, event_ns=start, config=config),
                facts.request(uid, rid=f"rid {uid}", arrival_ns=at, end_ns=at + facts.SECOND, totals=totals),
                *told,
                detail="tokens",
                instance=instance,
                service_name=instance,
                start_ns=start,
            )
        ],
        now,
    )


def hash_of(instance: str) -> str:
    """Return the hash that an engine tells: that of :data:`FILE`, but for one called so."""
    return "0123456789abcdef" if instance == "not-registered" else tokenizer_file.read(FILE).hash


def tell(store: Store, now: datetime, long_steps: int = 1000) -> None:
    """Write ``text``, ``hostile``, ``tree``, ``ids`` and ``long``, and register the tokenizer."""
    read = tokenizer_file.read(FILE)
    row = TokenizerRow(read.hash, now, "tiny <b>words</b>", read.vocabulary.tokens, len(FILE))
    store.add_tokenizer("default", row, read.vocabulary.pack())
    request(store, "text", told(ids(TEXT * 3), now), now)
    # One of the words, the line break, is a byte of its own.
    first = 255 + len(WORDS)
    harm = [256, *range(first, first + len(HOSTILE) + 1), 256, 999_999, 257] * 2
    request(store, "hostile", told(harm, now), now)
    request(store, "tree", trees(now), now)
    request(store, "ids", told(ids(TEXT), now), now, "not-registered")
    request(store, "long", told(ids(TEXT) * (long_steps // 10), now)[:long_steps], now)


def told(output: Sequence[int], now: datetime) -> list[StepRow]:
    """Return steps of chains that commit these ids."""
    random, at, rest, steps = Random(7), facts.to_ns(now) - 50 * facts.SECOND, list(output), list[StepRow]()
    while rest:
        accepted = min(random.choice((0, 1, 1, 2, 3, 4)), len(rest) - 1)
        part, rest = rest[: accepted + 1], rest[accepted + 1 :]
        steps.append(chain(len(steps), at + len(steps) * 1000, part, accepted, random))
    return steps


def trees(now: datetime) -> list[StepRow]:
    """Return three steps that drafted trees: one accepted to its end, one in part, one not at all."""
    at, words = facts.to_ns(now) - 50 * facts.SECOND, [256 + place for place in range(len(WORDS))]
    found: list[StepRow] = []
    for index, path in enumerate(([0, 3, 6, 8], [0, 4], [])):
        drafts = words[: len(TREE)]
        found.append(
            facts.step(
                index,
                t=at + index * 1000,
                drafted_depth=4,
                drafted_nodes=len(TREE),
                accepted=len(path),
                committed=len(path) + 1,
                draft_tokens=drafts,
                parents=TREE,
                accepted_path=path,
                output_ids=[*(drafts[one] for one in path), 256],
                root=257 if index == 0 else None,
                draft_top1=[8000, 6000, 4000, 2000] if index else None,
                target_rank=2 if index else None,
                target_prob=0.125 if index else None,
            )
        )
    return found
