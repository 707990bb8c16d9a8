"""The packed payloads of one request: its verify steps, its draft extends and its boundary counts.

The exporter packs them, the server unpacks them; the column names below are part of wire version 1.
A column that no row has a value for is left out, so that a detail level costs only what it carries;
unknown columns are ignored on reading, so that new ones may be added.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, cast

from specscope import columns, hidden, packed_rows
from specscope.packed_rows import MAX_RAW
from specscope.records import Crossing, Expectation

MAX_STEPS: Final = 64
"""Verify steps in one chunk."""
MAX_EXTENDS: Final = 128
"""Draft extends in one chunk: a step has one, a prefill pass one more."""
MAX_BOUNDARIES: Final = 1024
"""Rows of the boundary counts of one request; 8 boundaries by source and mode are under a hundred."""
SHIFTS: Final = (-2, -1, 0, 1, 2)
"""Offsets of ``shift_hits`` and ``shift_of``: a draft for position p is compared with position p + offset."""


@dataclass(slots=True)
class StepRow:
    """One verify step of one request. ``None``: not recorded, or not at this detail level.

    ``step`` is the engine's step number, ``t`` wall clock ns, ``overshoot`` 1 for a step that ran after the
    request had ended (it is in no total). The ``ids_*`` facts are taken over the drafted nodes before any
    redaction: ``ids_mode_share`` the share of the most frequent id, ``ids_even_share`` that of even ids,
    ``ids_above_vocab`` how many are >= the target's vocabulary, ``ids_repeats_last`` 1 when the first
    draft equals the last token of the context. ``shift_hits`` and ``shift_of`` have one entry an offset
    of :data:`SHIFTS`: at how many depths a draft of that depth equals the token that the target committed
    that many places away, and at how many depths that token is known. ``copy_like`` is 1 when the last
    two tokens of the context stand earlier in its last 4096. Lists of ids and of the tree as in
    :class:`specscope.records.VerifyStep`.

    ``draft_top1`` and ``draft_entropy`` have one entry a drafted position, from position 1: the draft's
    probability of its favourite in 1/10000 and the entropy in 1/1000 nat, -1 where not known, on the best
    branch of a tree. ``target_rank`` is how many tokens the target rated above the first draft it refused,
    ``target_prob`` its probability of it, ``draft_prob`` the draft's of the token that the target chose
    there. ``root`` is the last token of the context where no step before tells it: it came from a prefill.
    ``outside_draft_vocab`` is 1 when that token is none the draft can propose: no draft could have
    been accepted there. ``accepted_free`` is ``accepted`` as it were without a grammar.
    """

    step: int
    t: int
    mode: str
    batch_size: int
    row: int
    context: int
    drafted_depth: int
    drafted_nodes: int
    accepted: int
    bonus: int
    committed: int
    overshoot: int
    weight_version: int
    copy_like: int | None = None
    ids_min: int | None = None
    ids_max: int | None = None
    ids_distinct: int | None = None
    ids_mode_share: float | None = None
    ids_even_share: float | None = None
    ids_below_zero: int | None = None
    ids_above_vocab: int | None = None
    ids_repeats_last: int | None = None
    shift_hits: list[int] | None = None
    shift_of: list[int] | None = None
    draft_top1: list[int] | None = None
    draft_entropy: list[int] | None = None
    target_rank: int | None = None
    target_prob: float | None = None
    draft_prob: float | None = None
    outside_draft_vocab: int | None = None
    accepted_free: int | None = None
    draft_tokens: list[int] | None = None
    parents: list[int] | None = None
    accepted_path: list[int] | None = None
    output_ids: list[int] | None = None
    root: int | None = None


@dataclass(slots=True)
class ExtendRow:
    """One draft extend of one request, fields as in :class:`specscope.records.DraftExtend`.

    ``t`` is wall clock ns. ``rows`` to ``zero_rows`` tell of the hidden states that the draft was fed, over
    their whole width: their number, ``mean``, population ``std``, ``rms`` = sqrt(mean(x**2)) and ``max_abs``
    of the finite values, how many are not finite, and the rows that are all zero.
    """

    step: int
    t: int
    after: str
    mode: str
    fed_width: int
    dtype: str
    aux_states: int | None = None
    fc_in: int | None = None
    fc_ran: int | None = None
    rows: int | None = None
    mean: float | None = None
    std: float | None = None
    rms: float | None = None
    max_abs: float | None = None
    nonfinite: int | None = None
    zero_rows: int | None = None


WIDTH_COLUMNS: Final = ("step", "after", "fed_width", "aux_states", "fc_in", "fc_ran")
"""What of a draft extend tells its width, its states and its fc, as in :class:`ExtendRow`."""
STEP_COLUMNS: Final = tuple(f.name for f in fields(StepRow))
TOKEN_COLUMNS: Final = ("draft_tokens", "parents", "accepted_path", "output_ids")
"""Columns that hold user text as ids, lists in the record too; sent from detail level ``tokens`` on, as is
``root``."""
EXTEND_COLUMNS: Final = tuple(f.name for f in fields(ExtendRow))
BOUNDARY_COLUMNS: Final = ("boundary", "source", "mode", "expected", "observed")
"""A row with ``expected`` has the empty mode; a row with ``observed`` names the mode it was seen in."""

RANK_LOOKS: Final = ("hidden", "fc_out")
RANK_COLUMNS: Final = ("step", "proposals", "accepts", *RANK_LOOKS)
"""One row a verify step of a rank; ``proposals`` and ``accepts`` are CRC-32, absent where not on the host.
``hidden`` and ``fc_out``, left out where no step has them, as in :class:`specscope.records.RankSteps`."""
RANK_SLOT: Final = 1 + hidden.PROJECTIONS
"""Numbers of a look a slot: its level and its fingerprint."""
MAX_RANK_SLOTS: Final = 64
"""Slots of a look in one step: an engine captures a few layers."""
MAX_RANK_STEPS: Final = 256
"""Verify steps in one record of a rank."""

MAX_PROMPT: Final = 65_536
"""Tokens of a prompt that is told; of a longer one none are."""

_DELTA: Final = ("step", "t", "context")
_STEP_REQUIRED: Final = STEP_COLUMNS[: STEP_COLUMNS.index("copy_like")]
_EXTEND_REQUIRED: Final = EXTEND_COLUMNS[: EXTEND_COLUMNS.index("aux_states")]


_STEP_TYPES: Final = packed_rows.types_of(StepRow)
_EXTEND_TYPES: Final = packed_rows.types_of(ExtendRow)
_WIDTH_TYPES: Final = {name: _EXTEND_TYPES[name] for name in WIDTH_COLUMNS}
_WIDTHS_REQUIRED: Final = tuple(name for name in _WIDTH_TYPES if name in _EXTEND_REQUIRED)


def pack_steps(rows: Sequence[StepRow], *, tokens: bool, codec: int | None = None) -> bytes:
    """Pack verify steps; without ``tokens`` the columns of :data:`TOKEN_COLUMNS` and ``root`` are left out.

    Raises:
        CodecError: a value does not fit its column.
    """
    names = [name for name in STEP_COLUMNS if tokens or name not in (*TOKEN_COLUMNS, "root")]
    return packed_rows.pack(rows, names, _STEP_TYPES, delta=_DELTA, codec=codec)


def unpack_steps(blob: bytes) -> list[StepRow]:
    """Return the verify steps of a chunk, in the order they ran.

    Raises:
        CodecError: the blob is damaged, a column is missing or holds values of another kind.
    """
    return [
        StepRow(**row) for row in packed_rows.unpack(blob, "steps", _STEP_TYPES, _STEP_REQUIRED, MAX_STEPS)
    ]


def step_arrays(blob: bytes, names: Container[str]) -> dict[str, columns.Array]:
    """Return columns of the verify steps of a chunk as arrays; of what is not required those with any value.

    Raises:
        CodecError: as :func:`unpack_steps`, of the columns that are read.
    """
    types = {name: kind for name, kind in _STEP_TYPES.items() if name in names}
    required = [name for name in _STEP_REQUIRED if name in names]
    return packed_rows.unpack_arrays(blob, "steps", types, required, MAX_STEPS)


def pack_extends(rows: Sequence[ExtendRow], *, codec: int | None = None) -> bytes:
    """Pack draft extends.

    Raises:
        CodecError: a value does not fit its column.
    """
    return packed_rows.pack(rows, EXTEND_COLUMNS, _EXTEND_TYPES, delta=_DELTA, codec=codec)


def unpack_extends(blob: bytes) -> list[ExtendRow]:
    """Return the draft extends of a chunk, in the order they ran.

    Raises:
        CodecError: the blob is damaged, a column is missing or holds values of another kind.
    """
    rows = packed_rows.unpack(blob, "draft extends", _EXTEND_TYPES, _EXTEND_REQUIRED, MAX_EXTENDS)
    return [ExtendRow(**row) for row in rows]


def extend_width_arrays(blob: bytes) -> dict[str, columns.Array]:
    """Return :data:`WIDTH_COLUMNS` as arrays, of what is not required those with any value.

    Raises:
        CodecError: as :func:`unpack_extends`, of the columns that are read.
    """
    return packed_rows.unpack_arrays(blob, "draft extends", _WIDTH_TYPES, _WIDTHS_REQUIRED, MAX_EXTENDS)


def pack_boundaries(
    expected: Mapping[Expectation, int], observed: Mapping[Crossing, int], *, codec: int | None = None
) -> bytes:
    """Pack the boundary counts of one request.

    Raises:
        CodecError: a count does not fit 64 bits.
    """
    rows: list[tuple[str, str, str, int | None, int | None]] = [
        (boundary, source, "", count, None) for (boundary, source), count in sorted(expected.items())
    ]
    rows += [(*key, None, count) for key, count in sorted(observed.items())]
    packed: dict[str, columns.Column] = {
        "boundary": [row[0] for row in rows],
        "source": [row[1] for row in rows],
        "mode": [row[2] for row in rows],
        "expected": [row[3] for row in rows],
        "observed": [row[4] for row in rows],
    }
    return columns.encode(packed, codec=codec)


def unpack_boundaries(blob: bytes) -> tuple[dict[Expectation, int], dict[Crossing, int]]:
    """Return (expected, observed) of one request.

    Raises:
        CodecError: the blob is damaged, a column is missing or holds values of another kind.
    """
    decoded = columns.decode(blob, max_raw=MAX_RAW, max_rows=MAX_BOUNDARIES)
    missing = [name for name in BOUNDARY_COLUMNS if name not in decoded]
    if missing:
        raise columns.CodecError(f"boundary counts lack the columns {missing}")
    expected: dict[Expectation, int] = {}
    observed: dict[Crossing, int] = {}
    for row in zip(*(cast("list[object]", decoded[name]) for name in BOUNDARY_COLUMNS), strict=True):
        boundary, source, mode, wanted, seen = row
        if not (isinstance(boundary, str) and isinstance(source, str) and isinstance(mode, str)):
            raise columns.CodecError(f"boundary row {row!r} is not (text, text, text, count, count)")
        if isinstance(wanted, int) and seen is None and wanted >= 0:
            expected[boundary, source] = wanted
        elif isinstance(seen, int) and wanted is None and seen >= 0:
            observed[boundary, source, mode] = seen
        else:
            raise columns.CodecError(f"boundary row {row!r} must have either expected or observed, >= 0")
    return expected, observed


def pack_ranks(
    steps: Sequence[int],
    proposals: Sequence[int | None],
    accepts: Sequence[int | None],
    hidden: Sequence[Sequence[int] | None] = (),
    fc_out: Sequence[Sequence[int] | None] = (),
    *,
    codec: int | None = None,
) -> bytes:
    """Pack what a rank tells, one entry a verify step; ``hidden`` and ``fc_out`` may be empty.

    Raises:
        CodecError: the lengths differ or a value does not fit 64 bits.
    """
    packed: dict[str, columns.Column] = {"step": steps, "proposals": proposals, "accepts": accepts}
    for name, looks in zip(RANK_LOOKS, (hidden, fc_out), strict=True):
        if any(one is not None for one in looks):
            packed[name] = looks
    return columns.encode(packed, delta=("step",), codec=codec)


def unpack_ranks(blob: bytes) -> list[tuple[int, int | None, int | None]]:
    """Return (engine step, checksum of the proposals, of the accepts) of each verify step of a rank.

    Raises:
        CodecError: the blob is damaged, a column is missing or holds values of another kind.
    """
    decoded = _ranks(blob)
    found: list[tuple[int, int | None, int | None]] = []
    for row in zip(*(cast("list[object]", decoded[name]) for name in RANK_COLUMNS[:3]), strict=True):
        step, proposals, accepts = row
        if not (isinstance(step, int) and step >= 0 and _sum(proposals) and _sum(accepts)):
            raise columns.CodecError(f"row {row!r} of a rank is not (step, checksum, checksum)")
        found.append((step, cast("int | None", proposals), cast("int | None", accepts)))
    return found


def unpack_rank_looks(blob: bytes, name: str) -> list[tuple[int, ...] | None]:
    """Return a column of :data:`RANK_LOOKS` of each verify step, in the order of :func:`unpack_ranks`.

    Raises:
        CodecError: the blob is damaged, a column is missing, or that one holds anything but lists of
            :data:`RANK_SLOT` whole numbers a slot, at most :data:`MAX_RANK_SLOTS` slots.
    """
    decoded = _ranks(blob)
    found: list[tuple[int, ...] | None] = []
    for value in cast("list[object]", decoded.get(name, [None] * len(decoded["step"]))):
        if value is None:
            found.append(None)
            continue
        if not isinstance(value, list):
            raise columns.CodecError(f"hidden states of a rank hold {value!r}, a list wanted")
        numbers = tuple(cast("list[int]", value))
        if len(numbers) % RANK_SLOT or not 0 < len(numbers) <= RANK_SLOT * MAX_RANK_SLOTS:
            raise columns.CodecError(f"hidden states of a rank hold {len(numbers)} numbers in one step")
        found.append(numbers)
    return found


def _ranks(blob: bytes) -> columns.Decoded:
    decoded = columns.decode(blob, max_raw=MAX_RAW, max_rows=MAX_RANK_STEPS)
    missing = [name for name in RANK_COLUMNS[:3] if name not in decoded]
    if missing:
        raise columns.CodecError(f"steps of a rank lack the columns {missing}")
    return decoded


def pack_prompt(ids: Sequence[int], *, codec: int | None = None) -> bytes:
    """Pack the token ids of a whole prompt.

    Raises:
        CodecError: an id does not fit 64 bits.
    """
    return columns.encode({"id": ids}, codec=codec)


def unpack_prompt(blob: bytes) -> list[int]:
    """Return the token ids of a whole prompt, at most :data:`MAX_PROMPT`.

    Raises:
        CodecError: the blob is damaged or too long, its column is missing or holds values of another kind.
    """
    decoded = columns.decode(blob, max_raw=MAX_RAW, max_rows=MAX_PROMPT)
    ids = cast("list[object]", decoded.get("id", [None]))
    if not all(isinstance(one, int) for one in ids):
        raise columns.CodecError("a prompt has no column 'id' of whole numbers, one a token")
    return cast("list[int]", ids)


def _sum(value: object) -> bool:
    return value is None or isinstance(value, int)
