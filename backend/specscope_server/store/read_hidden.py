"""The hidden states of one request with its tokens, unpacked from its chunks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final

from specscope import chunks, columns, hidden
from specscope.hidden import HiddenRow
from sqlalchemy import Connection, Row, select

from specscope_server.store import schema
from specscope_server.store.facts import engine_names
from specscope_server.store.model import RequestHidden
from specscope_server.store.opened import Opened
from specscope_server.store.read_detail import chunks_with_hidden, request_row, stored_chunks
from specscope_server.store.request_rows import Summary, public

log = logging.getLogger(__name__)
LATE: Final = 2 * chunks.MAX_STEPS
"""Verify steps that a look may come behind its own: a device's numbers are told when they are copied."""
MAX_CHUNKS: Final = 512
"""Chunks read for one answer, the first ones: a request has one a second, or one in 64 steps."""
MAX_NUMBERS: Final = 4 << 20
"""Numbers read for one answer, of the first chunks: 1,024 verify steps at level ``full`` have under a
million, and a chunk of two kilobytes may inflate to four."""
_PLACES: Final = {name: index for index, name in enumerate(hidden.PLACES)}
_T = schema.request_text.c


def request_hidden(
    connection: Connection,
    workspace: str,
    uid: str,
    first_step: int,
    steps: int,
    limit: int,
    now_ns: int,
    opened: Opened,
) -> RequestHidden | None:
    """Return the looks of ``steps`` verify steps from ``first_step`` on; ``None``: there is no such request.

    From step 0 on those of the prefill are among them. At most ``limit`` rows, and ``left_out`` is at least
    how many more there are. Looks are joined to steps by
    the engine's step number, so that it does not matter in which chunk they came.
    """
    found = request_row(connection, workspace, uid, now_ns)
    if found is None:
        return None
    stored = stored_chunks(
        connection, found.engine_uid, uid, first_step, steps + LATE, "steps", "hidden", most=MAX_CHUNKS
    )
    by_index = {
        chunk.first_step + offset: step
        for chunk in stored
        for offset, step in enumerate(opened.rows(chunk, "steps", chunks.unpack_steps))
    }
    start, end = _engine_steps(by_index, first_step, steps)
    found_rows, unread = _looks(stored, start, end, opened)
    if len(stored) == MAX_CHUNKS:
        there = chunks_with_hidden(connection, found.engine_uid, uid, first_step, steps + LATE)
        unread += there - sum(chunk.hidden is not None for chunk in stored)
    rows = _joined(found_rows)
    window = tuple(step for index, step in sorted(by_index.items()) if 0 <= index - first_step < steps)
    ids, sha256 = _prompt(connection, found)
    return RequestHidden(
        request=public(found, engine_names(connection, [found.engine_uid])[found.engine_uid]),
        rows=tuple(rows[:limit]),
        left_out=max(0, len(rows) - limit) + unread,
        prompt_ids=ids,
        prompt_sha256=sha256,
        output_ids=_output(window),
        steps=window,
    )


def _looks(
    stored: Iterable[Row[Any]], start: float, end: float, opened: Opened
) -> tuple[list[HiddenRow], int]:
    """Return the looks of these engine steps, and how many chunks were not read (:data:`MAX_NUMBERS`)."""
    looks: list[HiddenRow] = []
    numbers = unread = 0
    for chunk in stored:
        if not chunk.hidden:
            continue
        if numbers > MAX_NUMBERS:
            unread += 1
            continue
        for row in opened.rows(chunk, "hidden", hidden.unpack):
            numbers += len(hidden.HIDDEN_COLUMNS) + len(row.levels or ()) + len(row.fingerprints or ())
            if start <= row.step < end:
                looks.append(row)
    return looks, unread


def _engine_steps(by_index: Mapping[int, chunks.StepRow], first: int, steps: int) -> tuple[float, float]:
    """Return the engine's step numbers that a window of verify steps stands for: from, and up to without.

    What ran before the first verify step belongs to it, and what ran after the last one to that.
    """
    before = [step.step for index, step in by_index.items() if index >= first]
    after = [step.step for index, step in by_index.items() if index >= first + steps]
    start = -inf if first == 0 else min(before, default=inf)
    return start, min(after, default=inf)


def _joined(rows: Iterable[HiddenRow]) -> list[HiddenRow]:
    """Return rows in order, each look once: ranks are joined by step, the first process by uid counts."""
    found: dict[tuple[int, str, str, str, int, int, int], HiddenRow] = {}
    for row in rows:
        key = (row.step, row.after, row.place, row.source, row.draft_step, row.slot, row.position)
        found.setdefault(key, row)
    return sorted(found.values(), key=_along_the_path)


def _along_the_path(row: HiddenRow) -> tuple[int, str, int, int, str, int, int]:
    place = _PLACES.get(row.place, len(_PLACES))
    return row.step, row.after, row.draft_step, place, row.place, row.slot, row.position


def _output(steps: Iterable[chunks.StepRow]) -> dict[int, int]:
    """Return committed tokens by position; a step commits from the end of its context on.

    The last of its context is told by it where that came from a prefill.
    """
    found: dict[int, int] = {}
    for step in steps:
        if not step.overshoot:
            found |= {step.context + offset: token for offset, token in enumerate(step.output_ids or ())}
            if step.root is not None:
                found[step.context - 1] = step.root
    return found


def _prompt(connection: Connection, request: Summary) -> tuple[tuple[int, ...] | None, str]:
    """Return (ids, SHA-256) of a prompt; (``None``, empty) where it was not told or cannot be read."""
    found = connection.execute(
        select(_T.prompt_ids, _T.prompt_sha256).where(
            _T.engine_uid == request.engine_uid, _T.uid == request.uid
        )
    ).one_or_none()
    if found is None:
        return None, ""
    try:
        return tuple(chunks.unpack_prompt(found.prompt_ids)), found.prompt_sha256
    except columns.CodecError as error:
        log.warning("request %s: its prompt cannot be read: %s", request.uid, error)
        return None, found.prompt_sha256
