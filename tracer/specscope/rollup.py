"""Rollups: step-level counts of **all** requests at every detail level, which timelines and alerts read.

Counts are cut at UTC 10-second boundaries and sent every second as increments keyed (process, seq), each
applied exactly once. A row counts one slice of one dimension; rows with ``position`` -1 count steps, rows
with position d >= 0 count drafts at depth d + 1. Frozen as wire version 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Final, cast

from specscope import columns

BUCKET_S: Final = 10
STEP: Final = -1
"""The ``position`` of rows that count steps."""

ALL: Final = "all"
CONTEXT: Final = "context"
ROW: Final = "row"
BATCH: Final = "batch"
CACHED: Final = "cached"
TEMPERATURE: Final = "temperature"
MODE: Final = "mode"
COPY_LIKE: Final = "copy_like"
DIMENSIONS: Final = (ALL, CONTEXT, ROW, BATCH, MODE, CACHED, TEMPERATURE, COPY_LIKE)
POSITION_DIMENSIONS: Final = (ALL, CONTEXT)
"""Dimensions that are also counted by position."""


@dataclass(slots=True)
class Counts:
    """Sums over steps. At a position only ``steps`` (drafted there) and ``accepted`` are counted."""

    steps: int = 0
    drafted_depth: int = 0
    drafted_nodes: int = 0
    accepted: int = 0
    bonus: int = 0
    committed: int = 0
    zero_steps: int = 0
    undrafted_steps: int = 0

    def add(self, other: Counts) -> None:
        """Add ``other`` to these sums."""
        # Field by field: a loop over names takes four times as long, and this runs for every slice.
        self.steps += other.steps
        self.drafted_depth += other.drafted_depth
        self.drafted_nodes += other.drafted_nodes
        self.accepted += other.accepted
        self.bonus += other.bonus
        self.committed += other.committed
        self.zero_steps += other.zero_steps
        self.undrafted_steps += other.undrafted_steps


COUNT_FIELDS: Final = tuple(f.name for f in fields(Counts))
ROLLUP_COLUMNS: Final = ("dimension", "slice", "position", *COUNT_FIELDS)
Key = tuple[str, str, int]
"""(dimension, slice, position)."""


@dataclass(slots=True)
class StepFacts:
    """What the rollup needs of one verify step of one request. ``None``: not known, then not sliced by.

    Not frozen, though nobody changes one: one is made a sequence-step, see :mod:`specscope.records`.
    """

    drafted_depth: int
    drafted_nodes: int
    accepted: int
    bonus: int
    committed: int
    context: int
    row: int
    batch_size: int
    mode: str
    cached_tokens: int | None = None
    temperature: float | None = None
    copy_like: bool | None = None


def bucket_start(wall_ns: int) -> int:
    """Return the start of the UTC 10-second bucket of a wall time, in unix seconds."""
    return wall_ns // 1_000_000_000 // BUCKET_S * BUCKET_S


_POWERS: Final = ("0", "1", *(f"{1 << bits}-{(2 << bits) - 1}" for bits in range(1, 64)))


def power_slice(value: int) -> str:
    """Return the power-of-two slice of a count: ``0``, ``1``, ``2-3``, ``4-7``, ... (zero-padded by use)."""
    return _POWERS[max(value, 0).bit_length()]


def temperature_slice(value: float) -> str:
    """Return ``0`` (greedy), ``<=0.5``, ``<=1`` or ``>1``."""
    if value <= 0:
        return "0"
    return "<=0.5" if value <= 0.5 else "<=1" if value <= 1 else ">1"


_Kind = tuple[str, str, str, str, str | None, str | None, str | None, int, int, int, int, int]
"""A step's slices and numbers: steps of one kind count alike in every row."""


class Rollup:
    """Increments of one process since the last :meth:`take`, by bucket.

    A step in a rollup is one increment of the count of its *kind*; kinds are spread over dimensions and
    positions once, when they are taken, because a second has many steps but few kinds of them.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._buckets: dict[int, dict[_Kind, int]] = {}

    def add(self, wall_ns: int, step: StepFacts) -> None:
        """Count one verify step.

        A position counts as drafted when the draft reached that depth; undrafted is unobserved, never
        rejected. A step that drafted nothing is ``undrafted`` and neither zero-accept nor accepted.
        """
        kind = (
            power_slice(step.context),
            power_slice(step.row),
            power_slice(step.batch_size),
            step.mode,
            None if step.cached_tokens is None else "hit" if step.cached_tokens > 0 else "miss",
            None if step.temperature is None else temperature_slice(step.temperature),
            None if step.copy_like is None else "yes" if step.copy_like else "no",
            step.drafted_depth,
            step.drafted_nodes,
            step.accepted,
            step.bonus,
            step.committed,
        )
        kinds = self._buckets.setdefault(bucket_start(wall_ns), {})
        kinds[kind] = kinds.get(kind, 0) + 1

    def take(self) -> list[tuple[int, dict[Key, Counts]]]:
        """Return (bucket start in unix seconds, rows) of everything since the last call, oldest first."""
        taken, self._buckets = sorted(self._buckets.items()), {}
        return [(bucket, _spread(kinds)) for bucket, kinds in taken]


def _spread(kinds: Mapping[_Kind, int]) -> dict[Key, Counts]:
    """Return the rows of one bucket: each kind in every slice it belongs to, times its steps."""
    rows: dict[Key, Counts] = {}
    for kind, times in kinds.items():
        *values, depth, nodes, accepted, bonus, committed = kind
        for dimension, value in zip(DIMENSIONS, ("", *values), strict=True):
            if value is None:
                continue
            total = rows.setdefault((dimension, str(value), STEP), Counts())
            total.steps += times
            total.drafted_depth += depth * times
            total.drafted_nodes += nodes * times
            total.accepted += accepted * times
            total.bonus += bonus * times
            total.committed += committed * times
            total.zero_steps += times * (depth > 0 and accepted == 0)
            total.undrafted_steps += times * (depth <= 0)
            if dimension in POSITION_DIMENSIONS:
                for position in range(depth):
                    at = rows.setdefault((dimension, str(value), position), Counts())
                    at.steps += times
                    at.accepted += times * (accepted > position)
    return rows


def pack(rows: dict[Key, Counts], *, codec: int | None = None) -> bytes:
    """Pack the rows of one bucket for the wire; ``codec`` as in :func:`specscope.columns.encode`."""
    keys = sorted(rows)
    counts = [astuple(rows[key]) for key in keys]
    packed: dict[str, columns.Column] = {
        "dimension": [k[0] for k in keys],
        "slice": [k[1] for k in keys],
        "position": [k[2] for k in keys],
    }
    for index, name in enumerate(COUNT_FIELDS):
        packed[name] = [row[index] for row in counts]
    return columns.encode(packed, codec=codec)


MAX_ROWS: Final = 4096
"""Rows of one record; a second of a busy process has some hundreds."""


def unpack(blob: bytes, *, max_raw: int = columns.MAX_RAW) -> dict[Key, Counts]:
    """Return the rows of a packed rollup. Unknown columns are ignored, so that new ones may be added.

    Raises:
        CodecError: the blob is damaged, a column is missing, a value absent or negative, a key doubled, or
            its raw body is larger than ``max_raw`` bytes, or it has more than :data:`MAX_ROWS` rows.
    """
    decoded = columns.decode(blob, max_raw=max_raw, max_rows=MAX_ROWS)
    missing = [name for name in ROLLUP_COLUMNS if name not in decoded]
    if missing:
        raise columns.CodecError(f"rollup lacks the columns {missing}")
    rows: dict[Key, Counts] = {}
    for values in _rows(decoded):
        dimension, value, position, *numbers = values
        key = (dimension, value, position)
        if not (isinstance(dimension, str) and isinstance(value, str) and isinstance(position, int)):
            raise columns.CodecError(f"rollup key {key!r} is not (text, text, integer)")
        if key in rows or position < STEP:
            raise columns.CodecError(f"rollup key {key!r} is doubled or out of range")
        if not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise columns.CodecError(f"rollup counts of {key!r} must be integers >= 0")
        rows[dimension, value, position] = Counts(*cast("list[int]", numbers))
    return rows


def _rows(decoded: columns.Decoded) -> Iterable[tuple[object, ...]]:
    return zip(*(cast("list[object]", decoded[name]) for name in ROLLUP_COLUMNS), strict=True)
