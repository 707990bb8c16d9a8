"""Figures of hidden states: what Plotly takes, gaps that stay gaps, rows without a size that are marked."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import cast

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]
import pytest
from specscope_frontend.charts import PositionLine, TimeLine, by_position, hidden_timeline
from specscope_frontend.charts.figure import COLORS, Figure
from specscope_frontend.charts.hidden import MAX_LINES, ticks_of

START = datetime(2026, 1, 2, 3, 4, 0, tzinfo=UTC)


def line(name: str, *positions: int, size: float = 20.0, broken: tuple[int, ...] = ()) -> PositionLine:
    runs = list(accumulate((b > a + 1 for a, b in pairwise(positions)), initial=0))[: len(positions)]
    return PositionLine(name, positions, [size] * len(positions), runs, broken)


def over_time(name: str, *seconds: int, size: float = 20.0) -> TimeLine:
    return TimeLine(name, [(START + timedelta(seconds=s), size) for s in seconds])


def timeline(fed: list[TimeLine], inside: list[TimeLine]) -> Figure:
    return hidden_timeline(fed, inside, bucket_s=10, since=START, until=START + timedelta(seconds=900))


FIGURES: dict[str, Figure] = {
    "positions": by_position(
        [line("slot 0", 0, 1, 2, 5), line("slot 1", 0, 1, broken=(2,))], says="rms", log=True
    ),
    "positions empty": by_position([], says="rms", log=True),
    "positions all zero": by_position([line("slot 0", broken=(0, 1))], says="rms", log=True),
    "errors": by_position([line("fc out", 0, 1, size=0.0)], says="relative error", log=False),
    "lines many": by_position([line(f"slot {i}", 0, 1) for i in range(40)], says="rms", log=True),
    "timeline": timeline([over_time("slot 0", 0, 10, 40)], [over_time("fc out", 0, 10, size=0.001)]),
    "timeline undefined": timeline([TimeLine("slot 0", [(START, None)])], []),
    "timeline empty": timeline([], []),
}  # fmt: skip


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES.keys())
def test_plotly_accepts_every_figure(figure: Figure) -> None:
    made = cast("dict[str, list[object]]", go.Figure(figure).to_plotly_json())
    assert len(made["data"]) == len(figure["data"])
    json.dumps(figure, allow_nan=False)
    assert all(trace["meta"]["color"] in COLORS for trace in figure["data"])


def test_positions_that_were_not_looked_at_break_the_line() -> None:
    (trace,) = by_position([line("slot 0", 0, 1, 5, 6)], says="rms", log=True)["data"]
    assert trace["x"] == [0, 1, None, 5, 6]
    assert trace["y"] == [20.0, 20.0, None, 20.0, 20.0]
    assert not trace["connectgaps"]


def test_rows_of_zeros_stand_at_the_foot_and_are_named() -> None:
    _, foot = by_position([line("slot 3", 0, broken=(1, 2))], says="rms", log=True)["data"]
    assert (foot["name"], foot["x"], foot["y"]) == ("all zero or not finite", [1, 2], [10.0, 10.0])
    assert foot["customdata"] == ["slot 3", "slot 3"]


def test_no_more_lines_than_can_be_told_apart() -> None:
    drawn = FIGURES["lines many"]["data"]
    assert len(drawn) == MAX_LINES
    assert len({(trace["meta"]["color"], trace["line"]["dash"]) for trace in drawn}) == MAX_LINES


def test_a_bucket_without_a_look_breaks_the_line() -> None:
    fed, inside = FIGURES["timeline"]["data"]
    assert fed["y"] == [20.0, 20.0, None, 20.0]
    assert fed["x"][2] == "2026-01-02 03:04:20"
    assert (fed["yaxis"], inside["yaxis"]) == ("y", "y2")
    assert fed["line"]["color"] != inside["line"]["color"]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([], []),
        ([35.0, 65.0], []),
        ([0.02, 3.0], [0.01, 0.1, 1.0]),
        ([2.0, 26.0], [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]),
        ([1e-30, 1e30], [1e-30, 1e-19, 1e-8, 1e3, 1e14, 1e25]),
    ],
)
def test_ticks_are_few_round_numbers_in_range(values: list[float], ticks: list[float]) -> None:
    assert ticks_of(values) == pytest.approx(ticks)
    assert len(ticks) <= 7
