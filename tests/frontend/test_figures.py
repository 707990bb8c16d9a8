"""Figures are plain dicts that Plotly's own schema accepts, and say what the numbers say."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import cast

import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]
import pytest
from specscope_frontend.charts import (
    TimelinePoint,
    VerifyBar,
    acceptance_timeline,
    per_position,
    position_bars,
    sparkline,
    verify_steps,
)
from specscope_frontend.charts.figure import COLORS, Figure, role
from specscope_frontend.charts.positions import conditional, unconditional

START = datetime(2026, 1, 2, 3, 4, 0, tzinfo=UTC)


def timeline(*seconds: int) -> Figure:
    points = [TimelinePoint(START + timedelta(seconds=s), 2.0, 0.25, 10) for s in seconds]
    return acceptance_timeline(points, bucket_s=10, since=START, until=START + timedelta(seconds=900))


FIGURES: dict[str, Figure] = {
    "timeline": timeline(0, 10, 20, 60, 70),
    "timeline empty": timeline(),
    "positions": per_position([(100, 70), (100, 50), (40, 10), (0, 0)]),
    "positions empty": per_position([]),
    "steps": verify_steps([VerifyBar(1, 4, 2, 1), VerifyBar(2, 4, 0, 1), VerifyBar(3, 0, 0, 1)]),
    "steps many": verify_steps([VerifyBar(i, 16, i % 17, 1) for i in range(1, 500)]),
    "steps empty": verify_steps([]),
}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES.keys())
def test_plotly_accepts_every_figure(figure: Figure) -> None:
    # Raises ValueError on an attribute or value that Plotly does not know.
    made = cast("dict[str, list[object]]", go.Figure(figure).to_plotly_json())
    assert len(made["data"]) == len(figure["data"])
    json.dumps(figure, allow_nan=False)


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES.keys())
def test_every_trace_names_a_colour_of_the_theme(figure: Figure) -> None:
    for trace in figure["data"]:
        assert trace["meta"]["color"] in COLORS


def test_a_colour_without_a_role_is_refused() -> None:
    with pytest.raises(KeyError):
        role("mauve")


def test_a_bucket_without_data_breaks_the_line() -> None:
    length, rate = timeline(0, 10, 40, 50)["data"]
    assert length["x"] == [
        "2026-01-02 03:04:00", "2026-01-02 03:04:10", "2026-01-02 03:04:20",
        "2026-01-02 03:04:40", "2026-01-02 03:04:50",
    ]  # fmt: skip
    assert length["y"] == [2.0, 2.0, None, 2.0, 2.0]
    assert rate["y"] == [0.25, 0.25, None, 0.25, 0.25]
    assert not length["connectgaps"]


def test_times_are_given_in_utc_whatever_their_zone() -> None:
    east = datetime(2026, 1, 2, 5, 4, tzinfo=timezone(timedelta(hours=2)))
    figure = acceptance_timeline(
        [TimelinePoint(east, 1.0, 0.0, 1)], bucket_s=10, since=east, until=east + timedelta(minutes=1)
    )
    assert figure["data"][0]["x"] == ["2026-01-02 03:04:00"]


def test_undrafted_positions_are_undefined_not_rejected() -> None:
    positions = [(100, 70), (40, 14), (0, 0)]
    assert unconditional(positions) == [0.7, 0.35, None]
    assert conditional(positions) == [0.7, 0.2, 0.0]
    assert conditional([(10, 0), (10, 0)]) == [0.0, None]
    assert conditional([]) == []


def test_a_step_is_split_into_accepted_and_rejected_positions() -> None:
    accepted, rejected, bonus = verify_steps([VerifyBar(1, 4, 3, 1), VerifyBar(2, 4, 0, 0)])["data"]
    assert (accepted["name"], accepted["y"]) == ("accepted", [3, 0])
    assert (rejected["name"], rejected["y"]) == ("rejected", [1, 4])
    assert (bonus["x"], bonus["y"]) == ([1], [3.5])


def test_many_steps_drop_the_marks_that_would_hide_them() -> None:
    assert len(FIGURES["steps many"]["data"]) == 2


def test_a_sparkline_keeps_gaps_and_shows_lone_values() -> None:
    line = sparkline([1.0, 2.0, None, 1.0, None, 1.0, 1.0], width=100, height=20, floor=0.0)
    assert line.path.count("M") == 2
    assert line.area.count("Z") == 2
    assert len(line.dots) == 1
    assert line.top == 2.0


def test_an_empty_sparkline_draws_nothing() -> None:
    line = sparkline([None, None], width=100, height=20, floor=0.0)
    assert (line.path, line.area, line.dots) == ("", "", ())


def test_values_beyond_the_scale_stay_inside_the_box() -> None:
    line = sparkline([5.0, -5.0], width=100, height=20, floor=0.0, top=1.0)
    heights = [float(point.split()[1]) for point in line.path.removeprefix("M").split("L")]
    assert all(0 <= y <= 20 for y in heights)


def test_position_bars_fill_their_share_of_the_height() -> None:
    first, second = position_bars([(10, 5), (0, 0)], width=100, height=40)
    assert (first.share, first.filled, first.y) == (0.5, 20.0, 20.0)
    assert (second.share, second.filled) == (None, 0.0)
    assert position_bars([], width=100, height=40) == []
