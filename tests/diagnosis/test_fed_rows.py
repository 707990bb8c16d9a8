"""Fed states that are wrong in one place of batches alone: a buffer that is not written anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from evidence_literals import counts, evidence, ledger, path
from specscope import convention as c
from specscope import hidden
from specscope.hidden import HiddenRow
from specscope_server.diagnosis import fed_rows, fed_states_differ, row_or_graph_stale
from specscope_server.diagnosis.engine_evidence import FedRows, PlaceComparison
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Evidence, Finding
from storekit import facts

DIFFERS = tuple(
    PlaceComparison(hidden.FED, hidden.AUX_CAPTURE, slot, "verify", 300, 0.4, 0.99) for slot in range(3)
)


def judged(rows: list[FedRows]) -> Evidence:
    whole = evidence(ledger(path(200, 20)), counts(200, 300, 60), users=20)
    return replace(whole, fed_rows=tuple(rows), places=DIFFERS)


def served(request: str, row: int, batch: int, *, wrong: bool, mode: str = c.EAGER) -> FedRows:
    return FedRows(request, row, batch, mode, 0 if wrong else 24, 24 if wrong else 0)


def shown(rows: list[FedRows]) -> Finding:
    told = row_or_graph_stale.judge(judged(rows), ())
    assert isinstance(told, Finding), told
    return told


def clear(rows: list[FedRows]) -> bool:
    return not isinstance(fed_states_differ.judge(judged(rows), ()), Finding)


def test_stale_states_in_high_rows_alone_are_a_batch_fault_and_no_hand_over() -> None:
    """Requests move down to rows below 4 as others end, and are right there."""
    rows = [served(f"u{n}", n, 8, wrong=n >= 4) for n in range(8)]
    rows += [served(f"u{n}", n - 4, 4, wrong=False) for n in range(4, 8)]
    told = shown(rows)
    assert (told.fault_class, told.confidence, told.boundary) == ("F18", CERTAIN, "draft.extend")
    assert told.title == "Only high rows of the batch are bad"
    assert "rows 4 and up" in told.sentence and "rows below 4" in told.sentence
    assert [one.value for one in told.numbers] == [96, 0, 4]
    assert clear(rows)


def test_stale_states_in_large_batches_and_in_graphs() -> None:
    large = [served(f"u{n}", n % 4, batch, wrong=batch > 2) for n in range(8) for batch in (1, 2, 4)]
    assert (shown(large).title, shown(large).confidence) == ("Only larger batches are bad", CERTAIN)
    graph = [
        served(f"u{n}", 0, 1, wrong=mode == c.GRAPH, mode=mode)
        for n in range(8)
        for mode in (c.EAGER, c.GRAPH)
    ]
    assert (shown(graph).title, shown(graph).confidence) == ("Only captured graphs are bad", CERTAIN)
    assert clear(large) and clear(graph)


def test_requests_that_never_ran_in_low_rows_leave_a_suspicion() -> None:
    rows = [served(f"u{n}", n, 8, wrong=n >= 4) for n in range(8)]
    assert shown(rows).confidence == SUSPECTED


ELSEWHERE: dict[str, Callable[[int, int], bool]] = {
    "all": lambda n, row: True,
    "here and there": lambda n, row: (n + row) % 2 == 0,
    "one request": lambda n, row: n == 7,
    "one request in a high row": lambda n, row: row >= 4 and n == 4,
}


@pytest.mark.parametrize("wrong", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_is_wrong_in_low_rows_too_or_in_one_request_is_a_hand_over(
    wrong: Callable[[int, int], bool],
) -> None:
    rows = [served(f"u{n}", row, 8, wrong=wrong(n, row)) for n in range(8) for row in (n, (n + 4) % 8)]
    assert not isinstance(row_or_graph_stale.judge(judged(rows), ()), Finding)
    told = fed_states_differ.judge(judged(rows), ())
    assert isinstance(told, Finding)
    assert (told.fault_class, told.confidence) == ("F07", CERTAIN)


def hidden_row(place: str, step: int, level: int, **more: object) -> HiddenRow:
    row = HiddenRow(step, "verify", c.EAGER, place, c.TARGET_FED, 0, 0, 40 + 4 * step, 2)
    units = [16, -16, 16, 16, -16, 16, -16, 16]
    row = replace(row, levels=[level, level], fingerprints=units + units, zero_rows=0)
    return replace(row, **more)  # pyright: ignore[reportArgumentType]


def test_rows_are_held_against_those_of_the_same_pass() -> None:
    steps = [replace(facts.step(1), step=n, row=n % 2, batch_size=2, mode=c.EAGER) for n in range(5)]
    empty = {"levels": [hidden.NO_LEVEL] * 2, "fingerprints": [0] * 16, "zero_rows": 2}
    rows = [hidden_row(hidden.AUX_CAPTURE, n, 1000) for n in range(4)]
    rows += [
        hidden_row(hidden.FED, 0, 1000),
        hidden_row(hidden.FED, 1, 1300),
        hidden_row(hidden.FED, 2, 1000, same_as=hidden.AUX_CAPTURE, levels=None, fingerprints=None),
        hidden_row(hidden.FED, 3, 0, **empty),
        hidden_row(hidden.FED, 4, 1000),
        hidden_row(hidden.FED, 9, 1300),
        replace(hidden_row(hidden.FED, 0, 1300), after="prefill"),
    ]
    assert fed_rows.of_request("u0", rows, steps) == [
        FedRows("u0", 0, 2, c.EAGER, 4, 0),
        FedRows("u0", 1, 2, c.EAGER, 0, 4),
    ]
    assert fed_rows.cut(()) is None
