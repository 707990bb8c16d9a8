"""View model of whether speculation pays: by batch size, with the formula, and what that does not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specscope.rollup import power_slice

from specscope_server.diagnosis import Evidence, facts, pays_off
from specscope_server.diagnosis.pays_off import AtBatch

BOUND: Final = (
    "At most: no plain decode pass was timed. The target's forward over the drafts computes at least what a"
    " plain pass does, so its time stands for that of one."
)
UNSEEN: Final = (
    "Not seen: prefill and queueing, the memory that the draft takes from the KV cache and the batch that"
    " would fit without it, other context lengths, and batch sizes that the engine would choose without a"
    " draft."
    " Times are the host's, from the begin of a pass to the begin of the next on the same requests."
)


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One slice of the batch with what its speed-up is made of; times in ms."""

    batch: str
    steps: int
    length: float
    plain_ms: float
    step_ms: float
    speedup: str
    tone: str
    plain_of: str


@dataclass(frozen=True, slots=True)
class Speedup:
    """The answer in few words, and its parts; ``none`` says why it is not measured."""

    tone: str
    words: str
    more: str = ""
    lines: tuple[BatchLine, ...] = ()
    none: str = ""
    bound: str = ""
    span: str = ""
    unseen: str = UNSEEN


def build(evidence: Evidence | None) -> Speedup:
    """Return whether speculation pays on an engine."""
    if evidence is None:
        return Speedup("off", "not measured", none="Not measured: no evidence of this engine is stored.")
    if evidence.speculation is False:
        return Speedup(
            "off", "not measured", none="Not measured: the engine is set to serve without a draft."
        )
    told = pays_off.assess(evidence)
    if isinstance(told, str):
        return Speedup("off", "not measured", none=f"Not measured: {told}.")
    tone = "warn" if told.speedup < pays_off.MARGIN else "off" if told.bound else "ok"
    words, _, more = told.words.partition(": ")
    return Speedup(
        tone,
        words,
        more,
        tuple(_line(one) for one in sorted(told.batches, key=lambda one: one.batch_size)),
        bound=BOUND if told.bound else "",
        span=facts.window_text(evidence),
    )


def _line(one: AtBatch) -> BatchLine:
    return BatchLine(
        power_slice(one.batch_size),
        one.steps,
        one.length,
        one.plain_ms,
        one.step_ms,
        f"{'≤ ' if one.bound else ''}{one.speedup:.2f} ×",
        "warn" if one.speedup < pays_off.MARGIN else "",
        one.plain_of,
    )
